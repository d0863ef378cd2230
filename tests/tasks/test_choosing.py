"""Models that choose: labels with probabilities, and the part of a passage that answers a question."""

import copy
import gzip
import inspect
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import regard
from regard.data.corpus import Pair
from regard.data.questions import Question, SpanFinding
from regard.decoding.strategies import Greedy
from regard.errors import ConfigError, InputError
from regard.models.transformer import Transformer
from regard.tasks.question_answering import LONGEST_ANSWER, best_span, without_blanks
from regard.tasks.recipe import Recipe
from regard.text.tokenizer import Tokenizer

SST = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "sst"
REVIEWS = [Pair("a fine film", "good"), Pair("a dull film", "bad"), Pair("so fine", "good"), Pair("so dull", "bad")]
PASSAGE = "Memling painted the shrine in Bruges . it stands in the old hospital by the river ."
ASKED = [
    Question("who painted the shrine", PASSAGE, (("Memling", 0),)),
    Question("where does it stand", PASSAGE, (("the old hospital", 52), ("old hospital", 56))),
]


def recipe(folder: Path, task: str, **changes: dict[str, object]) -> Recipe:
    head = {"classification": "labels", "question_answering": "spans"}[task]
    values = {
        "task": {"name": task},
        "data": {"train": f"{task}.json", "valid": f"{task}.json", "folder": str(folder), "window": 37},
        "tokenizer": {"kind": "wordpiece", "size": 200},
        "model": {"architecture": "encoder", "head": head, "width": 16, "heads": 2, "layers": 1, "dropout": 0.0},
        "training": {"steps": 60, "batch_tokens": 128, "warmup": 5, "learning_rate": 2e-2, "schedule": "constant"},
    }
    values["training"] |= {"label_smoothing": 0.0, "evaluate_every": 60, "save_every": 60}
    if task == "question_answering":
        values["model"]["segments"] = 2
    return Recipe.model_validate({table: given | changes.get(table, {}) for table, given in values.items()})


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    found = tmp_path_factory.mktemp("choosing")
    lines = [json.dumps({"text": pair.source, "label": pair.target}) for pair in REVIEWS]
    (found / "classification.json").write_text("\n".join(lines))
    qas = [
        {"question": one.question, "answers": [{"text": text, "answer_start": at} for text, at in one.answers]}
        for one in ASKED
    ]
    (found / "question_answering.json").write_text(
        json.dumps({"data": [{"paragraphs": [{"context": PASSAGE, "qas": qas}]}]})
    )
    return found


@pytest.fixture(scope="module")
def classifier(folder) -> regard.Model:
    return regard.train(recipe(folder, "classification"), folder / "classifier")


@pytest.fixture(scope="module")
def finder(folder) -> regard.Model:
    return regard.train(recipe(folder, "question_answering"), folder / "finder")


@torch.no_grad()
def test_labels_come_with_the_probabilities_of_the_logits_best_first(classifier):
    assert classifier.module.config.labels == ("bad", "good")
    for text in ("a fine film", "so dull"):
        token = classifier.tokenizer
        row = torch.tensor([[token.bos_id, *token.encode(text), token.eos_id]])
        inputs = regard.Inputs(regard.Padded(row, torch.tensor([row.shape[1]]), ragged=False))
        shares = classifier.module(inputs)[0].double().softmax(0).tolist()
        found = classifier.run(text)
        assert found == pytest.approx({"bad": shares[0], "good": shares[1]}, rel=1e-6)
        assert list(found.values()) == sorted(found.values(), reverse=True)
        (answer,) = classifier.answers([text])
        labels = [{"label": label, "probability": share} for label, share in found.items()]
        assert answer.record == {"output": next(iter(found)), "labels": labels}


def test_classes_of_one_name_keep_their_probabilities_each(classifier):
    """A published classifier may call several classes the same."""
    config = classifier.module.config.model_copy(update={"labels": ("same", "same")})
    module = copy.copy(classifier.module)
    module.config = config
    (answer,) = replace(classifier, module=module).answers(["a fine film"])
    (before,) = classifier.answers(["a fine film"])
    shares = [one["probability"] for one in before.record["labels"]]
    assert answer.record["labels"] == [{"label": "same", "probability": share} for share in shares]
    assert answer.value == pytest.approx({"same": 1.0})


def test_a_classifier_learns_what_it_is_shown(classifier):
    figures = classifier.evaluate(REVIEWS)
    assert figures["accuracy"] == 1.0
    assert figures["loss"] < 0.3
    flipped = [Pair(pair.source, "bad" if pair.target == "good" else "good") for pair in REVIEWS[:1]]
    assert classifier.evaluate([*REVIEWS, *flipped])["accuracy"] == pytest.approx(4 / 5)


