"""The house rules, read from the source: who may import whom, how long things are, what is never written.

Each rule is a function from the package's folder to a list of sentences, one for each place that breaks it;
the second half of this file breaks every rule once, in a small tree of its own, to prove that it is seen.
"""

import ast
import builtins
import dis
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import CodeType

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "regard"

ORDER = (
    *("errors", "axes", "config", "files", "compiled", "devices", "plugins", "text", "data", "layers", "embedding"),
    *("attention", "blocks"),
    *("models", "decoding", "metrics", "training", "tasks", "interop", "inspection", "views", "recipes", "api"),
    *("compare", "bench", "serving", "cli", "__main__"),
)
FRONT = "__init__"  # `import regard` itself: its lazy names reach everything up to api
LONGEST_FILE, LONGEST_FUNCTION, MOST_PARAMETERS = 400, 60, 8
CONTRACT = {("attention/core.py", "attend"): 9, ("attention/core.py", "which_kernel"): 9}
"""What these take is the contract of attention."""
EMPTY_NAMES = {"util", "utils", "helper", "helpers", "common", "misc"}
PICKLES = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


# Reading the source


def sources(root: Path) -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(root.rglob("*.py")):
        yield path.relative_to(root), ast.parse(path.read_text(encoding="utf-8"), str(path))


def functions(tree: ast.Module) -> Iterator[Function]:
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def house(path: Path) -> str:
    """The top-level folder or file that a source file belongs to."""
    return path.parts[0].removesuffix(".py")


def module_file(root: Path, parts: tuple[str, ...]) -> Path | None:
    """The file of the module `regard.<parts>`, relative to the root."""
    for path in (Path(*parts, "__init__.py"), Path(*parts[:-1], f"{parts[-1]}.py") if parts else Path()):
        if (root / path).is_file():
            return path
    return None


def imported(root: Path, path: Path, node: ast.AST) -> Iterator[tuple[str, ...]]:
    """The dotted names below `regard` that one statement or call imports, each as its parts."""
    package = (root.name, *path.parent.parts)
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        above = package[: len(package) - node.level + 1] if node.level else ()  # one dot is the folder itself
        prefix = ".".join((*above, node.module)) if node.module else ".".join(above)
        names = [f"{prefix}.{alias.name}" for alias in node.names]
    elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        names = [str(node.args[0].value)] if called in ("import_module", "__import__") else []
    else:
        names = []
    for name in names:
        first, *rest = name.split(".")
        if first == root.name:
            yield tuple(rest)


def imports(root: Path, path: Path, tree: ast.Module) -> Iterator[tuple[int, Path]]:
    """Line and file of everything of ours that a file imports, wherever in the file it does so."""
    for node in ast.walk(tree):
        for parts in imported(root, path, node):
            while (target := module_file(root, parts)) is None and parts:
                parts = parts[:-1]  # the last part is a name inside a module
            yield getattr(node, "lineno", 0), target or Path("__init__.py")


# The rules


def imports_against_the_order(root: Path) -> list[str]:
    """A folder imports only folders listed before it; `import regard` counts as everything up to api."""
    ranks = {name: rank for rank, name in enumerate(ORDER)} | {FRONT: ORDER.index("api")}
    found = []
    for path, tree in sources(root):
        own = house(path)
        if own not in ranks:
            found.append(f"{path}: {own!r} is not in the order {', '.join(ORDER)}")
            continue
        if path == Path("__init__.py"):
            continue
        for line, target in imports(root, path, tree):
            other = house(target)
            if other != own and ranks.get(other, len(ORDER)) >= ranks[own]:
                found.append(f"{path}:{line}: {own} imports {other}, which is not listed before it")
    return found


def imports_in_a_circle(root: Path) -> list[str]:
    """No file imports itself by way of others."""
    graph = {
        path: {target for _, target in imports(root, path, tree) if target != path}
        for path, tree in sources(root)
        if path != Path("__init__.py")
    }
    found: list[str] = []
    finished: set[Path] = set()

    def visit(path: Path, trail: tuple[Path, ...]) -> None:
        if path in trail:
            circle = (*trail[trail.index(path) :], path)
            found.append("circle: " + " -> ".join(str(step) for step in circle))
        elif path not in finished:
            for target in sorted(graph.get(path, ())):
                visit(target, (*trail, path))
            finished.add(path)

    for path in graph:
        visit(path, ())
    return found


