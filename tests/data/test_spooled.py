"""A text that stays on the disk gives the tokens and the splits that it gives in memory, and takes no memory."""

import json
import subprocess
import sys

import pytest

from regard.data import sources, spooled
from regard.data.sources import read_documents
from regard.data.splits import TextDocument, hold_out_documents
from regard.data.spooled import Spooled, SpooledDocuments
from regard.data.windows import TokenStream
from regard.text import counting
from regard.text.tokenizer import Tokenizer

WORDS = ["the", "cat", "é", "sat\n", "on", "", "a", "mat,", "日本", "3", "mars"]
TEXT = "\n\n".join(" ".join(WORDS[(n + k) % len(WORDS)] for k in range(n % 17 + 3)) for n in range(157))


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train([TEXT], 300)


@pytest.mark.parametrize(("name", "format"), [("a.txt", "text"), ("a.txt", "whole"), ("a.jsonl", "jsonl")])
def test_texts_on_the_disk_give_the_same_tokens(tmp_path, tokenizer, name, format, monkeypatch):
    path = tmp_path / name
    rows = "".join(json.dumps({"text": text}) + "\n" for text in TEXT.split("\n\n"))
    path.write_text(rows if format == "jsonl" else TEXT)
    begun = {"begin": True, "end": format != "whole"}
    inside = TokenStream.of(read_documents(path, format), tokenizer, **begun)
    monkeypatch.setattr(spooled, "LARGE", 1)
    monkeypatch.setattr(sources, "read_texts", lambda paths, block: counting.read_texts(paths, 97))
    monkeypatch.setattr(counting, "LONGEST_WORD", 31)
    found = read_documents(path, format)
    assert isinstance(found, Spooled)
    assert len(found) > 20
    outside = TokenStream.of(found, tokenizer, **begun)
    assert outside.ids.tolist() == inside.ids.tolist()
    assert (outside.documents is None) == (inside.documents is None)
    if inside.documents is not None:
        assert outside.documents.tolist() == inside.documents.tolist()


def test_slices_are_views_and_splits_are_those_of_a_list():
    texts = TEXT.split("\n\n")
    documents = SpooledDocuments(Spooled.of(texts))
    assert [one.text for one in documents] == texts
    assert [one.text for one in documents[3:-2][1:]] == texts[4:-2]
    assert documents[-1] == TextDocument(texts[-1])
    for share in (None, 0.7):
        inside = hold_out_documents([TextDocument(text) for text in texts], share, 0)
        outside = hold_out_documents(documents, share, 0)
        assert [list(side) for side in outside] == [list(side) for side in inside]


PEAK = """
import resource, sys
import regard
from regard.data import spooled
spooled.LARGE = int(sys.argv[2])
changes = ["tokenizer.size=300", "tokenizer.sample=1", "model.layers=1", "model.width=16", "model.heads=2",
           "model.feedforward_width=16", "training.steps=3", "training.warmup=1", "training.evaluate_every=3",
           "training.save_every=3", "training.batch_tokens=512"]
regard.train("gpt", sys.argv[3], changes=changes, data=[sys.argv[1]], progress=False)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["txt", "parquet"])
def test_training_on_a_large_file_takes_no_more_memory_than_on_a_small_one(tmp_path, kind):
    lines = [f"{n % 997} the cat sat on mat {n % 97} and {n % 89} were there" for n in range(300_000)]
    peaks = {}
    for name, part in (("small", lines[:6000]), ("large", lines)):
        path = tmp_path / f"{name}.{kind}"
        if kind == "parquet":
            pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
            pq.write_table(pa.table({"text": part}), path, row_group_size=4096)
        else:
            path.write_text("\n".join(part))
        command = [sys.executable, "-c", PEAK, str(path), "1", str(tmp_path / f"run {name}")]
        peaks[name] = int(subprocess.run(command, check=True, capture_output=True).stdout)
    size = sum(map(len, lines))
    assert size > 10 * 2**20
    assert peaks["large"] - peaks["small"] < 3 * size  # in memory texts, ids and Python's strings take some 15 times it
