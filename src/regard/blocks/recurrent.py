"""Layers that read a text one token after another: PyTorch's RNN, LSTM and GRU, over whole texts with padding left out.

    rnn    h_t = tanh(W x_t + U h_{t−1})                        Elman 1990
    lstm   the same behind three gates, with a cell c_t beside h_t   Hochreiter and Schmidhuber 1997; Gers et al. 2000
    gru    the same behind two gates                            Cho et al. 2014, §2.3

`RecurrentStack` runs layers over a text in one call each. `ContextCells` goes step by step, where what a step reads
depends on the state before it. A state is a tuple of `[layers, rows, width]`: hidden vectors, and an LSTM's cells.
"""

from collections.abc import Callable
from typing import Literal, TypeVar, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from regard.axes import Hidden
from regard.data.batching import Padded
from regard.layers.dropout import Dropout
from regard.layers.linear import Linear

CellKind = Literal["rnn", "lstm", "gru"]
CellState = tuple[Float[Tensor, "layers rows width"], ...]
LayerStates = list[tuple[Float[Tensor, "rows width"], ...]]
"""The same, layer by layer."""
LAYERS: dict[str, Callable[..., nn.Module]] = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}
CELLS: dict[str, Callable[..., nn.Module]] = {"rnn": nn.RNNCell, "lstm": nn.LSTMCell, "gru": nn.GRUCell}
STATES = {"rnn": 1, "lstm": 2, "gru": 1}
"""Vectors that a cell keeps from step to step."""
GATES = {"rnn": 1, "lstm": 4, "gru": 3}
"""Vectors that a cell makes of its input."""
Stream = TypeVar("Stream", Tensor, PackedSequence)


class RecurrentStack(nn.Module):
    """Layers over whole texts, in one direction or in both, with dropout between them."""

    def __init__(
        self, cell: CellKind, inputs: int, width: int, layers: int, dropout: float, *, bidirectional: bool = False
    ) -> None:
        super().__init__()
        between = width * (1 + bidirectional)
        self.layers = nn.ModuleList(
            LAYERS[cell](between if index else inputs, width, batch_first=True, bidirectional=bidirectional)
            for index in range(layers)
        )
        self.dropout = Dropout(dropout)

    def forward(
        self,
        inputs: Float[Tensor, "rows tokens inputs"],
        state: CellState | None = None,
        padded: Padded | None = None,
    ) -> tuple[Float[Tensor, "rows tokens outputs"], CellState]:
        """The last layer's vectors and every layer's state after each row's last token.

        With `padded`, which says where the rows have their tokens, padding is passed over: its vectors are zero, it
        leaves the state as it is, and in the other direction a text begins at its own end. Of both directions the
        states of a layer stand one behind the other.
        """
        if padded is None or not padded.ragged:
            return self._through(inputs, state)
        lengths = padded.lengths.cpu()
        begin = None if padded.side == "right" else padded.ids.shape[1] - padded.lengths
        aligned = inputs if begin is None else _shifted(inputs, begin)
        packed = pack_padded_sequence(aligned, lengths.clamp(min=1), batch_first=True, enforce_sorted=False)
        packed, after = self._through(packed, state)
        out, _ = pad_packed_sequence(packed, batch_first=True, total_length=inputs.shape[1])
        if int(lengths.min()) == 0:
            some = padded.lengths[:, None] > 0
            before = state or tuple(torch.zeros_like(one) for one in after)
            after = tuple(torch.where(some, new, old) for new, old in zip(after, before, strict=True))
            out = out * some[:, :, None]
        return (out if begin is None else _shifted(out, -begin)), after

    def _through(self, stream: Stream, state: CellState | None) -> tuple[Stream, CellState]:
        """Layer by layer."""
        reached: list[CellState] = []
        for index, layer in enumerate(self.layers):
            if index:
                stream = self._drop(stream)
            given = None if state is None else tuple(one[index : index + 1].contiguous() for one in state)  # for cuDNN
            stream, last = layer(stream, given if given is None or len(given) > 1 else given[0])
            reached.append(last if isinstance(last, tuple) else (last,))
        return stream, tuple(torch.cat(parts) for parts in zip(*reached, strict=True))

    def _drop(self, stream: Stream) -> Stream:
        if isinstance(stream, Tensor):
            out: Tensor = self.dropout(stream)
            return out
        return stream._replace(data=self.dropout(stream.data))


