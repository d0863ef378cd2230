"""Recurrent sequence-to-sequence: an encoder and a decoder of recurrent layers, and a context between them.

    seq2seq    one context for all steps: c = tanh(V · end), s_t = f([y_{t−1}; c], s_{t−1}), g(s_t, y_{t−1}, c)
               Cho et al. 2014, §2.2 and A.1
    bahdanau   c_t = Σ_j softmax_j score(s_{t−1}, h_j) h_j, s_t = f([y_{t−1}; c_t], s_{t−1}), g(s_t, y_{t−1}, c_t)
               Bahdanau et al. 2014, §3.1 and A.2
    luong      s_t = f(y_{t−1}, s_{t−1}), c_t = Σ_j softmax_j score(s_t, h_j) h_j, tanh(W [c_t; s_t])
               Luong et al. 2015, §3, global attention, without input feeding (§3.3)

y_{t−1} stands for its embedding and s_t, where there are layers, for the last one's. `end` is the encoder's state after
the last token, in both directions where it reads both; Bahdanau's is that of the reverse one alone where there is one.
The first states of all layers are tanh(W · end), an LSTM's cells too; of seq2seq they come from the context: tanh(W c).
The readout g is tanh(U [s_t; y_{t−1}; c_t] + b), where the 2014 papers have a maxout and s_{t−1}. Its vectors have the
width of the embeddings, whose table, or one of its own, makes logits of them.
"""

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.attention.cache import KeyValues
from regard.attention.mask import Mask, Padding
from regard.axes import Hidden, Lengths, Logits, RowIds
from regard.blocks.alignment import Alignment
from regard.blocks.recurrent import STATES, CellState, ContextCells, LayerStates, RecurrentStack, init_recurrent
from regard.data.batching import Inputs, Padded
from regard.embedding.tokens import TokenEmbedding
from regard.errors import InputError
from regard.layers.dropout import Dropout
from regard.layers.linear import Linear
from regard.models.estimates import Estimates
from regard.models.network import Network, register_network
from regard.models.recurrent_config import (
    AttentionalConfig,
    BahdanauConfig,
    BahdanauShape,
    LuongConfig,
    LuongShape,
    RecurrentConfig,
    Seq2SeqConfig,
    Seq2SeqShape,
)

ALIGNED = 64
"""Bytes that PyTorch's own memory on a CPU begins at a multiple of."""
Ends = Float[Tensor, "directions rows state_width"]
"""The encoder's last states in each direction."""


@dataclass(frozen=True, eq=False)
class RecurrentState:
    """What decoding has come to: the cells' state, and what was read of the source, as one context or all of it."""

    config: RecurrentConfig
    cells: CellState
    context: Float[Tensor, "rows context"] | None = None
    memory: KeyValues | None = None
    mask: Mask | None = None
    source: RowIds | None = None
    """Which memory each row has."""

    def copy(self) -> "RecurrentState":
        """The same: it is a value."""
        return self

    def trim(self, lengths: Lengths) -> "RecurrentState":
        """Refused: what was read is one vector."""
        raise InputError("a recurrent state keeps no single tokens to go back to", "read them again from the start")

    def select(self, rows: RowIds) -> "RecurrentState":
        """These rows, in this order; beams that change places within a sequence leave its memory where it is."""
        cells = tuple(one[:, rows] for one in self.cells)
        if self.memory is None:
            return replace(self, cells=cells, context=None if self.context is None else self.context[rows])
        before = self.source
        if before is None:
            before = torch.arange(len(self.memory.keys), device=rows.device)
        source = before[rows]
        if torch.equal(source, before):
            return replace(self, cells=cells, source=source)
        mask = None if self.mask is None else self.mask.select(rows)
        return replace(self, cells=cells, memory=self.memory.select(rows), mask=mask, source=source)