def files_too_long(root: Path) -> list[str]:
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in sorted(root.rglob("*.py"))}
    return [
        f"{path.relative_to(root)}: {length} lines, at most {LONGEST_FILE}"
        for path, length in lengths.items()
        if length > LONGEST_FILE
    ]


def functions_too_long(root: Path) -> list[str]:
    return [
        f"{path}:{node.lineno}: {node.name} has {length} lines, at most {LONGEST_FUNCTION}"
        for path, tree in sources(root)
        for node in functions(tree)
        if (length := (node.end_lineno or node.lineno) - node.lineno + 1) > LONGEST_FUNCTION
    ]


def functions_with_too_many_parameters(root: Path) -> list[str]:
    """`self` and `cls` do not count; a verb of the command line may have as many options as it needs, and a kernel of a
    GPU as many addresses and sizes, since it is given nothing else."""
    found = []
    for path, tree in sources(root):
        for node in functions(tree):
            own = node.args
            every = [*own.posonlyargs, *own.args, *own.kwonlyargs, *filter(None, (own.vararg, own.kwarg))]
            count = len(every) - bool(every and every[0].arg in ("self", "cls"))
            most = CONTRACT.get((path.as_posix(), node.name), MOST_PARAMETERS)
            started = any(isinstance(one, ast.Name) and one.id == "TritonKernel" for one in node.decorator_list)
            if count > most and house(path) != "cli" and not started:
                found.append(f"{path}:{node.lineno}: {node.name} has {count} parameters, at most {most}")
    return found


def signatures_that_take_anything(root: Path) -> list[str]:
    return [
        f"{path}:{node.lineno}: {node.name} takes **{node.args.kwarg.arg}; name what it takes"
        for path, tree in sources(root)
        for node in functions(tree)
        if node.args.kwarg is not None
    ]


def names_that_say_nothing(root: Path) -> list[str]:
    return [
        f"{path.relative_to(root)}: name it after what is in it"
        for path in sorted(root.rglob("*"))
        if path.suffix in ("", ".py") and path.stem.strip("_") in EMPTY_NAMES
    ]


def pickles(root: Path) -> list[str]:
    """Neither pickle and its kin, nor torch's save and load, nor numpy's `allow_pickle=True`."""
    return [
        f"{path}:{getattr(node, 'lineno', 0)}: reads or writes pickles; use safetensors or JSON"
        for path, tree in sources(root)
        for node in ast.walk(tree)
        if _touches_pickle(node)
    ]


def _touches_pickle(node: ast.AST) -> bool:
    match node:
        case ast.Import(names=names):
            return any(alias.name.split(".")[0] in PICKLES for alias in names)
        case ast.ImportFrom(module="torch" | "torch.serialization", names=names):
            return any(alias.name in ("load", "save") for alias in names)
        case ast.ImportFrom(module=str(module), level=0):
            return module.split(".")[0] in PICKLES
        case ast.Attribute(value=ast.Name(id="torch"), attr="load" | "save"):
            return True
        case ast.Attribute(value=ast.Attribute(value=ast.Name(id="torch"), attr="serialization")):
            return True
        case ast.keyword(arg="allow_pickle", value=value):
            return not (isinstance(value, ast.Constant) and value.value is False)
    return False


def large_numbers_for_minus_infinity(root: Path) -> list[str]:
    """Minus infinity is `-inf`: with -1e9 or `finfo.min` a fully masked row leaks the mean of the values."""
    return [
        f"{path}:{getattr(node, 'lineno', 0)}: a large negative number stands for minus infinity; use -inf"
        for path, tree in sources(root)
        for node in ast.walk(tree)
        if _stands_for_minus_infinity(node)
    ]


def _stands_for_minus_infinity(node: ast.AST) -> bool:
    match node:
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return 1e4 <= value < float("inf")
        case ast.UnaryOp(op=ast.USub(), operand=ast.BinOp(op=ast.Pow(), left=ast.Constant(value=base), right=power)):
            return isinstance(base, int | float) and base >= 10 and getattr(power, "value", 9) >= 4
        case ast.Call(func=ast.Name(id="float"), args=[ast.Constant(value=str(text))]):
            return _is_large_negative(text)
        case ast.Attribute(attr="min", value=ast.Call(func=function)):
            return getattr(function, "attr", getattr(function, "id", "")) == "finfo"
    return False