@torch.no_grad()
@pytest.mark.parametrize("round_to", [1, 8])
def test_texts_are_measured_once_each_beside_texts_of_like_length_and_as_if_alone(classifier, round_to):
    """Short and long ones in turn: read in their order, every short one would be padded to a long one."""
    words = ["a fine film", "so dull", "so fine " * 15, "dull", "a dull film " * 11]
    pairs = [Pair(words[number % 5], ("good", "bad")[number % 3 > 0]) for number in range(600)]
    data = classifier.recipe.data.model_copy(update={"round_to": round_to})
    model = replace(classifier, recipe=classifier.recipe.model_copy(update={"data": data}))
    once = {text: model.logits(text).double() for text in words}
    alone = [once[pair.source] for pair in pairs]
    wanted = [model.module.config.labels.index(pair.target) for pair in pairs]
    read: list[regard.Inputs] = []
    hook = model.module.register_forward_pre_hook(lambda module, inputs: read.append(inputs[0]))
    found = model.run([pair.source for pair in pairs])
    answered, read[:] = list(read), []
    figures = model.evaluate(pairs)
    hook.remove()
    for one in (answered, read):
        assert sum(len(batch.sizes) for batch in one) == len(pairs) > len(one) > 1
        assert sum(batch.tokens.ids.numel() for batch in one) < 0.85 * 37 * len(pairs)
    for text, logits in zip(found, alone, strict=True):
        shares = dict(zip(model.module.config.labels, logits.softmax(0).tolist(), strict=True))
        assert text == pytest.approx(shares, abs=1e-5)
    right = sum(int(logits.argmax()) == label for logits, label in zip(alone, wanted, strict=True))
    loss = -sum(float(logits.log_softmax(0)[label]) for logits, label in zip(alone, wanted, strict=True))
    assert figures["accuracy"] == right / len(pairs)
    assert figures["loss"] == pytest.approx(loss / len(pairs), abs=1e-5)


def test_a_finder_learns_what_it_is_shown(finder):
    assert finder.evaluate(ASKED) == {"exact_match": 1.0, "f1": 1.0}
    assert finder.run(f"who painted the shrine\t{PASSAGE}") == "Memling"
    (answer,) = finder.answers([f"who painted the shrine\t{PASSAGE}"])
    assert (answer.record["start"], answer.record["end"]) == (0, 7)


def test_the_best_span_is_the_best_of_all_that_may_be(finder):
    """Against a loop over every pair of places."""
    how = SpanFinding(finder.tokenizer, window=199)
    (row,) = how.windows(Question("who", PASSAGE + " it stands" * 9))
    assert len(row.offsets) > LONGEST_ANSWER
    for seed in range(7):
        logits = torch.randn(len(row.source), 2, generator=torch.Generator().manual_seed(seed))
        if seed % 2:  # the best ends are further apart than an answer may be
            logits[row.first, 0] += 20
            logits[row.first + LONGEST_ANSWER + 3, 1] += 20
        likely = (logits.double() - logits.double().exp().sum(0).log()).tolist()
        best, chosen = -1e9, (0, 0)
        for begin in range(len(row.offsets)):
            for end in range(begin, min(begin + LONGEST_ANSWER, len(row.offsets))):
                score = likely[row.first + begin][0] + likely[row.first + end][1]
                if score > best:
                    best, chosen = score, (begin, end)
        found = best_span(logits, row)
        assert (found.start, found.end) == (row.offsets[chosen[0]][0], row.offsets[chosen[1]][1])
        assert found.score == pytest.approx(best)


@pytest.mark.parametrize(("tokens", "found"), [(LONGEST_ANSWER, True), (LONGEST_ANSWER + 1, False)])
def test_an_answer_is_as_long_as_one_may_be_and_not_a_token_longer(finder, tokens, found):
    """Its first and its last token are by far the likeliest to begin and to end it."""
    (row,) = SpanFinding(finder.tokenizer, window=199).windows(Question("who", PASSAGE + " it stands" * 9))
    logits = torch.zeros(len(row.source), 2)
    logits[row.first, 0] = logits[row.first + tokens - 1, 1] = 20
    span = best_span(logits, row)
    assert ((span.start, span.end) == (row.offsets[0][0], row.offsets[tokens - 1][1])) == found
    assert sum(span.start <= start and end <= span.end for start, end in row.offsets) <= LONGEST_ANSWER


@pytest.mark.parametrize("passage", ["\u200b", "\x01"])
def test_a_passage_without_tokens_has_an_empty_answer(finder, passage):
    assert finder.tokenizer.encode(passage) == []
    (answer,) = finder.answers([f"who\t{passage}"])
    assert (answer.text, answer.record["start"], answer.record["end"]) == ("", 0, 0)
    assert -math.inf < answer.record["score"] < 0
    asked = [*ASKED, Question("who", passage, ((passage, 0),))]
    assert finder.evaluate(asked) == {"exact_match": pytest.approx(2 / 3), "f1": pytest.approx(2 / 3)}