class RecurrentNetwork(Network):
    """What the three share: an encoder, the decoder's first state, a readout. Each adds its decoder and its step."""

    config: RecurrentConfig
    parts = ("embedding", "encoder", "decoder", "attention", "output")

    def __init__(self, config: RecurrentConfig, *, end_width: int, readout_width: int) -> None:
        super().__init__()
        self.config = config
        self.embedding = TokenEmbedding(config.vocabulary, config.token_width)
        self.dropout = Dropout(config.dropout)
        self.encoder = RecurrentStack(
            config.cell,
            config.token_width,
            config.width,
            config.layers,
            config.dropout,
            bidirectional=config.bidirectional,
        )
        self.first = Linear(end_width, STATES[config.cell] * config.layers * config.width)
        self.readout = Linear(readout_width, config.token_width)
        self.output = None if config.tie_embeddings else Linear(config.token_width, config.vocabulary, bias=False)
        self.register_load_state_dict_post_hook(_align)  # type: ignore[no-untyped-call]

    def hidden(self, inputs: Inputs) -> Hidden:
        """What the output reads, for every token of the target."""
        _require_one_text(inputs.tokens)
        before_all = inputs.tokens if inputs.tokens.ragged and inputs.tokens.side == "left" else None
        return self.advance(inputs.tokens.ids, self.read(inputs.source), before_all)[0]

    def logits(self, hidden: Float[Tensor, "batch tokens width"]) -> Logits:
        """How well each token of the vocabulary comes next."""
        if self.output is None:
            return self.embedding.logits(hidden)
        out: Logits = self.output(hidden)
        return out

    def start(self, inputs: Inputs) -> RecurrentState:
        """Consume the source and all of the prompt but its last token, which the first `step` gets."""
        tokens = inputs.tokens
        _require_one_text(tokens)
        if tokens.ragged and tokens.side == "right":
            tokens = Padded.of(tokens.rows(), side="left").to(tokens.ids.device)
        state = self.read(inputs.source)
        prompt = replace(tokens, ids=tokens.ids[:, :-1], lengths=tokens.lengths - 1, side="left", segments=None)
        return self.advance(prompt.ids, state, prompt)[1] if prompt.ids.shape[1] else state

    def extend(
        self, ids: Int[Tensor, "rows tokens"], state: Any
    ) -> tuple[Float[Tensor, "rows tokens vocab"], RecurrentState]:
        """Several tokens further at once, with the logits after each."""
        given = state.config if isinstance(state, RecurrentState) else None
        if given is not self.config and given != self.config:
            raise InputError(
                f"a {self.config.name} network cannot go on from the state of another",
                "give `extend` and `step` a state that `start` of the same network began",
            )
        hidden, state = self.advance(ids, state)
        return self.logits(hidden), state

    def vectors(
        self, ids: Int[Tensor, "rows tokens"], state: Any
    ) -> tuple[Float[Tensor, "rows tokens width"], RecurrentState]:
        """What the output reads, in place of the logits."""
        return self.advance(ids, state)

    def read(self, source: Padded | None) -> RecurrentState:
        """The state before any token: the source read."""
        if source is None:
            raise InputError(f"a {self.config.name} network needs a source", "give `Inputs(tokens, source)`")
        _require_one_text(source)
        if source.ids.shape[1] == 0 or (source.ragged and int(source.lengths.min()) == 0):
            raise InputError("a source of no tokens has nothing to be read", "give every row a source")
        memory, states = self.encoder(self.dropout(self.embedding(source.ids)), padded=source)
        ends = states[0][-2:] if self.config.bidirectional else states[0][-1:]
        return self.begin(source, memory, ends)

    def part(self, parameter: str) -> str:
        """Of which part a parameter is: the maps between the two are the decoder's, the readout the output's."""
        places = {"alignment": "attention", "readout": "output", "first": "decoder", "context": "decoder"}
        return places.get(name := parameter.split(".", maxsplit=1)[0], name)

    def estimates(self, context: int) -> Estimates:
        """A token of the source and one of the target; what is computed once for a text is shared by its tokens."""
        tied = 0 if self.output is not None else self.embedding.plain_weight().numel()
        once = sum(one.weight.numel() for one in self.once())
        named = self.named_parameters()
        met = sum(one.numel() for name, one in named if one.dim() >= 2 and self.part(name) != "embedding")
        return Estimates(
            work=2.0 * (met - once + once / context + tied),
            tied=tied,
            formulas=(
                ("a token", "one of the source and one of the target"),
                ("work", "2 × the weights of matrices"),
                ("state", "layers × width numbers for a text, however long; of LSTMs twice that"),
            ),
        )

    def once(self) -> list[Linear]:
        """What multiplies once for a text."""
        return [self.first]

    def first_state(self, end: Float[Tensor, "rows end"]) -> CellState:
        """Of all layers of the decoder."""
        states = self.first(end).tanh().unflatten(1, (-1, self.config.layers, self.config.width))
        return tuple(one.transpose(0, 1) for one in states.unbind(1))

    def read_out(self, *parts: Float[Tensor, "rows tokens _"]) -> Hidden:
        """`tanh(U [parts] + b)`."""
        out: Hidden = self.dropout(self.readout(torch.cat(parts, dim=-1)).tanh())
        return out

    @abstractmethod
    def begin(self, source: Padded, memory: Hidden, ends: Ends) -> RecurrentState:
        """The state before any token, from the encoder's vectors and its last states in each direction."""

    @abstractmethod
    def advance(
        self, ids: Int[Tensor, "rows tokens"], state: RecurrentState, padded: Padded | None = None
    ) -> tuple[Float[Tensor, "rows tokens width"], RecurrentState]:
        """What the output reads after each of the next tokens, and the state after them; `padded` has them between
        places that are none and leave the state as it is.
        """