def _is_large_negative(text: str) -> bool:
    try:
        return float("-inf") < float(text) <= -1e4
    except ValueError:
        return False


KNOWS_NETWORKS = ("models", "blocks", "bench", FRONT)


def networks_by_name(root: Path) -> list[str]:
    """Outside models, blocks and bench nothing asks which network it has: neither by import nor by a string."""
    found = []
    for path, tree in sources(root):
        if house(path) in KNOWS_NETWORKS:
            continue
        lines = [line for line, target in imports(root, path, tree) if target == Path("models/transformer.py")]
        lines += [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Compare) and _asks_the_stack(node)]
        found += [f"{path}:{line}: ask what the network can do (models/network.py), not which it is" for line in lines]
    return found


def _asks_the_stack(node: ast.Compare) -> bool:
    parts = [part for side in (node.left, *node.comparators) for part in ast.walk(side)]
    named = any(isinstance(part, ast.Attribute) and part.attr == "architecture" for part in parts)
    return named or {part.value for part in parts if isinstance(part, ast.Constant)} >= {"encoder_decoder"}


def names_twice(root: Path) -> list[str]:
    """No two public classes share a name; those of bench are its own."""
    homes: dict[str, list[str]] = {}
    for path, tree in sources(root):
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and house(path) != "bench":
                homes.setdefault(node.name, []).append(str(path))
    return [f"{' and '.join(paths)} both have {name}" for name, paths in homes.items() if len(paths) > 1]