def test_an_answer_has_no_blanks_round_it_wherever_its_tokens_have_some(finder):
    tokenizer = Tokenizer.train([PASSAGE] * 3, 330)
    config = finder.module.config.model_copy(update={"vocabulary": tokenizer.size})
    moved = 0
    for seed in range(13):
        torch.manual_seed(seed)
        model = replace(finder, module=Transformer(config).eval(), tokenizer=tokenizer)
        (answer,) = model.answers([f"who\t{PASSAGE}"])
        start, end, text = answer.record["start"], answer.record["end"], answer.record["output"]
        assert text == answer.text == answer.value == PASSAGE[start:end] == PASSAGE[start:end].strip()
        touching = [place for place in tokenizer.offsets(PASSAGE) if place[0] <= start < place[1]]
        moved += start > touching[0][0]
    assert moved, "one of them begins with a blank"


@pytest.mark.parametrize(("span", "found"), [((1, 4), (2, 3)), ((0, 2), (2, 2)), ((2, 3), (2, 3)), ((4, 4), (4, 4))])
def test_a_span_loses_the_blanks_at_its_ends(span, found):
    assert without_blanks(" \tx\u2003 ", *span) == found


def test_models_that_choose_come_back_from_their_folders(classifier, finder, folder):
    assert regard.load(folder / "classifier").run("so fine") == classifier.run("so fine")
    assert regard.load(folder / "finder").run(f"where\t{PASSAGE}") == finder.run(f"where\t{PASSAGE}")


def test_bad_questions_are_answered_in_one_sentence(classifier, finder):
    with pytest.raises(InputError, match="the text is empty"):
        classifier.run(" ")
    with pytest.raises(InputError, match="a strategy has no effect on task 'classification'"):
        classifier.run("so fine", strategy=Greedy())
    with pytest.raises(InputError, match="label 'fine' is not one the model knows"):
        classifier.evaluate([Pair("a", "fine")])
    with pytest.raises(InputError, match=r"there is no passage after the tab; give a question, a tab, .* passage`"):
        finder.run("who?")
    with pytest.raises(InputError, match="there is no question before the tab"):
        finder.run("\tMemling")
    for model in (classifier, finder):
        with pytest.raises(InputError, match="to measure on"):
            model.evaluate([])


def test_what_is_no_text_and_no_example_is_refused_in_one_sentence(classifier, finder):
    with pytest.raises(InputError, match="a text is a string, not int; give a string"):
        inspect.unwrap(type(classifier).run)(classifier, 3)  # past the tests' own type checker
    with pytest.raises(
        InputError, match="'classification' is measured on examples of source, target, not on str; give"
    ):
        classifier.evaluate(["x"])
    with pytest.raises(
        InputError, match="'question_answering' is measured on examples of question, context, answers, not on Pa"
    ):
        finder.evaluate(REVIEWS)
    with pytest.raises(InputError, match="not on int"):
        inspect.unwrap(type(finder).evaluate)(finder, 3)


def test_a_label_that_training_has_not_is_named_with_its_file_and_its_place(folder, tmp_path):
    (folder / "unseen.tsv").write_text("so fine\tgood\nso so\tfair\n")
    with pytest.raises(InputError, match=r"unseen\.tsv: example 2: label 'fair' is not one the model knows"):
        regard.train(recipe(folder, "classification", data={"valid": "unseen.tsv"}), tmp_path / "run")


@pytest.mark.parametrize(
    ("task", "changes", "said"),
    [
        (
            "question_answering",
            {"training": {"label_smoothing": 0.1}},
            "label_smoothing = 0.1 has no meaning for places",
        ),
        ("question_answering", {"data": {"window": 4}}, "a window of 4 tokens has no room for a passage"),
        (
            "question_answering",
            {"model": {"segments": 1}},
            "segments = 1 tells no question .* use model.segments=2, or 0",
        ),
        (
            "classification",
            {"data": {"window": 2}},
            "a window of 2 tokens has no room for a text between its 2 special tokens",
        ),
        (
            "question_answering",
            {"model": {"head": "tokens"}},
            "cannot do task 'question_answering': its head gives 'tokens'; use .*model.head='spans'",
        ),
        ("classification", {"model": {"head": "spans"}}, "its head gives 'spans'; use .*model.head='labels'"),
        (
            "classification",
            {"model": {"positions": "learned", "max_positions": 7}},
            "reaches further than the 7 positions",
        ),
    ],
)
def test_what_cannot_be_trained_is_refused(folder, tmp_path, task, changes, said):
    with pytest.raises(ConfigError, match=said):
        regard.train(recipe(folder, task, **changes), tmp_path / "run")


@pytest.mark.slow
@pytest.mark.skipif(not SST.is_dir(), reason="needs the sentences of SST-2")
def test_film_reviews_are_told_apart_better_than_by_the_most_frequent_label(tmp_path):
    changes = ["training.steps=400", f"data.folder={SST}", "training.evaluate_every=100", "training.save_every=400"]
    model = regard.train("sst", tmp_path / "run", changes=changes)
    with gzip.open(SST / "stsa.binary.test.gz", "rt", encoding="utf-8") as lines:
        labels = [line[0] for line in lines]
    frequent = max(labels.count(label) for label in set(labels)) / len(labels)
    examples = model.task.read([SST / "stsa.binary.test.gz"], model.data)
    assert len(examples) == len(labels) == 1821
    assert model.evaluate(examples)["accuracy"] > frequent + 0.15
