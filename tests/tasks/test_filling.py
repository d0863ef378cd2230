"""Models that fill what is hidden: masked tokens with probabilities, gaps with what a decoder wrote."""

import math
import re
from itertools import islice
from pathlib import Path

import pytest
import torch

import regard
from regard.data.batching import IGNORED, Inputs, Padded
from regard.data.sentinels import SENTINELS, spans_of
from regard.data.splits import TextDocument
from regard.data.stream import Position
from regard.decoding.strategies import Greedy
from regard.errors import ConfigError, InputError
from regard.tasks.recipe import Recipe

TEXT = "the rose by the river bank .\n\nlow lower lowest and slower .\n\na bank of monitors is a bank .\n\n" * 4
MODELS = {
    "masked": {"architecture": "encoder", "head": "masked"},
    "denoising": {"architecture": "encoder_decoder"},
}


def recipe(folder: Path, task: str, kind: str, **changes: dict[str, object]) -> Recipe:
    values = {
        "task": {"name": task},
        "data": {"train": "text.txt", "valid": "text.txt", "window": 17, "folder": str(folder)},
        "tokenizer": {"kind": kind, "size": 400},
        "model": {"width": 12, "heads": 2, "layers": 1} | MODELS[task],
        "training": {"steps": 2, "batch_tokens": 131, "warmup": 1},
        "decoding": {"max_new_tokens": 7},
    }
    if task == "masked":
        del values["decoding"]
    return Recipe.model_validate({table: given | changes.get(table, {}) for table, given in values.items()})


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    found = tmp_path_factory.mktemp("filling")
    (found / "text.txt").write_text(TEXT)
    return found


@pytest.fixture(scope="module", params=["wordpiece", "bpe"])
def masked(folder, request) -> regard.Model:
    return regard.train(recipe(folder, "masked", request.param), folder / request.param)


@pytest.fixture(scope="module")
def denoising(folder) -> regard.Model:
    return regard.train(recipe(folder, "denoising", "characters"), folder / "denoising")


def test_a_masked_model_has_a_mask_whatever_its_tokenizer(masked):
    name = masked.tokenizer.token_text(masked.tokenizer.mask_id)
    assert name == ("[MASK]" if masked.recipe.tokenizer.kind == "wordpiece" else "<mask>")
    assert masked.tokenizer.size == masked.module.config.vocabulary


@torch.no_grad()
def test_fills_are_the_likeliest_ordinary_tokens_of_each_hidden_place(masked):
    token = masked.tokenizer
    name = token.token_text(token.mask_id)
    fills = masked.run(f"the {name} by the {name}")
    ids = [*token.encode("the"), token.mask_id, *token.encode(" by the"), token.mask_id]
    logits = masked.module(Inputs(Padded.of([[token.bos_id, *ids, token.eos_id]])))[0].double()
    ordinary = [one for one in range(token.size) if one not in token.special_ids.values()]
    for found, place in zip(fills, [1 + ids.index(token.mask_id), len(ids)], strict=True):
        shares = logits[place, ordinary].softmax(0)
        best = sorted(zip(shares.tolist(), ordinary, strict=True), key=lambda one: -one[0])[:5]
        assert list(found) == [token.token_text(one) for _, one in best]
        assert list(found.values()) == pytest.approx([share for share, _ in best], rel=1e-5)


def test_the_answer_for_people_is_the_text_filled_and_a_line_for_each_place(masked):
    name = masked.tokenizer.token_text(masked.tokenizer.mask_id)
    (answer,) = masked.answers([f"a bank of {name}"])
    filled, *lines = answer.text.split("\n")
    assert len(lines) == 1
    assert answer.record["output"] == filled
    assert name not in filled
    assert [fill["token"] for fill in answer.record["fills"][0]] == list(answer.value[0])


def test_an_untrained_models_loss_is_about_that_of_guessing(masked):
    found = masked.evaluate([TextDocument("the rose by the river bank")])
    assert found["loss"] == pytest.approx(math.log(masked.tokenizer.size), rel=0.5)
    assert 0 <= found["accuracy"] <= 1
    assert masked.evaluate([TextDocument("the rose by the river bank")]) == found


def test_bad_questions_to_a_masked_model_are_one_sentence(masked):
    name = masked.tokenizer.token_text(masked.tokenizer.mask_id)
    with pytest.raises(InputError) as caught:
        masked.run("the rose")
    assert str(caught.value) == f"the text hides nothing: it has no {name}; write {name} in place of a word"
    with pytest.raises(InputError, match="a strategy has no effect on task 'masked', which writes no text"):
        masked.run(name, strategy=Greedy())
    with pytest.raises(InputError, match="a limit of 3 new tokens has no effect on task 'masked'"):
        masked.run(name, max_new_tokens=3)
    with pytest.raises(InputError, match="task 'masked' writes no text"):
        masked.run(name, stream=True)


def test_gaps_are_filled_with_what_was_written_after_their_sentinels(denoising):
    token = denoising.tokenizer
    sentinel = [token.special_ids[name] for name in SENTINELS[:3]]
    ids = [*token.encode("zz"), sentinel[0], *token.encode("ro"), sentinel[2], *token.encode("an"), token.eos_id]
    assert spans_of(ids, token) == {"<extra_id_0>": "ro", "<extra_id_2>": "an"}
    text = "the <extra_id_0>se by the b<extra_id_1>"
    (answer,) = denoising.answers([text])
    spans = answer.record["spans"]
    wanted = text.replace("<extra_id_0>", spans.get("<extra_id_0>", "").strip())
    assert answer.value == wanted.replace("<extra_id_1>", spans.get("<extra_id_1>", "").strip())


