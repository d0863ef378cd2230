"""Contrastive search (Su et al. 2022, §3.2): likely, and unlike everything before.

    x_t = argmax over the k likeliest v of (1 − α) p(v | x_<t) − α max_j cos(h_v, h_j)

The model reads all k candidates of every row at once, a row each; the row of the one that is chosen goes on. It needs
the model's last vectors, so a stepper that is no network cannot be searched so, nor a text past a window that slides.
"""

from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import normalize

from regard.axes import Logits, RowIds, RowLogits
from regard.data.batching import Inputs
from regard.decoding.beam import check_likely, nothing_left
from regard.decoding.filters import Filter, Generated, apply
from regard.decoding.hypothesis import Stop
from regard.decoding.moment import Moment, Written, last_tokens, log_probability
from regard.decoding.sliding import Sliding
from regard.decoding.strategies import Contrastive
from regard.decoding.trace import StepWatch
from regard.errors import InputError


@runtime_checkable
class HasVectors(Protocol):
    """A stepper that tells the vectors its logits are made of: every network that decodes."""

    def start(self, inputs: Inputs) -> Any:
        """Consume the source and all of the prompt but its last token."""
        ...

    def vectors(self, ids: Int[Tensor, "rows tokens"], state: Any) -> tuple[Float[Tensor, "rows tokens width"], Any]:
        """Several tokens further, with the last vectors of each."""
        ...

    def hidden(self, inputs: Inputs) -> Float[Tensor, "batch tokens width"]:
        """The last vectors of a whole prompt."""
        ...

    def logits(self, hidden: Float[Tensor, "batch tokens width"]) -> Logits:
        """From the last vectors to the vocabulary."""
        ...


def contrast(
    stepper: Any,
    inputs: Inputs,
    strategy: Contrastive,
    stop: Stop,
    filters: tuple[Filter, ...],
    watch: StepWatch | None = None,
) -> Iterator[Moment]:
    """Choose, record, drop what has finished, go on."""
    stepper = _within(stepper, inputs, stop)
    if not isinstance(stepper, HasVectors):
        raise InputError(
            f"contrastive search compares a network's vectors, and {type(stepper).__name__} tells none",
            "use another strategy",
        )
    before = _Before(stepper, inputs)
    state, sequence = stepper.start(inputs), list(range(len(inputs.tokens.ids)))
    hidden, state = stepper.vectors(last_tokens(inputs)[:, None], state)
    rows, written = list(sequence), Written(stop, len(sequence))
    generated = Generated.begin(inputs, stop.max_new_tokens)
    for place in range(stop.max_new_tokens):
        logits = stepper.logits(hidden)[:, -1]
        scores = apply(filters, logits, generated).double()
        check_likely(logits.log_softmax(dim=-1)[:, 0])
        if bool((scores.amax(dim=-1) == -torch.inf).any()):
            raise nothing_left(place)
        likely, candidates = _likeliest(scores, strategy.top_k)
        count = candidates.shape[1]
        state = state.select(torch.arange(len(sequence), device=logits.device).repeat_interleave(count))
        read, state = stepper.vectors(candidates.reshape(-1, 1), state)
        alpha = strategy.penalty_alpha
        worth = (1 - alpha) * likely - alpha * before.alike(read.view(-1, count, read.shape[-1]))
        best = worth.masked_fill(likely == 0, -torch.inf).max(dim=-1).indices
        ids = candidates.gather(1, best[:, None]).squeeze(1)
        if watch is not None:
            watch.told(logits, generated, int(ids[0]))
        yield Moment(sequence, ids, log_probability(logits, ids), rows)
        going = torch.tensor(written.going(sequence, ids.tolist()), dtype=torch.long, device=ids.device)
        if not len(going):
            return
        chosen = (going * count + best[going]).to(ids.device)
        hidden, state = read[chosen], state.select(chosen)
        before.select(going, hidden[:, -1])
        generated = generated.then(ids).select(going)
        sequence, rows = [sequence[row] for row in going.tolist()], chosen.tolist()


def _within(stepper: Any, inputs: Inputs, stop: Stop) -> Any:
    """The model itself, where all that will be read fits into a window that would slide otherwise."""
    if not isinstance(stepper, Sliding):
        return stepper
    given, new = int(inputs.tokens.lengths.max()), stop.max_new_tokens
    if given + new > stepper.limit:
        raise InputError(
            f"contrastive search compares a whole text, and {given} tokens with {new} new ones are more than the "
            f"{stepper.limit} that the model reads at once",
            "set a smaller max_new_tokens, or use another strategy",
        )
    return stepper.stepper


class _Before:
    """The directions of all tokens that stand there, row by row."""

    def __init__(self, stepper: HasVectors, inputs: Inputs) -> None:
        self.directions = normalize(stepper.hidden(inputs), dim=-1)
        self.real: Bool[Tensor, "rows tokens"] = inputs.tokens.real

    def alike(self, vectors: Float[Tensor, "rows candidates width"]) -> Float[Tensor, "rows candidates"]:
        """Of every candidate the largest cosine with a token of its row."""
        cosines = normalize(vectors, dim=-1) @ self.directions.transpose(1, 2)
        return cosines.masked_fill(~self.real[:, None], -torch.inf).amax(dim=-1).double()

    def select(self, rows: RowIds, newest: Float[Tensor, "kept width"]) -> None:
        """These rows, each with one token more."""
        self.directions = torch.cat([self.directions[rows], normalize(newest, dim=-1)[:, None]], dim=1)
        self.real = torch.cat([self.real[rows], self.real.new_ones(len(rows), 1)], dim=1)


def _likeliest(
    scores: RowLogits, count: int
) -> tuple[Float[Tensor, "rows candidates"], Int[Tensor, "rows candidates"]]:
    """The `count` likeliest tokens of every row and their probabilities, ties to the lower id."""
    ranked = scores.softmax(dim=-1).sort(dim=-1, descending=True, stable=True)
    return ranked.values[:, :count], ranked.indices[:, :count]
