"""`regard.load` of whole folders, each asked what it is for beside `transformers`, before and after being converted."""

import logging
from pathlib import Path

import pytest
import torch

from rounding import assert_close

pytest.importorskip("transformers")

from asking_transformers import HuggingFace
from tiny_folders import FOLDERS, write

import regard
from regard.decoding.strategies import Greedy
from regard.interop.writing import write_folder

logging.getLogger("transformers").setLevel(logging.ERROR)
ROUNDING = {"abs": 1e-5, "rel": 1e-5}
TEXTS = ["The roses by the bank", "low", "She doesn't know; they don't either. What's that wide river?"]
QUESTION, PASSAGE = "What is red?", "The roses by the bank are red, and the river is wide."


@pytest.fixture(scope="module", params=list(FOLDERS))
def folder(request, tmp_path_factory):
    return request.param, write(request.param, tmp_path_factory.mktemp("huggingface"))


def agree(model: regard.Model, peer: HuggingFace, task: str) -> None:
    """Both give the same to several texts of different lengths asked at once."""
    assert model.task.name == task
    if task == "sentence_embedding":
        wanted = peer.sentence_embedding(TEXTS)
        assert_close(torch.tensor(model.run(TEXTS)), wanted)
    elif task == "masked":
        name = peer.tokenizer.mask_token
        hidden = [f"The {name} by the bank", f"{name}", f"She doesn't {name}; they {name} either."]
        for text, found in zip(hidden, model.run(hidden), strict=True):
            wanted = peer.masked(text)
            assert [list(one.values()) for one in found] == [
                pytest.approx(list(one.values()), **ROUNDING) for one in wanted
            ]
            names = [[model.tokenizer.token_text(token) for token in one] for one in wanted]
            assert [list(one) for one in found] == names
    elif task == "classification":
        assert model.run(TEXTS) == [pytest.approx(one, **ROUNDING) for one in peer.classification(TEXTS)]
    elif task == "question_answering":
        passages = [PASSAGE, "red", f"{PASSAGE} What a river."]
        found = model.answers([f"{QUESTION}\t{passage}" for passage in passages])
        for answer, passage in zip(found, passages, strict=True):
            text, score = peer.question_answering(QUESTION, passage)
            assert answer.record["output"] == text
            assert answer.record["score"] == pytest.approx(score, **ROUNDING)
    else:
        assert model.run(TEXTS, max_new_tokens=11) == getattr(peer, task)(TEXTS, 11)


def test_a_folder_does_what_it_is_for_as_transformers_does_it(folder):
    name, path = folder
    agree(regard.load(path), HuggingFace(path, FOLDERS[name].auto), FOLDERS[name].task)


GAPS = ["The <extra_id_0> was built", "<extra_id_1>", "roses  <extra_id_0> by\n<extra_id_1>bank <extra_id_7> </s>"]


@torch.no_grad()
def test_a_t5_reads_the_gaps_of_a_text_as_transformers_does_and_fills_them(tmp_path):
    path = write("t5", tmp_path / "huggingface")
    model, peer = regard.load(path), HuggingFace(path, FOLDERS["t5"].auto)
    model.save(tmp_path / "regard")
    read = peer.read([*GAPS[:2], "the roses"])
    wanted = peer.model.generate(**read, do_sample=False, max_new_tokens=11, use_cache=False)
    for one in (model, regard.load(tmp_path / "regard")):
        inputs = one.writer.prompt(one, [*GAPS[:2], "the roses"])
        assert [row[real].tolist() for row, real in zip(inputs.source.ids, inputs.source.real, strict=True)] == [
            row[real.bool()].tolist() for row, real in zip(read["input_ids"], read["attention_mask"], strict=True)
        ]
        found = one.writer.hypotheses(one, [*GAPS[:2], "the roses"], Greedy(), 11)
        assert [peer.upto(list(row.ids)) for row in found] == [peer.upto(row[1:]) for row in wanted.tolist()]
    first, _, plain = model.answers([*GAPS[:2], "the roses"], max_new_tokens=11)
    gap = first.record["spans"].get("<extra_id_0>", "")
    assert first.text == GAPS[0].replace("<extra_id_0>", gap.strip())
    assert plain.text == model.run("the roses", max_new_tokens=11)


def test_what_is_no_gap_of_a_t5_is_text(tmp_path):
    """`<extra_id_7>` is not in this vocabulary, and nobody can spell `</s>`."""
    model = regard.load(write("t5", tmp_path / "huggingface"))
    token = model.tokenizer
    ids = model.writer.prompt(model, GAPS[2:]).source.rows()[0]
    assert ids.count(token.eos_id) == 1
    assert [one for one in ids if one in token.special_ids.values() and one != token.unk_id] == [
        token.special_ids["<extra_id_0>"],
        token.special_ids["<extra_id_1>"],
        token.eos_id,
    ]


def test_a_model_saved_as_regards_answers_the_same(folder, tmp_path):
    name, path = folder
    regard.load(path).save(tmp_path / "regard")
    agree(regard.load(tmp_path / "regard"), HuggingFace(path, FOLDERS[name].auto), FOLDERS[name].task)


def test_a_model_written_as_hugging_faces_again_answers_the_same_there(folder, tmp_path):
    name, path = folder
    model = regard.load(path)
    write_folder(tmp_path / "huggingface", model)
    before, again = HuggingFace(path, FOLDERS[name].auto), HuggingFace(tmp_path / "huggingface", FOLDERS[name].auto)
    assert again.tokenizer(TEXTS)["input_ids"] == before.tokenizer(TEXTS)["input_ids"]
    assert again.tokenizer.special_tokens_map == before.tokenizer.special_tokens_map
    for key in ("model_type", "pad_token_id", "eos_token_id", "decoder_start_token_id"):
        assert getattr(again.model.config, key, None) == getattr(before.model.config, key, None), key
    agree(model, again, FOLDERS[name].task)
    agree(regard.load(tmp_path / "huggingface"), before, FOLDERS[name].task)


def test_a_folder_is_found_by_a_plain_string(tmp_path):
    write("gpt", tmp_path)
    assert regard.load(str(tmp_path)).task.name == regard.load(Path(tmp_path)).task.name == "language_modelling"
