"""`regard run` and `regard evaluate` for models that do something else than translate."""

import json
import shutil
from pathlib import Path

import pytest

import regard
from regard.tasks.task import TASKS

WORDS = ["fine", "dull", "great", "poor", "lovely", "tedious"]
SHAPE = {"width": 12, "heads": 2, "layers": 1, "feedforward_width": 7}
TRAINING = {"steps": 2, "batch_tokens": 256, "warmup": 1, "label_smoothing": 0.0}


def squad() -> str:
    question = {"id": "1", "question": "what is it?", "answers": [{"text": "fine", "answer_start": 6}]}
    return json.dumps({"data": [{"paragraphs": [{"context": "it is fine.", "qas": [question]}]}]})


CHAT = [{"role": "user", "content": "fine"}, {"role": "assistant", "content": "dull"}]
HALF = ("--precision", "bfloat16")
CASES = {
    "language_modelling": ("\n".join(WORDS), {"architecture": "decoder"}, "fine"),
    "chat": (json.dumps({"messages": CHAT}), {"architecture": "decoder"}, "fine"),
    "masked": ("\n\n".join(WORDS), {"architecture": "encoder", "head": "masked"}, "so [MASK] !"),
    "denoising": ("\n\n".join(WORDS), {}, "so <extra_id_0> !"),
    "classification": ("\n".join(f"{n % 2} {word}" for n, word in enumerate(WORDS)), {"head": "labels"}, "fine"),
    "question_answering": (squad(), {"head": "spans"}, "what is it?\tit is fine."),
}
WRITING = ("language_modelling", "denoising", "chat")
KEYS = {
    "chat": {"output", "score", "tokens", "path"},
    "language_modelling": {"output", "score", "tokens", "path"},
    "masked": {"output", "fills"},
    "denoising": {"output", "spans", "score"},
    "classification": {"output", "labels"},
    "question_answering": {"output", "score", "start", "end"},
}
METRICS = {
    "chat": {"exact_match", "conversation_match", "chrf", "loss", "perplexity"},
    "language_modelling": {"loss", "perplexity", "bits_per_byte"},
    "masked": {"loss", "accuracy"},
    "denoising": {"loss"},
    "classification": {"loss", "accuracy", "macro_f1"},
    "question_answering": {"exact_match", "f1"},
}


@pytest.fixture(scope="module", params=CASES)
def trained(request, tmp_path_factory) -> tuple[str, Path, Path]:
    task = request.param
    content, shape, _ = CASES[task]
    folder = tmp_path_factory.mktemp(task)
    (folder / "data.txt").write_text(content + "\n")
    model = SHAPE | ({"architecture": "encoder"} if task in ("classification", "question_answering") else {}) | shape
    data = {"train": "data.txt", "valid": "data.txt", "test": "data.txt", "folder": str(folder)}
    data["window"] = 61 if task == "chat" else 11
    kind = {"kind": "characters" if task in WRITING else "wordpiece", "size": 150}
    values = {"task": task, "data": data, "tokenizer": kind, "model": model, "training": TRAINING}
    if task in WRITING:
        values["decoding"] = {"max_new_tokens": 3}
    regard.train(regard.tasks.recipe.Recipe.model_validate(values), folder / "model")
    return task, folder / "model", folder / "data.txt"


def test_run_prints_what_the_task_says_and_json_is_one_object_a_line(call, trained):
    task, model, _ = trained
    text = CASES[task][2]
    plain = call("run", model, text)
    assert (plain.code, plain.err) == (0, "")
    assert plain.out == regard.load(model).answers([text])[0].text + "\n"
    answer = call("run", model, "--json", stdin=f"{text}\n{text}\n".encode())
    assert (answer.code, answer.err) == (0, "")
    records = [json.loads(line) for line in answer.out.splitlines()]
    assert len(records) == 2
    assert all(record.keys() == {"input", "device", "precision"} | KEYS[task] for record in records)
    assert all(record["input"] == text for record in records)


def test_evaluate_names_the_task_the_data_and_the_figures(call, trained):
    task, model, file = trained
    record = json.loads(call("evaluate", model, "--json").out)
    windows = ["window", "stride"] if task == "language_modelling" else []
    simple = ["bag_of_ngrams"] if task == "classification" else []
    assert list(record) == ["task", "data", "examples", *windows, "metrics", *simple, "device", "precision"]
    assert (record["task"], record["data"]) == (task, "data.txt (test)")
    assert record["metrics"].keys() == METRICS[task]
    assert set(TASKS[task]().metrics(regard.load(model).data)) == METRICS[task], "what training.metric may be"
    given = call("evaluate", model, file, "--json")
    assert json.loads(given.out)["metrics"] == record["metrics"]
    plain = call("evaluate", model, file).out.splitlines()
    assert plain[0] == f"{task} on {file}, {record['examples']} example{'s' * (record['examples'] > 1)}"
    if windows:
        assert plain.pop(1) == "windows of 11 tokens, stride 11"
    assert [line.split()[0] for line in plain[1:]] == [*record["metrics"], *(["a"] if simple else [])]
    refused = call("evaluate", model, file, "--stride", 4)
    assert (refused.code, "a stride has no effect on task" in refused.err) == ((0, False) if windows else (1, True))


