"""What the files of a tokenizer say and nothing here reads comes through `convert`, to Regard's folder and back."""

import json
import logging

import pytest

transformers = pytest.importorskip("transformers")

from tiny_folders import write  # noqa: E402

import regard  # noqa: E402

logging.getLogger("transformers").setLevel(logging.ERROR)
TEMPLATE = "{% for message in messages %}<|{{ message['role'] }}|>\n{{ message['content'] }}é{% endfor %}"
CHAT = [{"role": "user", "content": "What is wide?"}, {"role": "assistant", "content": "The river."}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write("llama", tmp_path_factory.mktemp("huggingface"))


def told(folder, into, **settings):
    """A copy of the folder whose tokenizer says more, written by transformers."""
    into.mkdir()
    for file in folder.iterdir():
        (into / file.name).symlink_to(file)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (into / name).unlink()
        (into / name).write_bytes((folder / name).read_bytes())
    tokenizer = transformers.AutoTokenizer.from_pretrained(into)
    for key, value in settings.items():
        setattr(tokenizer, key, value)
    tokenizer.backend_tokenizer.enable_truncation(17, stride=3, direction="left")
    tokenizer.backend_tokenizer.enable_padding(length=19, pad_token="</s>", pad_id=2)
    tokenizer.save_pretrained(into)
    return into


@pytest.mark.parametrize("one_file", [True, False])
def test_chat_template_sides_and_limits_survive_both_ways(folder, one_file, call, tmp_path):
    sides = {"padding_side": "left", "truncation_side": "left", "model_max_length": 53}
    before = told(folder, tmp_path / "before", chat_template=TEMPLATE, **sides)
    if one_file:  # as older versions write it
        said = json.loads((before / "tokenizer_config.json").read_text()) | {"chat_template": TEMPLATE}
        (before / "tokenizer_config.json").write_text(json.dumps(said))
        (before / "chat_template.jinja").unlink()
    assert call("convert", before, tmp_path / "own").code == 0
    assert call("convert", tmp_path / "own", tmp_path / "after", "--to", "huggingface").code == 0
    first, last = (transformers.AutoTokenizer.from_pretrained(one) for one in (before, tmp_path / "after"))
    for key in ("chat_template", *sides):
        assert getattr(last, key) == getattr(first, key), key
    assert last.apply_chat_template(CHAT, tokenize=False) == first.apply_chat_template(CHAT, tokenize=False)
    files = [json.loads((one / "tokenizer.json").read_text()) for one in (before, tmp_path / "after")]
    for key in ("truncation", "padding"):
        assert files[1][key] == files[0][key] is not None, key


def test_what_is_kept_changes_nothing_here(folder, tmp_path):
    model = regard.load(folder)
    other = regard.load(told(folder, tmp_path / "told", chat_template=TEMPLATE, padding_side="left"))
    texts = ["The river is wide and the roses by the bank are red, all of them, and low", "low"]
    assert other.tokenizer.encode_batch(texts) == model.tokenizer.encode_batch(texts)


def test_special_tokens_in_a_prompt_are_read_where_that_is_asked_for(folder, call):
    model = regard.load(folder)
    text = "The river</s>is wide"
    parsing = model.tokenizer.parsing_special_tokens
    peer = transformers.AutoTokenizer.from_pretrained(folder)
    assert parsing.encode(text) == peer(text, add_special_tokens=False)["input_ids"]
    asked = model.run(text, special_tokens=True, max_new_tokens=7)
    found = call("run", folder, text, "--special-tokens", "--max-new-tokens", 7)
    assert (found.code, found.out) == (0, f"{asked}\n")
    assert asked != model.run(text, max_new_tokens=7)
