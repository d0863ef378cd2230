"""Laws of attention itself: the formula, what a window sees, rows that may see nothing, and which kernel ran."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.profiler import profile

from regard.attention.cache import KeyValues
from regard.attention.core import which_kernel
from regard.attention.exact import ExactAttention, ExactShape
from regard.attention.mask import Causal, Dense, Mask, Padding
from regard.attention.multihead import Attend
from regard.blocks.config import BlockConfig
from regard.inspection.formulas import FORMULAS, attended
from regard.inspection.laws.examined import (
    Examined,
    any_part,
    difference,
    needs_attention,
    needs_forward,
    needs_network,
)
from regard.inspection.laws.law import Law, Trial
from regard.inspection.laws.reading import batch_of

WIDEST = 512
"""The largest window whose edge is looked for."""
STEEP, LARGEST_PRODUCT = 30.0, 3e4
"""What is added to queries and taken from keys, but for a product that float16 can hold."""
TILE, TILES = 64, (64, 192)
"""Kernels work on tiles of 128; half a tile is left over."""


class AttendCall(NamedTuple):
    """One call of an attention, and what came of it."""

    part: Attend
    query: Tensor
    memory: KeyValues
    mask: Mask | None
    bias: Any
    positions: Any
    output: Tensor


@contextmanager
def _hooked(module: nn.Module, kind: type[nn.Module], hook: Callable[..., None]) -> Iterator[None]:
    """A hook on every part of a kind."""
    handles = [
        part.register_forward_hook(hook, with_kwargs=True) for part in module.modules() if isinstance(part, kind)
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@torch.no_grad()
def _calls(model: Examined, trial: Trial) -> list[AttendCall]:
    """Every call of an attention while texts are read."""
    found: list[AttendCall] = []

    def keep(part: Attend, args: tuple[Any, ...], options: dict[str, Any], output: Tensor) -> None:
        query, memory = args
        mask, bias, positions = (options.get(name) for name in ("mask", "bias", "query_positions"))
        found.append(AttendCall(part, query, memory, mask, bias, positions, output))

    with _hooked(model.module, Attend, keep):
        model.module(model.together(trial.texts, trial.sources))
    return found


def _meaning(model: Examined, trial: Trial) -> float:
    """Between what a layer gave and its formula, pair by pair in float64."""
    worst = 0.0
    with torch.no_grad():
        for one in _calls(model, trial):
            expected = attended(one.part.similarity, one.query, one.memory, one.mask, one.bias, one.positions)
            worst = max(worst, difference(one.output, expected))
    return worst


def _no_formula(model: Examined) -> str | None:
    unknown = {type(part.similarity).__name__ for part in model.attentions if type(part.similarity) not in FORMULAS}
    if unknown:
        return f"no formula of {', '.join(sorted(unknown))} is written in inspection/formulas.py"
    return needs_attention(model)


def _kinds(model: Examined, trial: Trial) -> list[AttendCall]:
    """One call of each kind of attention there is: similarity, heads and widths."""
    found: dict[object, AttendCall] = {}
    for one in _calls(model, trial):
        memory = one.memory
        sizes = type(one.part), one.query.shape[1::2], memory.keys.shape[1::2], memory.values.shape[3]
        key = type(one.part.similarity), *sizes
        found.setdefault(key, one)
    return list(found.values())


def _drawn(one: AttendCall, queries: int, keys: int, dtype: torch.dtype) -> list[Tensor]:
    """Queries, keys and values for it."""
    generator = torch.Generator().manual_seed(0)
    memory = one.memory
    shapes = (one.query.shape[1], queries, one.query.shape[3]), (memory.keys.shape[1], keys, memory.keys.shape[3])
    drawn = [
        torch.randn(2, *shape, generator=generator, dtype=torch.float64)
        for shape in (*shapes, (memory.values.shape[1], keys, memory.values.shape[3]))
    ]
    return [tensor.to(one.query.device, dtype) for tensor in drawn]


def _masked_rows(model: Examined, trial: Trial) -> float:
    """The largest entry of an output, or of a gradient, from rows that may attend to nothing."""
    worst = 0.0
    for one in _kinds(model, trial):
        query, keys, values = (part.requires_grad_() for part in _drawn(one, 5, 7, one.query.dtype))
        allowed = torch.rand(2, 5, 7, generator=torch.Generator().manual_seed(1)) < 0.5
        allowed[0, 1], allowed[1, 3:] = False, False
        with torch.enable_grad():
            out = one.part(query, KeyValues(keys, values), mask=Dense(allowed.to(query.device)))
            dead = out.transpose(1, 2)[~allowed.any(dim=-1)]
            gradients = torch.autograd.grad(dead.sum(), (query, keys, values))
        worst = max(worst, *(float(part.detach().abs().max()) for part in (dead, *gradients)))
        if not all(bool(part.isfinite().all()) for part in (out, *gradients)):
            return float("inf")
    return worst


STEEP_MASKS: dict[str, Callable[[int], Mask]] = {
    "the causal mask": lambda tokens: Causal(),
    "padding": lambda tokens: Padding(torch.tensor([tokens, tokens - TILE // 2 - 1])),
    "causal, padding on the left": lambda tokens: Causal() & Padding(torch.tensor([tokens, 3]), side="left"),
}


def _steep_tried(model: Examined) -> Iterator[Trial]:
    read = batch_of(model, "", (3,))
    for how, tokens in zip(STEEP_MASKS, (*TILES, TILES[-1]), strict=True):
        yield Trial(how, read.texts, read.sources, part=f"{tokens} tokens")


def _steep(model: Examined, trial: Trial) -> float:
    """How many numbers of an output and its gradients are not finite, where all scores are very negative."""
    tokens = int(trial.part.split()[0])
    mask, broken = STEEP_MASKS[trial.how](tokens), 0
    types = dict.fromkeys([torch.float32, next(model.original.parameters()).dtype])
    for one in _kinds(model, trial):
        for dtype in types:
            if dtype != one.query.dtype and any(True for _ in one.part.similarity.parameters()):
                continue  # it compares vectors of its own type
            query, keys, values = _drawn(one, tokens, tokens, dtype)
            steep = min(STEEP, (LARGEST_PRODUCT / query.shape[-1]) ** 0.5)
            query, keys = ((part + steep * sign).detach().requires_grad_() for part, sign in ((query, 1), (keys, -1)))
            values.requires_grad_()
            with torch.enable_grad():
                out = one.part(query, KeyValues(keys, values), mask=_there(mask, query.device))
                gradients = torch.autograd.grad(out.square().sum(), (query, keys, values))
            broken += sum(int((~part.isfinite()).sum()) for part in (out, *gradients))
    return float(broken)


def _there(mask: Mask, device: torch.device) -> Mask:
    """The mask with its lengths on the device."""
    if device.type == "cpu":
        return mask
    return mask.select(torch.tensor([0, 1], device=device))


def _windows_tried(model: Examined) -> Iterator[Trial]:
    """A text longer than the window, for every layer; of a large model for one layer of each kind."""
    seen: set[object] = set()
    for layer, shape in _layers(model):
        kind = shape.model_dump_json() if model.large else str(layer.slot.site)
        if kind in seen or (shape.window or 0) > WIDEST:
            continue
        seen.add(kind)
        limit = model.config.position_limit or WIDEST + 4
        tokens = min((shape.window or 5) + 4, limit)
        sources = model.texts(tokens, seed=1) if model.reads_source else ()
        yield Trial("", model.texts(tokens), sources, part=str(layer.slot.site))


def _layers(model: Examined) -> Iterator[tuple[ExactAttention, ExactShape]]:
    """The self-attentions that attend exactly, with what the config says of each."""
    config = model.config
    for part in model.module.modules():
        if isinstance(part, ExactAttention) and part.slot.site is not None and not part.slot.cross:
            shape = config.mechanism(part.slot.site) if isinstance(config, BlockConfig) else None
            if isinstance(shape, ExactShape):
                yield part, shape


def _windows(model: Examined, trial: Trial) -> float:
    """Between how many tokens a query reads in a layer, by its gradient, and how many the config lets it read."""
    layer, shape = next(one for one in _layers(model) if str(one[0].slot.site) == trial.part)
    told: list[Any] = []
    handle = layer.register_forward_pre_hook(lambda _, args: told.append(args))
    try:
        with torch.no_grad():
            model.module(model.together(trial.texts, trial.sources))
    finally:
        handle.remove()
    inputs, _, context = told[0]
    generator = torch.Generator().manual_seed(0)
    drawn = 0.1 * torch.randn(inputs.shape, generator=generator, dtype=torch.float64)
    leaf = drawn.to(inputs.device, inputs.dtype).requires_grad_()
    tokens, worst = leaf.shape[1], 0
    for row in {tokens - 1, tokens // 2, 0}:
        with torch.enable_grad():
            out, _ = layer(leaf, None, context)
            direction = torch.randn(out.shape[-1], generator=generator, dtype=torch.float64).to(out)
            [gradient] = torch.autograd.grad((out[0, row] * direction).sum(), [leaf])
        size = shape.window or tokens
        behind = 0 if layer.slot.causal else min(tokens - 1 - row, size - 1)
        worst = max(worst, abs(int((gradient[0] != 0).any(-1).sum()) - (min(row, size - 1) + 1 + behind)))
    return float(worst)


def _no_windows(model: Examined) -> str | None:
    if (reason := needs_network(model) or needs_forward(model)) is not None:
        return reason
    if not any(True for _ in _layers(model)):
        return "it has no layer of exact attention"
    narrow = any((shape.window or 0) <= WIDEST for _, shape in _layers(model))
    return None if narrow else f"its windows are wider than {WIDEST} tokens, beyond what is tried"


SDPA = "aten::scaled_dot_product_attention"


def _ran(name: str, found: set[str]) -> bool:
    """Whether the operations that ran are those of a kernel."""
    fused = SDPA in found
    marks = {
        "reference": not fused,
        "bmm": not fused and "aten::baddbmm" in found,
        "gathered": fused and "aten::index_select" in found,
        "sdpa": fused and not any("cudnn" in one for one in found),
        "cudnn": any("cudnn" in one for one in found),
    }
    return marks.get(name, not fused)


@torch.no_grad()
def _kernel(model: Examined, trial: Trial) -> float:
    """How many kinds of calls did not run on the kernel that `which_kernel` names; by a profiler."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else the profiler tells stderr when it starts and stops
    wrong = 0
    for one in _kinds(model, trial):
        if type(one.part) is not Attend or one.query.shape[2] == 1:
            continue  # a single query is always one fused call
        named = which_kernel(
            one.query,
            one.memory.keys,
            one.memory.values,
            similarity=one.part.similarity,
            mask=one.mask,
            bias=one.bias,
            query_positions=one.positions,
        ).name
        with profile(use_kineto=False) as seen:
            one.part(one.query, one.memory, mask=one.mask, bias=one.bias, query_positions=one.positions)
        wrong += not _ran(named, {event.key for event in seen.key_averages()})
    return float(wrong)