class ContextCells(nn.Module):
    """Layers of cells that go one step at a time; the first reads an embedding and a context, the others the one below.

    What the first makes of the embeddings is known before the first step: `read` computes it for all steps at once.
    """

    def __init__(
        self, cell: CellKind, embedding_width: int, context_width: int, width: int, layers: int, dropout: float
    ) -> None:
        super().__init__()
        self.kind = cell
        self.cells = nn.ModuleList(CELLS[cell](width if index else embedding_width, width) for index in range(layers))
        self.of_context = Linear(context_width, GATES[cell] * width, bias=False)
        self.dropout = Dropout(dropout)

    def read(self, embedded: Float[Tensor, "rows tokens embedding"]) -> Float[Tensor, "rows tokens gates"]:
        """The part of the first cell's gates that comes from the embeddings."""
        first = self._cells()[0]
        return F.linear(embedded, first.weight_ih, first.bias_ih)

    def forward(
        self, read: Float[Tensor, "rows gates"], context: Float[Tensor, "rows context"], state: LayerStates
    ) -> LayerStates:
        """The state one step further."""
        reached: LayerStates = []
        below = read + self.of_context(context)
        for index, (cell, own) in enumerate(zip(self._cells(), state, strict=True)):
            if index:
                below = F.linear(self.dropout(reached[-1][0]), cell.weight_ih, cell.bias_ih)
            reached.append(_step(self.kind, below, F.linear(own[0], cell.weight_hh, cell.bias_hh), own))
        return reached

    def _cells(self) -> list[nn.RNNCellBase]:
        return cast(list[nn.RNNCellBase], list(self.cells))


def _step(kind: CellKind, inputs: Tensor, hidden: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """One cell's new state, from what its matrices made of the input and of the hidden vector, in PyTorch's order.

    Gates are cut by `split`, whose gradient is one tensor: that of every slice by index would be a whole one.
    """
    if kind == "rnn":
        return (torch.tanh(inputs + hidden),)
    width = state[0].shape[-1]
    if kind == "gru":
        both, new = torch.split(inputs, [2 * width, width], dim=-1)
        both_hidden, new_hidden = torch.split(hidden, [2 * width, width], dim=-1)
        reset, update = (both + both_hidden).sigmoid().chunk(2, dim=-1)
        return (torch.lerp(torch.tanh(torch.addcmul(new, reset, new_hidden)), state[0], update),)
    enter, forget, new, out = (inputs + hidden).chunk(4, dim=-1)
    kept = torch.addcmul(forget.sigmoid() * state[1], enter.sigmoid(), new.tanh())
    return out.sigmoid() * kept.tanh(), kept


def _shifted(vectors: Hidden, by: Int[Tensor, "batch"]) -> Hidden:
    """Every row moved to the left by so many places; what leaves it there comes back on the right."""
    tokens = vectors.shape[1]
    places = (torch.arange(tokens, device=vectors.device) + by[:, None]) % tokens
    return vectors.gather(1, places[:, :, None].expand_as(vectors))


def init_recurrent(module: nn.Module) -> None:
    """Recurrent matrices orthogonal, gate by gate (Saxe et al. 2013), those of inputs as Glorot and Bengio (2010) draw
    them, biases zero but an LSTM's forget gate, whose sum is 1 (Jozefowicz et al. 2015): it begins by remembering.
    """
    for part in module.modules():
        if isinstance(part, ContextCells):
            _init_gates(part.of_context.weight.data, "weight_ih", len(part.of_context.weight) // GATES[part.kind])
        elif isinstance(part, nn.RNNBase | nn.RNNCellBase):
            for name, parameter in part.named_parameters():
                _init_gates(parameter.data, name, part.hidden_size)


def _init_gates(values: Tensor, kind: str, width: int) -> None:
    gates = [values[first : first + width] for first in range(0, len(values), width)]
    for index, gate in enumerate(gates):
        if kind.startswith("weight_hh"):
            nn.init.orthogonal_(gate)
        elif kind.startswith("weight_ih"):
            nn.init.xavier_uniform_(gate)
        else:
            nn.init.constant_(gate, float(len(gates) == 4 and index == 1 and kind.startswith("bias_ih")))