class Seq2Seq(RecurrentNetwork):
    """Recurrent sequence-to-sequence with a fixed context, which enters every step and the readout."""

    def __init__(self, config: Seq2SeqConfig) -> None:
        context, tokens, width = config.width, config.token_width, config.width
        super().__init__(config, end_width=context, readout_width=width + tokens + context)
        self.context = Linear(config.memory_width, context)
        self.decoder = RecurrentStack(config.cell, tokens + context, width, config.layers, config.dropout)
        _init_weights(self)

    def once(self) -> list[Linear]:
        """The context's too."""
        return [self.first, self.context]

    def begin(self, source: Padded, memory: Hidden, ends: Ends) -> RecurrentState:
        """The context, and the states that come from it."""
        context = self.context(torch.cat(tuple(ends), dim=-1)).tanh()
        return RecurrentState(self.config, self.first_state(context), context)

    def advance(
        self, ids: Int[Tensor, "rows tokens"], state: RecurrentState, padded: Padded | None = None
    ) -> tuple[Float[Tensor, "rows tokens width"], RecurrentState]:
        """All steps in one call."""
        assert state.context is not None
        embedded = self.dropout(self.embedding(ids))
        context = state.context[:, None].expand(-1, ids.shape[1], -1)
        out, cells = self.decoder(torch.cat((embedded, context), dim=-1), state.cells, padded)
        return self.read_out(out, embedded, context), replace(state, cells=cells)


class AttentionalNetwork(RecurrentNetwork):
    """One whose context is what attention reads of the encoder's states."""

    config: AttentionalConfig

    def __init__(self, config: AttentionalConfig, *, end_width: int, readout_width: int) -> None:
        super().__init__(config, end_width=end_width, readout_width=readout_width)
        self.alignment = Alignment(config.similarity, config.width, config.memory_width)

    def begin(self, source: Padded, memory: Hidden, ends: Ends) -> RecurrentState:
        """The first states, and the encoder's as they will be attended to."""
        mask = Padding(source.lengths, source.side) if source.ragged else None
        cells = self.first_state(self.end(ends))
        return RecurrentState(self.config, cells, memory=self.alignment.keys_values(memory), mask=mask)

    def estimates(self, context: int) -> Estimates:
        """With what is kept of the source, and attention to all of it."""
        rest = super().estimates(context)
        width, values = self.config.width, self.config.memory_width
        said = dict(rest.formulas) | {
            "cache": "a key of the decoder's width and a value of the encoder's for each token of the source",
            "work": "2 × the weights of matrices + 2 × (key width + value width) for each token of the source",
        }
        return replace(
            rest, work=rest.work + 2 * context * (width + values), cache=width + values, formulas=tuple(said.items())
        )

    @abstractmethod
    def end(self, ends: Ends) -> Float[Tensor, "rows end"]:
        """What the first states are made of."""