def unbound_names(root: Path) -> list[str]:
    """Names that nothing defines; the linters leave them out, since the names in shapes look like them."""
    found = []
    for path, tree in sources(root):
        bound = {*dir(builtins), "__file__", "__name__", "__qualname__", "__module__", "__annotations__"}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                bound |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                bound.add(node.name)
            elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                bound.add(node.id)
        loads = (one for code in _codes(compile(tree, str(path), "exec")) for one in dis.get_instructions(code))
        names = {one.argval for one in loads if one.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
        found += [f"{path}: nothing defines {name}" for name in sorted(names - bound)]
    return found


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _codes(one)


RULES: tuple[Callable[[Path], list[str]], ...] = (
    imports_against_the_order,
    imports_in_a_circle,
    files_too_long,
    functions_too_long,
    functions_with_too_many_parameters,
    signatures_that_take_anything,
    names_that_say_nothing,
    pickles,
    large_numbers_for_minus_infinity,
    networks_by_name,
    names_twice,
)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_package_keeps_the_rule(rule):
    broken = rule(PACKAGE)
    assert not broken, "\n" + "\n".join(broken)


def test_every_name_is_defined(tmp_path):
    assert unbound_names(PACKAGE) == []
    broken = "from regard.errors import InputError\n\ndef f(rows):\n    def g():\n        raise ConfigError(rows)\n"
    assert unbound_names(build(tmp_path, {"api.py": broken})) == ["api.py: nothing defines ConfigError"]


def test_every_test_file_has_a_name_of_its_own():
    """Pytest imports them by it; those of `compiled` run in a process of their own."""
    tests = Path(__file__).parent
    names = Counter(path.name for path in tests.rglob("test_*.py") if path.parent.name != "compiled")
    assert [name for name, count in names.items() if count > 1] == []


def test_the_guide_for_contributors_states_the_same_rules():
    guide = " ".join((PACKAGE.parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8").split())
    assert f"`{', '.join(ORDER[:-1])}`" in guide
    assert f"files of at most {LONGEST_FILE} lines" in guide
    assert f"functions of at most {LONGEST_FUNCTION} lines and {MOST_PARAMETERS} parameters" in guide


def test_the_package_is_read():
    assert {Path("errors.py"), Path("views/attention.py")} <= {path for path, _ in sources(PACKAGE)}


# Each rule sees what breaks it


def build(folder: Path, files: dict[str, str]) -> Path:
    """A small package with a little of every kind, and these files in place of its own."""
    root = folder / "regard"
    plain = {
        "__init__.py": "def __getattr__(name):\n    from regard.cli import app\n    return app\n",
        "errors.py": "",
        "axes.py": "from torch import Tensor\n",
        "attention/__init__.py": "from regard.attention.core import attend\n",
        "attention/core.py": "from regard.errors import InputError\nfrom .mask import Causal\n",
        "attention/mask.py": "import math\nfrom regard import axes\nminus_infinity = float('-inf')\n",
        "attention/efficient/window.py": "from ..mask import Causal\nfrom ...errors import InputError\n",
        "models/__init__.py": "",
        "models/gpt.py": "import regard.attention.core\nfrom regard.attention import attend\nPADDED = -100\n",
        "api.py": "from regard.models import gpt\n",
        "cli/app.py": f"import regard\ndef main({', '.join(f'option{i}' for i in range(12))}): ...\n",
        "__main__.py": "from regard.cli.app import main\n",
    }
    for name, text in {**plain, **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root


def test_a_sound_tree_breaks_no_rule(tmp_path):
    root = build(tmp_path, {})
    assert [sentence for rule in RULES for sentence in rule(root)] == []


UPWARD = {
    "plain": "import regard.models.gpt",
    "plain, renamed": "import regard.models.gpt as gpt",
    "second of two": "import math, regard.models.gpt",
    "name from module": "from regard.models.gpt import GPT",
    "module from folder": "from regard.models import gpt",
    "folder from the package": "from regard import models",
    "relative": "from ..models import gpt",
    "relative, folder": "from .. import models",
    "relative, module": "from ..models.gpt import GPT",
    "relative, everything": "from ..models.gpt import *",
    "in a function": "def f():\n    from regard.models import gpt",
    "in a method": "class A:\n  def f(self):\n    if self:\n      import regard.models.gpt",
    "for types": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from regard.models import gpt",
    "by its name": "from importlib import import_module\ngpt = import_module('regard.models.gpt')",
    "by its name, in full": "import importlib\nimportlib.import_module('regard.models')",
    "through the front door": "import regard",
    "a public name": "from regard import attend",
    "a public name, relative": "from .. import attend",
}


@pytest.mark.parametrize("statement", UPWARD.values(), ids=UPWARD.keys())
def test_an_import_of_a_later_folder_is_seen(statement, tmp_path):
    (sentence,) = imports_against_the_order(build(tmp_path, {"attention/core.py": statement}))
    assert sentence.startswith("attention/core.py:")


def test_an_import_of_a_later_folder_is_seen_in_a_folder_within_a_folder(tmp_path):
    root = build(tmp_path, {"attention/efficient/window.py": "def f():\n    from ...models import gpt\n"})
    assert imports_against_the_order(root) == [
        "attention/efficient/window.py:2: attention imports models, which is not listed before it"
    ]


def test_of_every_two_folders_only_the_later_may_import_the_earlier(tmp_path):
    root = tmp_path / "regard"
    for name in ORDER:
        (root / name).mkdir(parents=True)
        everything = "\n".join(f"from regard.{other} import part" for other in ORDER)
        (root / name / "part.py").write_text(everything)
    refused = {tuple(sentence.split()[1:4:2]) for sentence in imports_against_the_order(root)}
    pairs = {(own, f"{other},") for rank, own in enumerate(ORDER) for other in ORDER[rank + 1 :]}
    assert refused == pairs


def test_a_folder_outside_the_order_is_seen(tmp_path):
    (sentence,) = imports_against_the_order(build(tmp_path, {"plumbing/pipe.py": ""}))
    assert "'plumbing' is not in the order" in sentence


CIRCLES: dict[str, dict[str, str]] = {
    "two files": {"attention/mask.py": "from regard.attention import core"},
    "hidden in a function": {"attention/mask.py": "def f():\n    from .core import attend"},
    "through the folder's front": {"attention/mask.py": "from regard.attention import attend"},
    "three files": {
        "attention/core.py": "from regard.attention.mask import a",
        "attention/mask.py": "from regard.attention.efficient.window import b",
        "attention/efficient/window.py": "import regard.attention.core",
    },
}


@pytest.mark.parametrize("files", CIRCLES.values(), ids=CIRCLES.keys())
def test_a_circle_of_imports_is_seen(files, tmp_path):
    (sentence, *_) = imports_in_a_circle(build(tmp_path, files))
    steps = sentence.removeprefix("circle: ").split(" -> ")
    assert steps[0] == steps[-1]
    assert set(files) <= set(steps)


def long_function(lines: int) -> str:
    return "def f():\n" + "    pass\n" * (lines - 1)


def parameters(*names: str, count: int) -> str:
    return ", ".join((*names, *(f"p{index}" for index in range(count))))


BROKEN: list[tuple[Callable[[Path], list[str]], dict[str, str]]] = [
    (files_too_long, {"api.py": "x = 1\n" * 401}),
    (functions_too_long, {"api.py": long_function(61)}),
    (
        functions_too_long,
        {"api.py": "class A:\n    async " + long_function(61).replace("\n", "\n    ") + "\n"},
    ),
    (functions_with_too_many_parameters, {"api.py": f"def f({parameters(count=9)}): ..."}),
    (functions_with_too_many_parameters, {"api.py": f"def f(a, /, b, *c, {parameters(count=6)}): ..."}),
    (
        functions_with_too_many_parameters,
        {"api.py": f"class A:\n  def f({parameters('self', count=9)}): ..."},
    ),
    (signatures_that_take_anything, {"api.py": "def f(**kwargs): ..."}),
    (signatures_that_take_anything, {"cli/app.py": "class A:\n  def f(self, a, **options): ..."}),
    (names_that_say_nothing, {"attention/utils.py": ""}),
    (names_that_say_nothing, {"models/_helpers.py": ""}),
    (names_that_say_nothing, {"models/common/part.py": ""}),
    (names_that_say_nothing, {"data/misc.py": ""}),
    (pickles, {"api.py": "import pickle"}),
    (pickles, {"api.py": "def f():\n    from pickle import loads"}),
    (pickles, {"api.py": "import torch\ntorch.load('x')"}),
    (pickles, {"api.py": "import torch\nread = torch.load"}),
    (pickles, {"api.py": "from torch import load"}),
    (pickles, {"api.py": "import torch\ntorch.save({}, 'x')"}),
    (pickles, {"api.py": "import numpy\nnumpy.load('x', allow_pickle=True)"}),
    (large_numbers_for_minus_infinity, {"attention/core.py": "scores.masked_fill(mask, -1e9)"}),
    (large_numbers_for_minus_infinity, {"attention/core.py": "x = -10000.0"}),
    (large_numbers_for_minus_infinity, {"attention/core.py": "x = -1000000"}),
    (large_numbers_for_minus_infinity, {"attention/core.py": "x = -10**9"}),
    (large_numbers_for_minus_infinity, {"attention/core.py": "x = float('-1e9')"}),
    (large_numbers_for_minus_infinity, {"attention/core.py": "x = torch.finfo(scores.dtype).min"}),
    (
        networks_by_name,
        {"models/transformer.py": "", "cli/app.py": "from regard.models.transformer import Transformer"},
    ),
    (networks_by_name, {"api.py": "x = config.architecture == 'encoder'"}),
    (networks_by_name, {"api.py": "x = kind in ('decoder', 'encoder_decoder')"}),
    (names_twice, {"api.py": "class Run: ...", "cli/app.py": "class Run: ..."}),
]


@pytest.mark.parametrize(("rule", "files"), BROKEN, ids=lambda value: getattr(value, "__name__", None))
def test_what_breaks_a_rule_is_seen_by_it_alone(rule, files, tmp_path):
    root = build(tmp_path, files)
    assert len(rule(root)) == 1
    assert [other.__name__ for other in RULES if other is not rule and other(root)] == []


ALLOWED: Iterable[dict[str, str]] = (
    {"api.py": "x = 1\n" * 400},
    {"api.py": long_function(60)},
    {"api.py": f"class A:\n  def f({parameters('self', count=8)}): ..."},
    {"api.py": f"class A:\n  @classmethod\n  def f({parameters('cls', count=8)}): ..."},
    {"api.py": "def f(*args): g(**options)\nmodule.load_state_dict(state)\njson.load(stream)"},
    {"api.py": "import numpy\nnumpy.load('x', allow_pickle=False)"},
    {"attention/core.py": "import math\nx = -math.inf\ny = float('-inf')\nz = -1e-9\nw = 1e9\nv = -9999"},
    {"attention/core.py": "smallest = torch.finfo(scores.dtype).tiny"},
    {"serving/server.py": "import regard\nfrom regard import load\n"},
)


@pytest.mark.parametrize("files", ALLOWED)
def test_what_keeps_the_rules_is_left_alone(files, tmp_path):
    root = build(tmp_path, files)
    assert [sentence for rule in RULES for sentence in rule(root)] == []
