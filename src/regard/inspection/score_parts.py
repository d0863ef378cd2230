"""Why a query attends to a key: the score q·k split exactly by where its parts came from.

The vector a layer reads is a sum: the token's embedding, its position, what each head and each feed-forward network of
the layers before added, and biases. A norm divides all of them by one number; with that number frozen at its value,
norms, projections and rotary turns are linear, and `q · k` is the sum over all pairs of parts (Elhage et al. 2021, "A
mathematical framework for transformer circuits", attention as a bilinear form):

    q · k · scale  =  Σ_a Σ_b  q_a · k_b · scale                      x = Σ_a x_a,   q_a = R W_q N(x_a)

It says where the number came from, in this text. It does not say what the score would have been without a part: a part
taken out changes the norm, which is frozen here. What a bias of relative positions adds to the score is told apart.
Heads and feed-forward networks give what they gave in the run; all the rest is computed in float64, so the parts of a
run in float64 add up to its score to rounding, those of a run in bfloat16 but for that run's own rounding, which is
told as `rounding`.
"""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.attention.exact import ExactAttention
from regard.attention.mechanism import LayerContext
from regard.attention.rotary import Rotation
from regard.attention.similarity import Cosine, InnerProduct
from regard.blocks.decoder import DecoderLayer
from regard.blocks.encoder import EncoderLayer
from regard.data.batching import Inputs
from regard.errors import InputError
from regard.inspection.capture import Recording, record_into
from regard.inspection.four_steps import four_steps
from regard.inspection.intervention import AttentionPlace, attention_places, stream_places
from regard.layers.linear import Linear
from regard.layers.norm import OffsetRMSNorm
from regard.layers.residual import Residual
from regard.models.network import Network
from regard.models.positions import Positions

Parts = dict[str, Float[Tensor, "_"]]
"""Vectors by where they came from; all together they are the stream of one token."""
BIASES = "biases"


@dataclass(frozen=True, eq=False)
class ScoreParts:
    """One score, by where the query's parts and the key's came from."""

    layer: str
    head: int
    query: int
    key: int
    score: float
    """`q · k · scale`, as the run computed it."""
    bias: float
    """What relative positions add to it."""
    scale: float
    query_parts: tuple[str, ...]
    key_parts: tuple[str, ...]
    table: NDArray[Any]
    """`[query_parts, key_parts]`: the part of the score of every pair."""

    @property
    def rounding(self) -> float:
        """What the run's own rounding makes of the score, beyond the parts."""
        return self.score - float(self.table.sum())

    def by_query(self) -> list[tuple[str, float]]:
        """Each of the query's parts against the whole key, largest first."""
        return _ranked(self.query_parts, self.table.sum(axis=1))

    def by_key(self) -> list[tuple[str, float]]:
        """Each of the key's parts against the whole query, largest first."""
        return _ranked(self.key_parts, self.table.sum(axis=0))

    def pairs(self, count: int) -> list[tuple[str, str, float]]:
        """The pairs of the largest parts, of either sign."""
        order = np.argsort(-np.abs(self.table), axis=None, kind="stable")[:count]
        places = [np.unravel_index(at, self.table.shape) for at in order]
        return [(self.query_parts[a], self.key_parts[b], float(self.table[a, b])) for a, b in places]


def _ranked(names: tuple[str, ...], values: NDArray[Any]) -> list[tuple[str, float]]:
    order = np.argsort(-np.abs(values), kind="stable")
    return [(names[at], float(values[at])) for at in order]


@torch.no_grad()
def score_parts(module: Network, inputs: Inputs, layer: str, head: int, query: int, key: int) -> ScoreParts:
    """Of the one text of `inputs`, read as a whole."""
    network, place, attention = _checked(module, layer)
    place.check(head)
    run = _Run()
    with run.recorded(network), record_into(Recording(values=True), network) as seen:
        network(inputs)
    steps = four_steps(seen, layer, head, query)
    if not 0 <= key < len(steps.raw):
        raise InputError(f"row {query} of {layer} has {len(steps.raw)} keys and no key {key}", "name one of them")
    site = attention.slot.site
    assert site is not None
    reader = "encoder" if site.kind == "cross" else site.stack
    asking = _Stream(network, run, inputs, query, site.stack).up_to(site.index, site.kind)
    answering = _Stream(network, run, inputs, key, reader)
    asked = answering.whole() if site.kind == "cross" else answering.up_to(site.index, site.kind)
    context = run.contexts[layer]
    one = _in_head(attention, "query", asking, head, _turn(attention, context, query))
    many = _in_head(attention, "key", asked, head, _turn(attention, context, key))
    table, scale = _compared(attention, one, many, steps.scale)
    return ScoreParts(
        layer,
        head,
        query,
        key,
        float(steps.raw[key].double() * steps.scale),
        float(steps.bias[key]),
        scale,
        tuple(one),
        tuple(many),
        table.cpu().numpy(),
    )