def _no_kernel(model: Examined) -> str | None:
    reason = needs_attention(model)
    return reason or (None if any_part(model, Attend) else "it does not call regard.attend")


ATTENDING = (
    Law(
        "meaning",
        "Every attention layer computes the formula of its similarity, masked, written out in float64.",
        lambda model: [batch_of(model)],
        _meaning,
        {"": "a layer computes something else: the scale, the softmax or the mask is not that of its formula"},
        unfit=_no_formula,
    ),
    Law(
        "windows",
        "A query reads exactly the keys that the layer's window lets it, counted by its gradient.",
        _windows_tried,
        _windows,
        {"": "the window is off by one or more, looks the other way, or is that of another layer"},
        tolerance=0.5,
        unit="keys too many or too few",
        unfit=_no_windows,
        sample="one layer of each kind",
        shrinks=False,
    ),
    Law(
        "masked_rows",
        "A row that may attend to nothing gives exact zeros, forward and backward.",
        lambda model: [batch_of(model, "", (3, 2))],
        _masked_rows,
        {"": "a softmax over nothing: a large number stands for minus infinity, or 0/0 is not caught"},
        tolerance=0.0,
        unit="largest entry",
        unfit=needs_attention,
        shrinks=False,
    ),
    Law(
        "steep_gradients",
        "Gradients stay finite for texts of half a tile more (64 and 192 tokens), masked, with very negative scores.",
        _steep_tried,
        _steep,
        {"": "what fills up the last tile of 128 counts as a score of 0 and overflows beside very negative ones"},
        tolerance=0.0,
        unit="numbers that are not finite",
        unfit=needs_attention,
        shrinks=False,
    ),
    Law(
        "kernel",
        "The kernel that ran is the one that `which_kernel` named, by the operations a profiler saw.",
        lambda model: [batch_of(model), batch_of(model, "", (5,))],
        _kernel,
        {"": "the choice and the call do not go through the same rule: another kernel ran than was named"},
        tolerance=0.0,
        unit="kinds of calls",
        unfit=_no_kernel,
    ),
)
