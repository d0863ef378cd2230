"""Filling given gaps: what is read, answered and measured, by encoders and decoders; corpora that classify."""

from types import SimpleNamespace

import pytest
import torch

import regard
from regard.data.cloze import MASK
from regard.data.corpus import Pair
from regard.errors import ConfigError, InputError
from regard.tasks.recipe import read_recipe
from regard.tasks.task import held_out, task_of

SMALL = [
    *("training.steps=3", "training.batch_tokens=256", "training.warmup=1", "training.evaluate_every=3"),
    *("training.device=cpu", "training.compile=false", "model.width=12", "model.heads=2", "tokenizer.sample=2000"),
    *("data.options.length=61", "data.options.queries=7", "data.options.pairs=5", "data.options.held_out=11"),
]


@pytest.fixture(autouse=True)
def small_pools(monkeypatch):
    monkeypatch.setattr("regard.data.stream.POOL", 64)


@pytest.fixture(scope="module", params=["encoder", "decoder"])
def model(request, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("regard.data.stream.POOL", 64)
        folder = tmp_path_factory.mktemp(request.param) / "run"
        return regard.train("recall", folder, changes=[*SMALL, f"model.architecture={request.param}"])


def by_hand(model: regard.Model, text: str, count: int) -> torch.Tensor:
    """The log-probabilities at the last `count` tokens of a text, read alone."""
    token = model.tokenizer
    ids = torch.tensor([[token.bos_id, *token.encode(text), token.eos_id]])
    inputs = regard.data.batching.Inputs(regard.data.batching.Padded(ids, torch.tensor([ids.shape[1]]), ragged=False))
    with torch.no_grad():
        return model.module.eval()(inputs)[0, -1 - count : -1].double().log_softmax(dim=-1)


def test_accuracy_and_loss_are_those_of_the_gaps_alone(model):
    examples = held_out(model.task.open(model.recipe), "test", 5)
    right, lost, count = 0, 0.0, 0
    for text, target in examples:
        wanted = [model.tokenizer.encode(word)[0] for word in target.split()]
        likely = by_hand(model, text, len(wanted))
        right += sum(row.argmax().item() == one for row, one in zip(likely, wanted, strict=True))
        lost -= sum(row[one].item() for row, one in zip(likely, wanted, strict=True))
        count += len(wanted)
    found = model.evaluate(examples)
    assert found["accuracy"] == right / count
    assert found["loss"] == pytest.approx(lost / count, rel=1e-4)


def test_an_answer_is_the_text_with_the_likeliest_word_in_each_gap(model):
    texts = [text for text, _ in held_out(model.task.open(model.recipe), "test", 2)]
    texts = [texts[0], texts[1][:-3]]  # of unequal length, side by side
    answers = model.answers(texts)
    for text, answer in zip(texts, answers, strict=True):
        count = sum("ㄱ" <= one <= "ㅎ" for one in text)
        likely = by_hand(model, text, count)
        words = [model.tokenizer.decode([one]) for one in likely.argmax(dim=-1).tolist()]
        assert answer.text == text[:-count] + "".join(words)
        assert [fill["token"] for fill in answer.record["fills"]] == words
        shares = [fill["probability"] for fill in answer.record["fills"]]
        assert shares == pytest.approx(likely.max(dim=-1).values.exp().tolist(), rel=1e-4)


def test_a_text_without_a_gap_asks_nothing(model):
    with pytest.raises(InputError, match="the text hides nothing: it has no ㄱ or ㄲ"):
        model.run("40가77")


def test_the_masks_of_a_users_own_texts_are_filled(tmp_path):
    words = ["one", "two", "three", "four", "five", "six", "seven"]
    lines = [f"{word[0]}{MASK}{word[2:]}\t{word[1]}\n" for word in words * 3]
    (tmp_path / "gaps.tsv").write_text("".join(lines))
    given = {
        "task": "cloze",
        "data": {"train": "gaps.tsv", "folder": str(tmp_path)},
        "tokenizer": {"kind": "characters"},
        "model": {"architecture": "encoder", "width": 12, "heads": 2},
        "training": {"steps": 2, "batch_tokens": 64, "device": "cpu"},
    }
    trained = regard.train(regard.Recipe.model_validate(given), tmp_path / "run")
    assert len(trained.run(f"s{MASK}ven")) == 5
    assert set(trained.evaluate([Pair(f"f{MASK}ur", "o")])) == {"accuracy", "loss"}
    with pytest.raises(InputError, match="2 gaps and 1 words"):
        trained.evaluate([Pair(f"f{MASK}{MASK}r", "o")])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["model.architecture=encoder_decoder"], "it reads a source, and there is none"),
        (["model.head=labels"], "its head gives 'labels'"),
        (["task.gaps=[]"], "gaps"),
        (["model.positions=learned", "model.max_positions=50"], "a text of 61 tokens reaches further than the 50"),
    ],
)
def test_a_network_that_cannot_fill_is_refused(changes, said, tmp_path):
    with pytest.raises(ConfigError, match=said):
        regard.train("recall", tmp_path / "run", changes=[*SMALL, *changes])


def test_a_corpus_whose_targets_are_few_has_labels_and_another_has_none(monkeypatch):
    monkeypatch.setattr("regard.tasks.classification.LABELLED_EXAMPLES", 100)
    recipe = read_recipe("listops")
    task = task_of(recipe.task)
    assert task.labels(task.open(recipe)) == tuple("0123456789")
    with pytest.raises(
        ConfigError, match=r"'dates' have .* different targets, which are no labels; use corpus listops"
    ):
        task.open(read_recipe("listops", ["data.corpus=dates"]))


def test_a_classifier_of_a_corpus_refuses_what_the_corpus_does_not_teach():
    recipe = read_recipe("listops")
    task = task_of(recipe.task)
    asked = SimpleNamespace(
        module=None, tokenizer=None, task=task, decoding=recipe.decoding, data=recipe.data, draft=None
    )
    task.check(asked, "[MAX 1 2 ]")
    with pytest.raises(InputError, match="is not one whole expression"):
        task.check(asked, "[MAX 1 2")
