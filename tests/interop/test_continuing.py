"""A text and its continuation, put together, are what all of their tokens say."""

import pytest

pytest.importorskip("transformers")

from tiny_folders import write
from tokenizers import Tokenizer as Engine

import regard

TEXTS = ["The roses by the", "low", "Once upon a", "What's that? She doesn't know;", "straße 😀"]


@pytest.fixture(scope="module", params=["gpt", "llama", "llama 3"])
def model(request, tmp_path_factory):
    folder = write(request.param, tmp_path_factory.mktemp("going"))
    return regard.load(folder), Engine.from_file(str(folder / "tokenizer.json"))


def test_the_blank_before_the_first_new_word_is_kept(model):
    model, engine = model
    found = model.hypotheses(TEXTS, None, 11)
    for text, one, said in zip(TEXTS, found, model.run(TEXTS, max_new_tokens=11), strict=True):
        read = engine.encode(text, add_special_tokens=False).ids
        begun, whole = (engine.decode(ids) for ids in (read, [*read, *one.ids]))
        assert begun + said == whole


def test_a_word_that_follows_is_written_apart(model):
    """As the tokens of a whole text are: its last word, taken from it, comes with the blank before it."""
    from regard.tasks.generation import text_after

    model, _ = model
    ids = model.tokenizer.encode("The roses by the bank")
    begun = model.tokenizer.encode("The roses by the")
    assert ids[: len(begun)] == begun
    assert text_after(model.tokenizer, begun, ids[len(begun) :]) == " bank"


def test_a_stream_gives_the_same_continuation(model):
    model, _ = model
    for text in TEXTS:
        assert "".join(model.run(text, stream=True, max_new_tokens=11)) == model.run(text, max_new_tokens=11)
