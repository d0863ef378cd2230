"""What a recurrent network takes, against its own tensors and what PyTorch counts; and one that says nothing."""

from collections import Counter

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from regard.blocks.recurrent import STATES
from regard.data.batching import Inputs, Padded
from regard.models.network import NETWORKS, Network
from regard.models.size import size_of

CASES = [
    ("seq2seq", "gru", {}),
    ("bahdanau", "lstm", {}),
    ("luong", "rnn", {}),
    ("luong", "gru", {"similarity": "dot"}),
]
CONTEXT = 13
every_case = pytest.mark.parametrize(("name", "cell", "options"), CASES)


def build(name: str, cell: str, options: dict[str, str], *, tied: bool) -> Network:
    sizes = {"vocabulary": 31, "width": 7, "embedding_width": 5, "layers": 2, "tie_embeddings": tied}
    return NETWORKS[name].config(cell=cell, **sizes, **options).build().eval()


@every_case
def test_parameters_are_those_of_the_model_by_its_modules(name, cell, options):
    model = build(name, cell, options, tied=False)
    modules = {"first": "decoder", "context": "decoder", "readout": "output", "alignment": "attention"}
    counted: Counter[str] = Counter(dict.fromkeys(("embedding", "encoder", "decoder", "attention", "output"), 0))
    for child, module in model.named_children():
        counted[modules.get(child, child)] += sum(one.numel() for one in module.parameters())
    size = size_of(model.config, CONTEXT)
    assert size.parts == {part: count for part, count in counted.items() if part != "dropout"}
    gates = {"rnn": 1, "lstm": 4, "gru": 3}[cell]
    width, memory = 7, 7 * (1 + model.config.bidirectional)
    directions = 1 + model.config.bidirectional
    assert size.parts["encoder"] == directions * gates * width * sum(below + width + 2 for below in (5, memory))
    assert size.parameters == sum(one.numel() for one in model.parameters())


@every_case
@pytest.mark.parametrize("tied", [True, False])
def test_the_work_of_matrices_is_what_pytorch_counts(name, cell, options, tied):
    model = build(name, cell, options, tied=tied).double()  # in float32 a whole LSTM is one product to the counter
    ids = Padded.of(torch.randint(31, (2, CONTEXT)).tolist())
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(Inputs(ids, ids))
    found = {str(operation): count for operation, count in counter.get_flop_counts()["Global"].items()}
    matrices = (found.get("aten.mm", 0) + found.get("aten.addmm", 0)) / (2 * CONTEXT)
    attention = 0 if name == "seq2seq" else 2 * CONTEXT * (7 + 14)
    assert size_of(model.config, CONTEXT).work.forward == pytest.approx(matrices + attention, rel=1e-12)


@every_case
def test_what_is_kept_to_write_on_holds_as_many_bytes_and_does_not_grow(name, cell, options):
    model = build(name, cell, options, tied=True)
    source = Padded.of([list(range(CONTEXT))])
    with torch.no_grad():
        state = model.start(Inputs(Padded.of([[1]]), source))
        size = size_of(model.config, CONTEXT)
        for token in (3, 5):
            held = 0 if state.memory is None else state.memory.keys.nbytes + state.memory.values.nbytes
            assert held == size.whole_cache.float32
            assert sum(one.numel() for one in state.cells) == STATES[cell] * 2 * 7
            _, state = model.step(torch.tensor([token]), state)


class Silent(Network):
    """A network that says nothing of its size."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.map = nn.Embedding(5, 3), nn.Linear(3, 7)

    def hidden(self, inputs):
        raise NotImplementedError

    def logits(self, hidden):
        raise NotImplementedError


def test_a_network_that_says_nothing_is_counted_by_its_matrices():
    said = Silent().estimates(CONTEXT)
    assert (said.work, said.cache, said.kept) == (2 * 3 * 7, 0, None)
    assert [Silent().part(name) for name, _ in Silent().named_parameters()] == ["embedding", "map", "map"]