def _checked(module: Network, layer: str) -> tuple[Any, AttentionPlace, ExactAttention]:
    """What a score can be split of; the rest is refused, each by its own sentence."""
    stream_places(module)
    places = attention_places(module)
    if layer not in places:
        raise InputError(f"layer {layer!r} does not attend in heads", f"use one of {', '.join(places)}")
    stack, index, kind = layer.split(".")
    attention = getattr(getattr(module, stack).layers[int(index)], f"{kind}_attention")
    if not isinstance(attention, ExactAttention):
        raise InputError(f"{type(attention).__name__} has no scores of queries and keys", "name a layer that has")
    similarity = attention.attend.similarity
    if not isinstance(similarity, InnerProduct):
        raise InputError(
            f"{type(similarity).__name__} is no dot product of a query and a key, and does not split by their parts",
            "ask a model with similarity dot, scaled_dot, general or cosine, and no softcap",
        )
    return module, places[layer], attention


@dataclass(eq=False)
class _Run:
    """What the parts were in the run: embeddings, what each head gave, what each feed-forward network did."""

    embedded: list[Tensor] = field(default_factory=list)
    heads: dict[str, Tensor] = field(default_factory=dict)
    made: dict[nn.Module, Tensor] = field(default_factory=dict)
    contexts: dict[str, LayerContext] = field(default_factory=dict)

    @contextmanager
    def recorded(self, network: Any) -> Iterator[None]:
        """Listen to one pass, in evaluation mode."""

        def embedded(_: nn.Module, __: tuple[Any, ...], out: Tensor) -> None:
            self.embedded.append(out[0].double())

        def made(module: nn.Module, _: tuple[Any, ...], out: Tensor) -> None:
            self.made[module] = out[0].double()

        handles = [network.embedding.register_forward_hook(embedded)]
        for place in attention_places(network).values():

            def keep(heads: Tensor, layer: str = place.layer) -> None:
                self.heads[layer] = heads[0].double()

            handles.append(place.on_heads(keep))
        for part in network.modules():
            if isinstance(part, EncoderLayer | DecoderLayer):
                handles.append(part.feedforward.register_forward_hook(made))
            elif isinstance(part, ExactAttention) and part.slot.site is not None:
                told = _context_keeper(self.contexts, str(part.slot.site))
                handles.append(part.register_forward_pre_hook(told, with_kwargs=True))
        training = network.training
        network.eval()
        try:
            yield
        finally:
            network.train(training)
            for handle in handles:
                handle.remove()


