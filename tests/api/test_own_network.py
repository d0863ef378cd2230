"""A network that nobody here knows, registered in a few lines: everything works with it, and the laws hold."""

from dataclasses import dataclass
from typing import Literal

import pytest
import torch
from torch import Tensor, nn

import regard
from regard.attention.slot import Site
from regard.embedding.tokens import TokenEmbedding
from regard.inspection.laws import LAWS
from regard.models.network import NETWORKS


class EchoShape(regard.NetworkShape):
    """One attention over the source, asked by the token that was written last."""

    name: Literal["echo"] = "echo"
    width: int = 16

    @property
    def reads(self):
        return ("tokens", "source")


@dataclass(frozen=True)
class EchoState:
    memory: Tensor
    mask: regard.Padding

    def select(self, rows):
        return EchoState(self.memory[rows], self.mask.select(rows))

    def copy(self):
        return self

    def trim(self, lengths):
        return self  # whatever was read, the next token looks at the source alone


class Echo(regard.Network):
    """A step looks at the source with the vector of its token alone, so a state is the source and nothing else."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embedding = TokenEmbedding(config.vocabulary, config.width)
        self.attention = regard.MultiHeadAttention(config.width, 2, site=Site("decoder", 0, "cross"))
        self.norm = nn.LayerNorm(config.width)

    def hidden(self, inputs):
        return self._look(inputs.tokens.ids, self._read(inputs))

    def logits(self, hidden):
        return self.embedding.logits(hidden)

    def start(self, inputs):
        return self._read(inputs)

    def extend(self, ids, state):
        return self.logits(self._look(ids, state)), state

    def _read(self, inputs):
        return EchoState(self.embedding(inputs.source.ids), regard.Padding(inputs.source.lengths, inputs.source.side))

    def _look(self, ids, state):
        tokens = self.embedding(ids)
        return self.norm(tokens + self.attention(tokens, state.memory, mask=state.mask))


@pytest.fixture(scope="module", autouse=True)
def known():
    regard.register_network(EchoShape, Echo)
    yield
    del NETWORKS["echo"]


CHANGES = {
    "model": {"name": "echo", "width": 12},
    "training": {"steps": 6, "batch_tokens": 200, "evaluate_every": 3, "save_every": 3, "warmup": 1},
    "tokenizer": {"kind": "characters", "size": 60, "sample": 50},
    "data": {"options": {"held_out": 20, "longest": 7}},
    "decoding": {"max_new_tokens": 5},
}


@pytest.fixture(scope="module")
def recipe():
    values = {"task": "translation", **CHANGES}
    return regard.Recipe.model_validate(values | {"data": {"corpus": "copy", **CHANGES["data"]}})


def test_it_trains_is_saved_loads_decodes_and_resumes(recipe, tmp_path):
    model = regard.train(recipe, tmp_path / "run")
    loaded = regard.load(tmp_path / "run")
    texts = ["a b c d", "d a c e f"]
    for strategy in (regard.Greedy(), regard.Sample(seed=3), regard.Beam(3)):
        assert loaded.run(texts, strategy=strategy) == model.run(texts, strategy=strategy)
    assert "".join(loaded.run("a b c d", stream=True)) == loaded.run("a b c d")
    assert 0 <= loaded.evaluate([regard.data.corpus.Pair("a b c d", "a b c d")])["exact_match"] <= 1
    assert loaded.score("a b c d", "a b").total < 0
    assert "echo" in repr(loaded)
    longer = regard.train(recipe, tmp_path / "run", resume=True, changes={"training.steps": 8})
    assert longer.recipe.training.steps == 8


def test_it_is_watched_and_drawn(recipe, tmp_path):
    model = regard.train(recipe, tmp_path / "run")
    with regard.watch(model) as seen:
        model.run("a b c d")
    weights = seen.weights("decoder.0.cross", head=1)
    assert weights.shape[1] == len(seen.tokens().keys)
    torch.testing.assert_close(weights.sum(-1), torch.ones(len(weights)))
    seen.save(tmp_path / "seen.png")
    assert (tmp_path / "seen.png").stat().st_size > 1000


NOT_ABOUT_IT = {"packing", "tying", "windows", "devices", "weights", "tokenizer"}
"""It reads a source beside one text, all of it, on a CPU, and is given here without a folder."""


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_the_laws_hold(law):
    torch.manual_seed(0)
    model = EchoShape(width=12).built_for(13).build()
    about = law.name not in NOT_ABOUT_IT
    assert law.applies(model) == about
    assert not about or law.measure(model) <= law.tolerance


def test_a_folder_of_a_network_that_is_not_known_says_so(recipe, tmp_path):
    regard.train(recipe, tmp_path / "run")
    kept = NETWORKS.pop("echo")
    try:
        with pytest.raises(regard.FileError, match=r"'regard-echo' model; .* registered before its folder is loaded"):
            regard.load(tmp_path / "run")
    finally:
        NETWORKS["echo"] = kept
