"""Somebody else's Jinja template, run so that it reads no attribute it should not, and ends.

Jinja's sandbox keeps a template from what lies behind `__class__`, and no more: a template may still loop for ever or
fill the memory. So a template is read first, and every place where it could grow (loops, calls, filters, `+`, `~`,
`*`, what it prints) is led through a budget of steps, characters and seconds; what is not known to be harmless, such as
`include`, `**` or `%` on text, is refused before anything runs.
"""

import json
import time
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import nodes
from jinja2.exceptions import TemplateError, TemplateRuntimeError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from regard.errors import InputError

LONGEST_TEMPLATE = 100_000
"""Characters; published ones have up to some 20,000."""
STEPS = 100_000
CHARACTERS = 4_000_000
"""Beside those of the conversation, of which each may be made this many times over:"""
TIMES = 50
SECONDS = 5.0
LARGEST = 10_000
"""A number that is given to a function."""
ENVELOPE = 200
"""Characters of a message from a template that are repeated."""

OF_TEXT = frozenset(
    (
        *("strip", "lstrip", "rstrip", "removeprefix", "removesuffix", "split", "rsplit", "splitlines", "partition"),
        *("rpartition", "startswith", "endswith", "find", "rfind", "index", "count", "lower", "upper", "title"),
        *("capitalize", "isdigit", "isalpha", "isalnum", "isspace", "islower", "isupper"),
    )
)
OF_TABLE = frozenset(("items", "keys", "values", "get"))
OF_LIST = frozenset(("index", "count"))
FILTERS = frozenset(
    (
        *("abs", "capitalize", "count", "d", "default", "dictsort", "e", "escape", "first", "float", "int", "items"),
        *("last", "length", "list", "lower", "map", "max", "min", "reject", "rejectattr", "reverse", "round", "safe"),
        *("select", "selectattr", "sort", "string", "sum", "title", "tojson", "trim", "unique", "upper"),
    )
)
"""Of Jinja's, those whose result is about as large as what they are given."""
REBUILT = ("replace", "join")
"""Filters and methods of text that can make much of little: those here say how much before they do it."""


class _RefusedTemplateError(Exception):
    """Why a template is not read further."""


@dataclass
class _Budget:
    """What is left to a template."""

    characters: int
    steps: int = STEPS
    end: float = field(default_factory=lambda: time.monotonic() + SECONDS)

    def spend(self, steps: int, characters: int = 0) -> None:
        self.steps -= steps
        self.characters -= characters
        if self.steps < 0:
            raise _RefusedTemplateError(f"takes more than {STEPS:,} steps")
        if self.characters < 0:
            raise _RefusedTemplateError("makes far more text than the conversation has")
        if time.monotonic() > self.end:
            raise _RefusedTemplateError(f"takes longer than {SECONDS:.0f} seconds")


_BUDGET: ContextVar[_Budget] = ContextVar("budget")


def _size(value: object) -> int:
    """About how much memory a value takes, in characters."""
    return len(value) if isinstance(value, str | list | tuple | dict) else 1


def _charged(value: Any) -> Any:
    _BUDGET.get().spend(1, _size(value))
    return value


def _looped(values: Any) -> Any:
    """What a loop goes through, counted before it begins."""
    if not isinstance(values, Iterable):
        return values  # Jinja says what is wrong with it
    listed = values if isinstance(values, str | list | tuple | dict | range) else _listed(values)
    _BUDGET.get().spend(len(listed))
    return listed


def _listed(values: Iterable[Any]) -> list[Any]:
    found = []
    for value in values:
        _BUDGET.get().spend(1)
        found.append(value)
    return found


def _argument(value: Any) -> Any:
    if isinstance(value, int) and abs(value) > LARGEST:
        raise _RefusedTemplateError(f"gives the number {str(value)[:20]} to a function")
    return value


def _plus(left: Any, right: Any) -> Any:
    _BUDGET.get().spend(1, _size(left) + _size(right))
    return left + right


def _times(left: Any, right: Any) -> Any:
    if not all(isinstance(one, int | float) and abs(one) <= LARGEST for one in (left, right)):
        raise _RefusedTemplateError("multiplies what is no small number")
    return left * right