def _context_keeper(kept: dict[str, LayerContext], layer: str) -> Callable[..., None]:
    def keep(_: nn.Module, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        kept[layer] = options["context"] if "context" in options else args[2]

    return keep


class _Stream:
    """One token's vector on its way through a stack, as a sum of parts."""

    def __init__(self, network: Any, run: _Run, inputs: Inputs, token: int, stack: str) -> None:
        self.network, self.run, self.token, self.name = network, run, token, stack
        self.stack = getattr(network, stack)
        self.encodes = stack == "encoder"
        padded = inputs.tokens if inputs.source is None or not self.encodes else inputs.source
        ids = padded.ids[0]
        if not 0 <= token < len(ids):
            raise InputError(f"the text has {len(ids)} tokens and no token {token}", f"use 0 to {len(ids) - 1}")
        self.parts = self._entered(padded.segments)

    def _entered(self, segments: Tensor | None) -> Parts:
        """Token, position, segment; the encoder of an encoder–decoder is embedded first."""
        network = self.network
        parts = {"token": self.run.embedded[0 if self.encodes else -1][self.token]}
        positions = network.encoder_positions if self.encodes else network.decoder_positions
        assert isinstance(positions, Positions)
        if positions.absolute is not None:
            at = torch.tensor([[self.token]], device=network.device)
            parts["position"] = positions.absolute(at)[0, 0].to(network.dtype).double()
        if network.segments is not None:
            kind = 0 if segments is None else int(segments[0, self.token])
            parts["segment"] = network.segments.weight[kind].double()
        normalise = network.embedding_norm if network.target_norm is None or self.encodes else network.target_norm
        return parts if normalise is None else _normed(normalise, parts)

    def up_to(self, layer: int, kind: str) -> Parts:
        """What the attention of that layer and kind reads."""
        for index, one in enumerate(self.stack.layers):
            for name, residual, make in self._sublayers(one, index):
                if (index, name) == (layer, kind):
                    return self._enter(residual)
                self._add(residual, make())
        raise AssertionError

    def whole(self) -> Parts:
        """What the stack gives."""
        for index, one in enumerate(self.stack.layers):
            for _, residual, make in self._sublayers(one, index):
                self._add(residual, make())
        return _normed(self.stack.norm, self.parts)

    def _sublayers(
        self, layer: EncoderLayer | DecoderLayer, index: int
    ) -> Iterator[tuple[str, Residual, Callable[[], Parts]]]:
        yield "self", layer.self_residual, lambda: self._attended(layer.self_attention, f"{self.name}.{index}.self")
        if isinstance(layer, DecoderLayer) and layer.cross_attention is not None:
            cross, around = layer.cross_attention, layer.cross_residual
            assert around is not None
            yield "cross", around, lambda: self._attended(cross, f"{self.name}.{index}.cross")
        made = self.run.made
        name = f"{self.name}.{index} feed-forward"
        yield "feedforward", layer.feedforward_residual, lambda: {name: made[layer.feedforward][self.token]}

    def _attended(self, attention: nn.Module, layer: str) -> Parts:
        """What each head adds, by the output projection, and its bias."""
        heads, output = self.run.heads[layer][self.token], getattr(attention, "output", None)
        assert isinstance(output, Linear)
        by_head = output.whole_weight().double().view(-1, *heads.shape)
        each = torch.einsum("whv,hv->hw", by_head, heads)
        found = {f"{layer}:{head}": vector for head, vector in enumerate(each)}
        return found if output.bias is None else found | {BIASES: output.bias.double()}

    def _enter(self, residual: Residual) -> Parts:
        return self.parts if residual.placement == "post" else _normed(residual.norm, self.parts)

    def _add(self, residual: Residual, made: Parts) -> None:
        made = made if residual.made_norm is None else _normed(residual.made_norm, made)
        total = _summed(self.parts, made) if residual.adds else made
        self.parts = _normed(residual.norm, total) if residual.placement == "post" else total


def _summed(one: Parts, other: Parts) -> Parts:
    """Both, what came from the same place together."""
    return one | {name: one[name] + vector if name in one else vector for name, vector in other.items()}


def _normed(module: nn.Module, parts: Parts) -> Parts:
    """Every part as the norm of the whole makes it: divided by what the whole is, which is frozen."""
    if isinstance(module, nn.Identity):
        return parts
    whole = torch.stack(list(parts.values())).sum(dim=0)
    if not isinstance(module, nn.LayerNorm | nn.RMSNorm | OffsetRMSNorm):
        raise InputError(f"{type(module).__name__} is a norm that is not known to be linear", "use layer or rms")
    centred = isinstance(module, nn.LayerNorm)
    epsilon = module.epsilon if isinstance(module, OffsetRMSNorm) else module.eps
    middle = whole - whole.mean() if centred else whole
    size = (middle.pow(2).mean() + (epsilon or 0.0)).sqrt()
    weight = (1 if isinstance(module, OffsetRMSNorm) else 0) + module.weight.double()
    found = {name: (one - one.mean() if centred else one) / size * weight for name, one in parts.items()}
    bias = getattr(module, "bias", None)
    return found if bias is None else _summed(found, {BIASES: bias.double()})


def _turn(attention: ExactAttention, context: LayerContext, token: int) -> Rotation | None:
    """How the layer's heads are turned at one token."""
    rotate = attention.rotation(context)
    return rotate.of(0, slice(token, token + 1)) if isinstance(rotate, Rotation) else None


def _in_head(attention: ExactAttention, name: str, parts: Parts, head: int, turn: Rotation | None) -> Parts:
    """Every part as a query or a key of one head."""
    linear, norm = (attention.query, attention.query_norm) if name == "query" else (attention.key, attention.key_norm)
    shared = head if name == "query" else head * attention.key_value_heads // attention.heads
    rows = slice(shared * attention.head_width, (shared + 1) * attention.head_width)
    weight = linear.whole_weight()[rows].double()
    found = {place: weight @ vector for place, vector in parts.items()}
    if linear.bias is not None:
        found = _summed(found, {BIASES: linear.bias[rows].double()})
    found = found if norm is None else _normed(norm, found)
    return (
        found if turn is None else {place: turn(vector[None, None, None])[0, 0, 0] for place, vector in found.items()}
    )


def _compared(
    attention: ExactAttention, one: Parts, many: Parts, scale: float
) -> tuple[Float[Tensor, "query_parts key_parts"], float]:
    """Every part of the query with every part of the key."""
    queries, keys = torch.stack(list(one.values())), torch.stack(list(many.values()))
    similarity = copy.deepcopy(attention.attend.similarity).double()
    assert isinstance(similarity, InnerProduct)
    if isinstance(similarity, Cosine):  # its lengths are frozen as well
        return queries @ keys.T / (queries.sum(dim=0).norm() * keys.sum(dim=0).norm()), scale
    mapped, known, _ = similarity.as_dot(queries[None, None], keys[None, None])
    return (mapped @ known.transpose(-2, -1))[0, 0] * scale, scale