def test_only_the_end_of_a_target_teaches_to_stop_however_short_the_documents(folder):
    plan = recipe(folder, "denoising", "characters")
    task = regard.tasks.task.TASKS["denoising"]()
    data = task.open(plan)
    assert max(len(document.text) for document in data.train) < 31
    token = task.tokenizer(plan, data)
    module = regard.Transformer(regard.TransformerConfig(vocabulary=token.size, width=12, heads=2, layers=1))
    training_data = task.training_data(plan, data, module, token)
    batches = [*training_data.validation, *(batch for batch, _ in islice(training_data.batches.start(Position()), 7))]
    for batch in batches:
        for read, wanted in zip(batch.inputs.source.rows(), batch.targets.tolist(), strict=True):
            assert read.index(token.eos_id) == len(read) - 1
            kept = [one for one in wanted if one != IGNORED]
            assert kept.index(token.eos_id) == len(kept) - 1


def test_a_denoising_model_reads_its_sentinels_as_such(denoising):
    token = denoising.tokenizer
    inputs = denoising.writer.prompt(denoising, ["a<extra_id_3>b"])
    wanted = [*token.encode("a"), token.special_ids["<extra_id_3>"], *token.encode("b"), token.eos_id]
    assert inputs.source.ids.tolist() == [wanted]
    assert inputs.tokens.ids.tolist() == [[token.bos_id]]
    assert set(denoising.evaluate([TextDocument("the rose by the river bank")])) == {"loss"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("the rose", "the text has no gap to fill; write <extra_id_0>, <extra_id_1> …"),
        ("<extra_id_0> a <extra_id_0>", "<extra_id_0> comes twice; give every gap a number of its own"),
        (" ", "the text is empty"),
    ],
)
def test_bad_questions_to_a_denoising_model_are_one_sentence(denoising, text, said):
    with pytest.raises(InputError) as caught:
        denoising.run(text)
    assert str(caught.value).startswith(said)
    with pytest.raises(InputError, match="filled at the end and cannot stream"):
        denoising.run("<extra_id_0>", stream=True)


@pytest.mark.parametrize("size", [99, 260, 359])
def test_a_vocabulary_too_small_for_the_sentinels_is_refused_with_the_least_that_holds_them(folder, size):
    task, plan = regard.tasks.task.TASKS["denoising"](), recipe(folder, "denoising", "bpe", tokenizer={"size": size})
    data = task.open(plan)
    with pytest.raises(ConfigError) as caught:
        task.tokenizer(plan, data)
    said = f"a vocabulary of {size} cannot hold 104 special tokens and 256 characters; use a size of 360 or more"
    assert str(caught.value) == said
    enough = recipe(folder, "denoising", "bpe", tokenizer={"size": 360})
    assert task.tokenizer(enough, data).size == 360


@pytest.mark.parametrize("kind", ["bpe_words", "wordpiece", "characters"])
def test_the_least_size_that_is_told_is_enough_whatever_the_tokenizer(folder, kind):
    task = regard.tasks.task.TASKS["denoising"]()
    data = task.open(recipe(folder, "denoising", kind))
    with pytest.raises(ConfigError, match="a vocabulary of 53 cannot hold") as caught:
        task.tokenizer(recipe(folder, "denoising", kind, tokenizer={"size": 53}), data)
    least = int(re.findall(r"\d+", caught.value.remedy)[0])
    assert task.tokenizer(recipe(folder, "denoising", kind, tokenizer={"size": least}), data).size == least
    with pytest.raises(ConfigError, match=f"use a size of {least} or more"):
        task.tokenizer(recipe(folder, "denoising", kind, tokenizer={"size": least - 1}), data)


@pytest.mark.parametrize(
    ("task", "model", "said"),
    [
        (
            "masked",
            {"architecture": "decoder", "head": "tokens"},
            "cannot do task 'masked': .* use model.architecture=encoder",
        ),
        (
            "masked",
            {"head": "none"},
            "cannot do task 'masked': its head gives 'none'; use .*model.head='masked' or 'tokens'",
        ),
        (
            "denoising",
            {"architecture": "decoder"},
            "cannot do task 'denoising': it reads no source; use model.architecture=encoder_decoder",
        ),
    ],
)
def test_a_shape_that_cannot_fill_is_refused(folder, tmp_path, task, model, said):
    with pytest.raises(ConfigError, match=said):
        regard.train(recipe(folder, task, "wordpiece", model=model), tmp_path / "run")


def test_a_prefix_stands_before_every_source_in_training_and_when_asked(folder, tmp_path):
    (tmp_path / "pairs.tsv").write_text("one\teins\ntwo\tzwei\n")
    data = {"train": "pairs.tsv", "valid": "pairs.tsv", "folder": str(tmp_path)}
    values = {"task": {"prefix": "to German: "}, "data": data, "tokenizer": {"kind": "characters"}}
    values |= {"model": {"width": 12, "heads": 2, "layers": 1}, "training": {"steps": 1, "batch_tokens": 64}}
    found = Recipe.model_validate(values)
    task = regard.tasks.task.task_of(found.task)
    tokenizer = regard.text.characters.CharacterTokenizer.train(["to German: onetwoeinszwei"], 99)
    config = regard.TransformerConfig(vocabulary=tokenizer.size, width=12, heads=2, layers=1)
    module = regard.Transformer(config)
    training_data = task.training_data(found, task.open(found), module, tokenizer)
    read = sorted(tokenizer.decode(row) for row in training_data.validation[0].inputs.source.rows())
    assert read == ["to German: one", "to German: two"]
    model = regard.Model(module, tokenizer, task, found.decoding, found)
    assert tokenizer.decode(model.writer.prompt(model, ["one"]).source.rows()[0]) == "to German: one"