def _modulo(left: Any, right: Any) -> Any:
    if not isinstance(left, int | float):
        raise _RefusedTemplateError("formats a text with %")
    return left % right


def _joined(values: Iterable[Any], separator: str = "", attribute: str | None = None) -> str:
    texts = [str(value if attribute is None else value[attribute]) for value in _looped(values)]
    _BUDGET.get().spend(1, sum(map(len, texts)) + len(separator) * len(texts))
    return separator.join(texts)


def _replaced(text: object, old: str, new: str, count: int = -1) -> str:
    whole = str(text)
    times = whole.count(old) if count is None or count < 0 else min(count, whole.count(old))
    _BUDGET.get().spend(1, len(whole) + times * len(new))
    return whole.replace(old, new, times)


def _as_json(value: Any, indent: int | None = None, ensure_ascii: bool = False) -> str:
    """As transformers has it: letters stay letters, and nothing is escaped for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)


def _raise(message: str) -> NoReturn:
    raise TemplateRuntimeError(str(message))


def _now(format: str) -> str:
    if len(format) > ENVELOPE:
        raise _RefusedTemplateError("formats a date by a long text")
    return datetime.now().strftime(format)


BUDGETED: dict[str, Callable[..., Any]] = {
    "_charged": _charged,
    "_looped": _looped,
    "_argument": _argument,
    "_plus": _plus,
    "_times": _times,
    "_modulo": _modulo,
    "join": _joined,
    "replace": _replaced,
    "tojson": _as_json,
}
HARMLESS = (
    *(nodes.Template, nodes.Output, nodes.TemplateData, nodes.For, nodes.If, nodes.Macro, nodes.Assign),
    *(nodes.AssignBlock, nodes.Break, nodes.Continue, nodes.ScopedEvalContextModifier, nodes.Scope),
    *(nodes.Name, nodes.NSRef, nodes.Const, nodes.Tuple, nodes.List, nodes.Dict, nodes.Pair, nodes.Keyword),
    *(nodes.CondExpr, nodes.Filter, nodes.Test, nodes.Call, nodes.Getitem, nodes.Getattr, nodes.Slice),
    *(nodes.Concat, nodes.Compare, nodes.Operand, nodes.Add, nodes.Sub, nodes.Mul, nodes.Div, nodes.FloorDiv),
    *(nodes.Mod, nodes.And, nodes.Or, nodes.Not, nodes.Neg, nodes.Pos),
)


def _through(name: str, node: nodes.Expr, *arguments: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(node, name, list(arguments), [], None, None, lineno=node.lineno)


def _constant(node: nodes.Expr) -> nodes.Expr:
    """Plain text of a template, as a value."""
    return nodes.Const(node.data, lineno=node.lineno) if isinstance(node, nodes.TemplateData) else node


class _Budgeted(NodeTransformer):
    """A template in which whatever can grow goes through the budget."""

    def generic_visit(self, node: nodes.Node) -> nodes.Node:
        if not isinstance(node, HARMLESS):
            raise _RefusedTemplateError(f"has {type(node).__name__.lower()}, which no chat template needs")
        if isinstance(node, nodes.Filter) and node.name not in FILTERS | {*REBUILT}:
            raise _RefusedTemplateError(f"asks for the filter {node.name[:40]!r}, which is not known to be harmless")
        if isinstance(node, nodes.For) and node.recursive:
            raise _RefusedTemplateError("has a recursive loop")
        whole: nodes.Node = super().generic_visit(node)
        return whole

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802  (Jinja's way to name visitors)
        self.generic_visit(node)
        values: Any = node.iter  # an expression, though Jinja types it as any node
        node.iter = _through("_looped", values)
        return node

    def visit_Output(self, node: nodes.Output) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.nodes = [_through("_charged", _constant(one)) for one in node.nodes]
        return node

    def visit_Filter(self, node: nodes.Filter) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        self._bound(node)
        return _through("_charged", node)

    def visit_Call(self, node: nodes.Call) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        self._bound(node)
        called: nodes.Expr = node.node
        if isinstance(called, nodes.Getattr) and called.attr in REBUILT:
            first, *rest = [called.node, *node.args]
            if called.attr == "join" and rest:
                first, *rest = [*rest, first]
            return _through(called.attr, first, *rest)
        return _through("_charged", node)

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _through("_charged", node) if isinstance(node.arg, nodes.Slice) and node.ctx == "load" else node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _through("join", nodes.List(node.nodes, lineno=node.lineno))

    def visit_Add(self, node: nodes.Add) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _through("_plus", node.left, node.right)

    def visit_Mul(self, node: nodes.Mul) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _through("_times", node.left, node.right)

    def visit_Mod(self, node: nodes.Mod) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _through("_modulo", node.left, node.right)

    def _bound(self, node: nodes.Filter | nodes.Call) -> None:
        """No argument is a number that says how much to make."""
        if node.dyn_args is not None or node.dyn_kwargs is not None:
            raise _RefusedTemplateError("spreads a list into arguments")
        node.args = [_through("_argument", one) for one in node.args]
        for keyword in node.kwargs:
            keyword.value = _through("_argument", keyword.value)


class _Generation(Extension):
    """`{% generation %}` … `{% endgeneration %}`, which marks what the assistant says: read through."""

    tags = {"generation"}  # noqa: RUF012  (Jinja's own way)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Environment(ImmutableSandboxedEnvironment):
    """The settings of transformers, and of methods those that make nothing large."""

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols], optimized=False)
        kept = {name: found for name, found in self.globals.items() if name in ("range", "namespace", "dict")}
        self.globals = {**kept, "raise_exception": _raise, "strftime_now": _now}
        self.filters = {**{name: found for name, found in self.filters.items() if name in FILTERS}, **BUDGETED}

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        for kind, known in ((str, OF_TEXT), (dict, OF_TABLE), (list | tuple, OF_LIST)):
            if isinstance(obj, kind):
                return attr in known
        return super().is_safe_attribute(obj, attr, value)

    def unsafe_undefined(self, obj: Any, attribute: str) -> NoReturn:
        raise _RefusedTemplateError(f"reaches for {attribute[:40]!r} of a {type(obj).__name__}")

    def wrap_str_format(self, value: Any) -> None:
        """Text is not formatted: ten signs can ask for any length."""


class SandboxedTemplate:
    """A template that was read and found harmless; `render` ends soon, whatever it says."""

    def __init__(self, source: str) -> None:
        if len(source) > LONGEST_TEMPLATE:
            raise _refusal(f"has {len(source):,} characters, and at most {LONGEST_TEMPLATE:,} are read")
        environment = _Environment()
        try:
            read = _Budgeted().visit(environment.parse(source))
            self._template = environment.from_string(read)
        except _RefusedTemplateError as error:
            raise _refusal(str(error)) from None
        except RecursionError:
            raise _refusal("is nested too deeply") from None
        except TemplateError as error:
            raise _refusal(f"is not valid: {_line(error)}") from error

    def render(self, values: dict[str, Any], characters: int) -> str:
        """What it makes of these values, which have about so many characters."""
        token = _BUDGET.set(_Budget(CHARACTERS + TIMES * characters))
        try:
            return "".join(self._template.generate(values))
        except _RefusedTemplateError as error:
            raise _refusal(str(error)) from None
        except RecursionError:
            raise _refusal("calls itself without end") from None
        except TemplateRuntimeError as error:  # raise_exception too: most often about the order of roles
            raise InputError(
                f"the chat template refuses this conversation: {_line(error)}", "give it messages as it wants them"
            ) from error
        except Exception as error:  # of whatever a template does to values of another type
            raise _refusal(f"fails on this conversation: {_line(error)}") from error
        finally:
            _BUDGET.reset(token)


def _line(error: Exception) -> str:
    return (" ".join(str(error).split()) or type(error).__name__)[:ENVELOPE]


def _refusal(problem: str) -> InputError:
    return InputError(f"the chat template {problem}", "use another template, such as ChatML's")