def test_every_task_answers_and_is_measured_in_half_precision(call, trained):
    task, model, file = trained
    record = json.loads(call("run", model, CASES[task][2], *HALF, "--json").out)
    assert (record.keys(), record["precision"]) == ({"input", "device", "precision"} | KEYS[task], "bfloat16")
    half, full = (json.loads(call("evaluate", model, file, "--json", *more).out) for more in (HALF, ()))
    assert (half["precision"], full["precision"]) == ("bfloat16", "float32")
    assert half["metrics"] == pytest.approx(full["metrics"], rel=0.1, abs=0.5)


def test_options_of_writing_are_refused_by_tasks_that_write_nothing(call, trained):
    task, model, _ = trained
    writes = task in WRITING
    for option in (("--beams", "2"), ("--max-new-tokens", "2")):
        answer = call("run", model, CASES[task][2], *option)
        assert answer.code == (0 if writes else 1)
        assert writes or f"task '{task}' writes no text" in answer.err
    streamed = call("run", model, CASES[task][2], "--stream")
    assert streamed.code == (0 if task in ("language_modelling", "chat") else 1)


def test_a_passage_may_be_given_apart(call, trained):
    task, model, _ = trained
    answer = call("run", model, "what is it?", "--context", "it is fine.")
    if task == "question_answering":
        assert answer.out == call("run", model, CASES[task][2]).out
        assert "--context has no effect without a question" in call("run", model, "--context", "a").err
    else:
        assert answer.code == 1
        assert f"--context has no effect on task '{task}'" in answer.err


FORMS = {
    "classification": {".tsv": "fine\t0\ndull\t1\n", ".jsonl": '{"text": "fine", "label": "0"}\n' * 2},
    "language_modelling": {".json": '{"text": "fine"}\n' * 2},
    "masked": {".jsonl": '{"text": "so fine and dull and great and poor"}\n' * 2},
    "denoising": {".ndjson": '{"text": "so fine and dull and great and poor"}\n' * 2},
}


@pytest.mark.parametrize("trained", FORMS, indirect=True)
def test_a_file_is_read_as_its_name_says_unless_the_recipes_own_are_named_so(call, trained, tmp_path):
    task, model, _ = trained
    copied = tmp_path / "copied"
    shutil.copytree(model, copied)
    said = (model / "recipe.toml").read_text()
    assert 'format = "auto"' in said
    (copied / "recipe.toml").write_text(said.replace('format = "auto"', 'format = "text"'))
    for ending, content in FORMS[task].items():
        (tmp_path / f"new{ending}").write_text(content)
        answer = call("evaluate", copied, tmp_path / f"new{ending}", "--json")
        assert (answer.code, answer.err) == (0, "")
        assert json.loads(answer.out)["examples"] == 2
        assert (
            json.loads(answer.out)["metrics"]
            == json.loads(call("evaluate", model, tmp_path / f"new{ending}", "--json").out)["metrics"]
        )
        same = said.replace('format = "auto"', 'format = "text"').replace('"data.txt"', f'"data{ending}"')
        (copied / "recipe.toml").write_text(same)
        other = call("evaluate", copied, tmp_path / f"new{ending}", "--json")
        assert other.code == 1 or json.loads(other.out)["metrics"] != json.loads(answer.out)["metrics"]
        (copied / "recipe.toml").write_text(said.replace('format = "auto"', 'format = "text"'))


@pytest.mark.parametrize("trained", ["classification"], indirect=True)
def test_an_unseen_label_is_named_with_its_file_and_its_place(call, trained, tmp_path):
    _, model, _ = trained
    (tmp_path / "new.txt").write_text("0 fine\n2 maybe\n")
    answer = call("evaluate", model, tmp_path / "new.txt")
    assert answer.code == 1
    assert answer.err.startswith(f"regard: {tmp_path / 'new.txt'}: example 2: label '2' is not one the model knows")


def test_a_model_without_data_of_its_own_asks_for_a_file(call, trained, tmp_path):
    _, model, file = trained
    shutil.copytree(model, tmp_path / "copied")
    tables = (model / "recipe.toml").read_text().split("\n\n")
    (tmp_path / "copied" / "recipe.toml").write_text("\n\n".join(one for one in tables if "[data]" not in one))
    answer = call("evaluate", tmp_path / "copied")
    assert (answer.code, answer.out) == (1, "")
    assert "copied has no data of its own; give a file of examples" in answer.err
    assert call("evaluate", tmp_path / "copied", file).code == 0


@pytest.mark.parametrize("trained", ["question_answering"], indirect=True)
def test_a_question_alone_is_told_of_both_ways_to_give_a_passage(call, trained):
    _, model, _ = trained
    answer = call("run", model, "what is it?")
    assert answer.code == 1
    assert "a tab" in answer.err
    assert "--context PASSAGE" in answer.err


def test_two_files_where_one_is_measured_are_refused(call, trained):
    _, model, file = trained
    answer = call("evaluate", model, file, file)
    assert answer.code == 1
    assert "2 files are given; give one file" in answer.err
