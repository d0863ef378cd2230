"""Scaled dot-product attention (Vaswani et al. 2017, §3.2.1), in its four visible steps.

    1. scores   Q·Kᵀ            how alike each query is to each key
    2. scale    ÷ √d_k          so that their variance stays 1
    3. softmax                  positive weights that sum to 1
    4. sum      weights · V     the values, mixed

`weights` is steps 1–3 and `reference` all four: they are the meaning, and every kernel is compared with them.
`attend` computes the same by the fastest kernel that can; `which_kernel` says which and why. The paper's Q, K, V are
`query`, `key`, `value`; n is `queries`, m is `keys`. Projections and heads are in `multihead.py`.
"""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.attention.bias import Bias
from regard.attention.bmm import Bmm
from regard.attention.flex import Flex
from regard.attention.gathered import Gathered
from regard.attention.kernels import Call, Cudnn, Kernel, KernelChoice, Sdpa, choose_kernel
from regard.attention.lowering import bias_values, dense_table, fully_masked, fully_masked_rows
from regard.attention.mask_algebra import Grid, Mask, MaskMod, Positions, Shape, as_mask
from regard.attention.similarity import Similarity, resolve
from regard.axes import Attended, Key, Query, Value
from regard.errors import InputError, NotFiniteError
from regard.layers.dropout import drop


def weights(
    query: Query,
    key: Key,
    *,
    similarity: str | Similarity = "scaled_dot",
    mask: Mask | MaskMod | None = None,
    bias: Bias | Tensor | None = None,
    rows: Int[Tensor, "rows"] | None = None,
    query_positions: Positions | None = None,
) -> Float[Tensor, "batch heads rows keys"]:
    """What every query pays to every key: positive, each row summing to 1, or all zeros where nothing is allowed.

    With `rows`, only those rows of the queries, exactly as they are in the whole: a row is one softmax; −1 is the last.
    `query_positions` says where each query stands among the keys (see `attend`).
    """
    mask = None if mask is None else as_mask(mask)
    check_tensors({"queries": query, "keys": key})
    found = resolve(similarity, query.shape[-1])
    check_scores(query, key, found, mask, bias, query_positions)
    shape = (*query.shape[:3], key.shape[2])
    if rows is not None:
        rows = torch.where(rows < 0, rows + shape[2], rows)
        query = query[:, :, rows]
        if isinstance(bias, Tensor) and bias.dim() > 1 and bias.shape[-2] > 1:
            bias = bias[..., rows, :]
    scores = share_heads(query, key, found.scores)
    if bias is not None:
        scores = scores + bias_values(bias, Grid.of(shape, query.device, rows, query_positions), scores.dtype)
    if mask is not None:
        scores = scores.where(_allowed(mask, shape, query.device, rows, query_positions), -torch.inf)
    kept = rows is None and query_positions is None
    if bias is None and (mask is None or (kept and fully_masked_rows(mask, shape, query.device) is None)):
        return scores.softmax(dim=-1)
    nothing = fully_masked(scores)  # a softmax over nothing is 0/0: such rows are zero instead
    return scores.masked_fill(nothing, 0.0).softmax(dim=-1).masked_fill(nothing, 0.0)


def _allowed(mask: Mask, shape: Shape, device: torch.device, rows: Tensor | None, positions: Tensor | None) -> Tensor:
    """The rows of the table; of the whole one, where it is kept."""
    if rows is None:
        return dense_table(mask, shape, device, positions)
    return mask.dense(shape, device, rows, positions)