class Bahdanau(AttentionalNetwork):
    """Recurrent sequence-to-sequence that attends by the state before a step, for the step."""

    config: BahdanauConfig

    def __init__(self, config: BahdanauConfig) -> None:
        tokens, context, width = config.token_width, config.memory_width, config.width
        super().__init__(config, end_width=width, readout_width=width + tokens + context)
        self.decoder = ContextCells(config.cell, tokens, context, width, config.layers, config.dropout)
        _init_weights(self)

    def end(self, ends: Ends) -> Float[Tensor, "rows end"]:
        """The reverse direction's state at the first token (§A.2.2), or else the only direction's at the last."""
        return ends[-1]

    def advance(
        self, ids: Int[Tensor, "rows tokens"], state: RecurrentState, padded: Padded | None = None
    ) -> tuple[Float[Tensor, "rows tokens width"], RecurrentState]:
        """Step by step; what needs no state is computed before and after, for all steps at once."""
        assert state.memory is not None
        embedded = self.dropout(self.embedding(ids))
        read = self.decoder.read(embedded)
        real = padded.real if padded is not None and padded.ragged else None
        layers: LayerStates = list(zip(*(one.unbind() for one in state.cells), strict=True))
        states, contexts = [], []
        for place, of_token in enumerate(read.unbind(1)):
            context = self.alignment(layers[-1][0].unsqueeze(1), state.memory, state.mask).squeeze(1)
            after = self.decoder(of_token, context, layers)
            layers = after if real is None else _where(real[:, place, None], after, layers)
            states.append(layers[-1][0])
            contexts.append(context)
        hidden = self.read_out(torch.stack(states, 1), embedded, torch.stack(contexts, 1))
        return hidden, replace(state, cells=tuple(torch.stack(parts) for parts in zip(*layers, strict=True)))


class Luong(AttentionalNetwork):
    """Recurrent sequence-to-sequence that attends by the state a step has reached, for what is read out of it."""

    config: LuongConfig

    def __init__(self, config: LuongConfig) -> None:
        super().__init__(config, end_width=config.memory_width, readout_width=config.memory_width + config.width)
        self.decoder = RecurrentStack(config.cell, config.token_width, config.width, config.layers, config.dropout)
        _init_weights(self)

    def end(self, ends: Ends) -> Float[Tensor, "rows end"]:
        """The last states of all directions."""
        return torch.cat(tuple(ends), dim=-1)

    def advance(
        self, ids: Int[Tensor, "rows tokens"], state: RecurrentState, padded: Padded | None = None
    ) -> tuple[Float[Tensor, "rows tokens width"], RecurrentState]:
        """All steps in one call, and then all attention in another."""
        assert state.memory is not None
        out, cells = self.decoder(self.dropout(self.embedding(ids)), state.cells, padded)
        context = self.alignment(out, state.memory, state.mask)
        return self.read_out(context, out), replace(state, cells=cells)


def _init_weights(model: RecurrentNetwork) -> None:
    """Linear maps as Glorot and Bengio (2010) draw them with biases at zero, cells as `init_recurrent` says."""
    init_recurrent(model)
    for part in (model.first, model.readout, model.output, getattr(model, "context", None)):
        if isinstance(part, nn.Linear):
            nn.init.xavier_uniform_(part.weight)
            if part.bias is not None:
                nn.init.zeros_(part.bias)


def _where(here: Bool[Tensor, "rows 1"], new: LayerStates, old: LayerStates) -> LayerStates:
    """The new state in these rows, the old one in the others."""
    pairs = (zip(*both, strict=True) for both in zip(new, old, strict=True))
    return [tuple(torch.where(here, one, other) for one, other in layer) for layer in pairs]


def _align(model: nn.Module, _: object) -> None:
    """Let loaded weights lie in memory as drawn ones do: by where they lie, products of two or three rows round
    differently, which is what steps multiply, and a file's tensors lie anywhere.
    """
    for parameter in model.parameters():
        if parameter.device.type == "cpu" and parameter.data_ptr() % ALIGNED:
            parameter.data = parameter.data.clone()


def _require_one_text(padded: Padded) -> None:
    if padded.documents is not None:
        raise InputError(
            "packed rows hold several texts and a recurrent network reads one", "give one text in each row"
        )


register_network(Seq2SeqShape, Seq2Seq, Seq2SeqConfig)
register_network(BahdanauShape, Bahdanau, BahdanauConfig)
register_network(LuongShape, Luong, LuongConfig)