def share_heads(query: Tensor, shared: Tensor, operation: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Apply `operation(query, shared)` where groups of query heads share one of the fewer heads of `shared`.

    The group is folded into the queries axis, so the shared heads are never repeated in memory.
    """
    batch, heads, queries, _ = query.shape
    kv_heads = shared.shape[1]
    folded = query.reshape(batch, kv_heads, (heads // kv_heads) * queries, -1)
    return operation(folded, shared).reshape(batch, heads, queries, -1)


class Reference(Kernel):
    """The four steps as they are written: any similarity, any mask, n×n in memory."""

    name = "reference"

    def unsupported(self, call: Call) -> str | None:
        """Nothing."""
        return None

    def why(self, call: Call) -> str:
        """It is what is left."""
        return "the four steps as written run anything"

    def run(self, call: Call) -> Attended:
        """weights · V."""
        attention = weights(
            call.query,
            call.key,
            similarity=call.similarity,
            mask=call.mask,
            bias=call.bias,
            query_positions=call.positions,
        )
        return share_heads(drop(attention, call.dropout), call.value, torch.matmul)


KERNELS: tuple[Kernel, ...] = (Cudnn(), Flex(), Gathered(), Bmm(), Sdpa(), Reference())


def attend(
    query: Query,
    key: Key,
    value: Value,
    *,
    similarity: str | Similarity = "scaled_dot",
    mask: Mask | MaskMod | None = None,
    bias: Bias | Tensor | None = None,
    dropout: float = 0.0,
    kernel: str | None = None,
    query_positions: Positions | None = None,
) -> Attended:
    """Attention by the fastest kernel that can: `softmax(similarity(Q, K) + bias, where mask allows) · V`.

    Fewer key/value heads than query heads are shared among them if they divide them (multi-query, grouped-query). The
    mask may be a function `(batch, head, query, key) -> bool` of index tensors that broadcast.

    Masks and biases count queries in the keys' numbering, and the queries stand at the end of the keys. Where they
    stand elsewhere, as in a cache with room behind its last token, `query_positions` says it: `[queries]`, or
    `[batch, queries]` where sequences differ. Keys beyond a sequence's own are hidden by a mask: `Causal()` hides what
    stands behind a query, `Padding(lengths)` what stands behind a text.
    """
    call = checked(query, key, value, similarity, mask, bias, dropout, query_positions)
    return choose_kernel(call, KERNELS, kernel)[0].run(call)


def which_kernel(
    query: Query,
    key: Key,
    value: Value,
    *,
    similarity: str | Similarity = "scaled_dot",
    mask: Mask | MaskMod | None = None,
    bias: Bias | Tensor | None = None,
    dropout: float = 0.0,
    kernel: str | None = None,
    query_positions: Positions | None = None,
) -> KernelChoice:
    """Which kernel `attend` would take for this call, why, and why not the others; nothing is run."""
    call = checked(query, key, value, similarity, mask, bias, dropout, query_positions)
    chosen, refused = choose_kernel(call, KERNELS, kernel)
    return KernelChoice(chosen.name, "forced by name" if kernel else chosen.why(call), dict(refused))


def checked(
    query: Query,
    key: Key,
    value: Value,
    similarity: str | Similarity,
    mask: Mask | MaskMod | None,
    bias: Bias | Tensor | None,
    dropout: float,
    positions: Positions | None = None,
) -> Call:
    """The call; what does not fit is refused in one sentence, before a kernel says it in its own words."""
    check_tensors({"queries": query, "keys": key, "values": value})
    found = None if mask is None else as_mask(mask)
    call = Call(query, key, value, resolve(similarity, query.shape[-1]), found, bias, dropout, positions)
    check_shapes(call)
    return call


def check_shapes(call: Call) -> None:
    """Refuse queries, keys, values and a dropout that do not belong together."""
    check_scores(call.query, call.key, call.similarity, call.mask, call.bias, call.positions)
    check_numbers(call.query)
    if not 0 <= call.dropout < 1:
        raise InputError(f"dropout {call.dropout} is not a probability below 1", "use one in [0, 1)")
    if call.value.shape[:3] != call.key.shape[:3]:
        raise InputError(
            f"values shaped {tuple(call.value.shape)} do not belong to keys shaped {tuple(call.key.shape)}",
            "give one value per key and head",
        )


def check_scores(
    query: Query,
    key: Key,
    similarity: Similarity,
    mask: Mask | None,
    bias: Bias | Tensor | None,
    positions: Positions | None = None,
) -> None:
    """Refuse queries and keys that cannot be compared, and a mask, a bias or positions made for others."""
    (batch, heads, queries, width), (key_batch, kv_heads, keys, key_width) = query.shape, key.shape
    if batch != key_batch:
        raise InputError(
            f"queries of {batch} sequences cannot meet keys of {key_batch}", "give every sequence keys of its own"
        )
    if (width, key_width) != (similarity.widths or (width, width)):
        raise InputError(
            f"queries of width {width} cannot be compared with keys of width {key_width}",
            "make them equal"
            if similarity.widths is None
            else "this {} was made for {} and {}".format(type(similarity).__name__, *similarity.widths),
        )
    if heads % kv_heads:
        raise InputError(
            f"{kv_heads} key/value heads do not divide {heads} query heads",
            "use a divisor, such as 1 or the same",
        )
    shape = (batch, heads, queries, keys)
    if positions is not None:
        check_positions(positions, shape, query.device)
    if mask is not None:
        mask.fits(shape)
    if isinstance(bias, Bias) and bias.heads != heads:
        raise InputError(f"a bias made for {bias.heads} heads does not fit {heads}", "make one for as many heads")
    if isinstance(bias, Tensor) and not broadcasts(bias, shape):
        raise InputError(
            f"a bias shaped {tuple(bias.shape)} does not fit scores shaped {shape}",
            "give it that shape; an axis of size 1 is shared",
        )


def check_positions(positions: Positions, shape: Shape, device: torch.device) -> None:
    """Refuse positions that are no whole numbers, of other queries or elsewhere; which numbers is not looked at."""
    batch, _, queries, _ = shape
    wanted = f"use a tensor of whole numbers shaped [{queries}] or [{batch}, {queries}] on {device}"
    if not isinstance(positions, Tensor) or positions.dtype not in (torch.int32, torch.int64):
        what = str(positions.dtype) if isinstance(positions, Tensor) else type(positions).__name__
        raise InputError(f"the queries' positions are {what}", wanted)
    if positions.device != device:
        raise InputError(f"the queries' positions are on {positions.device} and the queries on {device}", wanted)
    if tuple(positions.shape) not in ((queries,), (1, queries), (batch, queries)):
        raise InputError(f"positions shaped {tuple(positions.shape)} do not say where {queries} queries stand", wanted)


def check_tensors(named: dict[str, Tensor]) -> None:
    """Refuse what is not a floating-point tensor of four axes, or of another type or device than the first."""
    first, *_ = named.values()
    for name, one in named.items():
        if not isinstance(one, Tensor) or one.dim() != 4 or not one.dtype.is_floating_point:
            what = f"{one.dtype} with {one.dim()} axes" if isinstance(one, Tensor) else type(one).__name__
            raise InputError(
                f"the {name} are {what}", "give floating-point tensors shaped [batch, heads, tokens, head_width]"
            )
        if (one.dtype, one.device) != (first.dtype, first.device):
            raise InputError(
                f"the {name} are {one.dtype} on {one.device} and the queries {first.dtype} on {first.device}",
                "bring them together with .to(...)",
            )
        if 0 in one.shape:
            raise InputError(f"the {name} are shaped {tuple(one.shape)}", "give at least one of each")


def broadcasts(tensor: Tensor, shape: tuple[int, ...]) -> bool:
    """Whether the tensor, with missing axes on the left, spreads over exactly this shape."""
    sizes = (*(1,) * (len(shape) - tensor.dim()), *tensor.shape)
    return len(sizes) == len(shape) and all(one in (1, other) for one, other in zip(sizes, shape, strict=True))


def check_numbers(query: Query) -> None:
    """Refuse queries that hold NaN or infinity; on a CPU, where looking costs next to nothing."""
    if query.device.type != "cpu" or torch.compiler.is_compiling():
        return
    if not math.isfinite(query.detach().sum()) and not query.isfinite().all():  # finite ones may have no finite sum
        raise NotFiniteError(
            "the queries hold NaN or infinity",
            "look where they come from: inputs and weights; in training, lower the learning rate",
        )
