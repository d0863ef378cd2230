"""What a tokenizer does with words it has never seen, and what a larger vocabulary buys: docs/words.md and its figure.

    python docs/words.py      measures, keeps the figures in docs/words.json, then writes the page
    python docs/build.py      writes the page and the figure again from docs/words.json

The text is the docstrings of Python's own standard library: every tenth file is held out, all others are learnt from.
"""

import ast
import json
import platform
import re
import sysconfig
import warnings
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FIGURES, PAGE, FIGURE = (ROOT / "docs" / name for name in ("words.json", "words.md", "words.svg"))

SIZES = (500, 1000, 2000, 4000, 8000, 16_000)
SHOWN = 4000
"""The vocabulary that the unseen words are cut with."""
UNSEEN = (
    *("functoin", "rosebush", "unhappiness", "untokenizable", "mispronounced", "photosynthesis"),
    *("naïvety", "Zürich", "薔薇", "🌹"),
)
KINDS = {"bpe": "BPE, bytes", "bpe_words": "BPE, words", "wordpiece": "WordPiece"}
COLUMNS = {
    "bytes_per_token": "bytes per token",
    "tokens_per_word": "tokens per word",
    "entry_length": "length of an entry",
    "unknown": "unknown",
}


def docstrings(root: Path) -> list[str]:
    """Those of each file of Python's library as one text; tests and large data-like parts are left out."""
    without = {"site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3"}
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = []
    for path in sorted(root.rglob("*.py")):
        if not without & set(path.relative_to(root).parts):
            with warnings.catch_warnings(action="ignore"):
                tree = ast.parse(path.read_bytes())
            own = [ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, kinds)]
            found.append("\n".join(filter(None, own)) + "\n")
    return [text for text in found if text.strip()]


def measure(texts: list[str], sizes: Iterable[int], shown: int, unseen: Iterable[str]) -> dict[str, Any]:
    """All figures: each kind of tokenizer at each size on what was held out, and what all make of unseen words."""
    from regard.text.registry import KINDS as TOKENIZERS
    from regard.text.word_bpe import shown as shown_pieces

    held_out, learnt = "".join(texts[::10]), [text for place, text in enumerate(texts) if place % 10]
    seen = Counter(_words("".join(learnt)))
    words = [word for word in unseen if not seen[word.lower()]]
    rows = [
        {"kind": kind, "asked": size, **compression(TOKENIZERS[kind].train(learnt, size), held_out)}
        for kind in KINDS
        for size in sizes
    ]
    pieces = {}
    for kind in KINDS:
        tokenizer = TOKENIZERS[kind].train(learnt, shown)
        of_words = {word: tokenizer.pieces(tokenizer.encode(f" {word}")) for word in words}  # as inside a text
        pieces[kind] = {word: shown_pieces(of) for word, of in of_words.items()}
    return {
        "text": f"the docstrings of Python {platform.python_version()}'s standard library",
        "learnt": {"characters": sum(map(len, learnt)), "words": seen.total(), "different": len(seen)},
        "held_out": {"characters": len(held_out), "words": len(held_out.split())},
        "shown": shown,
        "unseen": {word: {"vectors": answer, **_of(pieces, word)} for word, answer in _vectors(learnt, words).items()},
        "rows": rows,
    }


def compression(tokenizer: Any, text: str) -> dict[str, float]:
    """How many tokens a text takes, and how long the vocabulary's own entries are."""
    ids = tokenizer.encode(text)
    specials = {tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id, tokenizer.unk_id}
    entries = [tokenizer.token_bytes(token).strip() for token in range(tokenizer.size) if token not in specials]
    entries = [entry.decode("utf-8", errors="replace") for entry in entries if entry]
    return {
        "entries": tokenizer.size,
        "tokens": len(ids),
        "bytes_per_token": round(len(text.encode()) / len(ids), 3),
        "tokens_per_word": round(len(ids) / len(text.split()), 3),
        "entry_length": round(sum(map(len, entries)) / len(entries), 3),
        "unknown": sum(token == tokenizer.unk_id for token in ids),
    }


def _vectors(learnt: list[str], words: list[str]) -> dict[str, str]:
    """What word vectors of the same text answer for each word."""
    from regard.embedding.word2vec.corpus import encode_corpus
    from regard.embedding.word2vec.fit import fit
    from regard.embedding.word2vec.model import Word2VecPlan
    from regard.errors import InputError

    lines = [" ".join(_words(line)) + "\n" for text in learnt for line in text.splitlines()]
    corpus = encode_corpus(lambda: lines, min_count=2)
    vectors = fit(corpus, Word2VecPlan(width=32, min_count=2, epochs=1)).vectors
    found = {}
    for word in words:
        try:
            vectors.row(word)
        except InputError as error:
            found[word] = f"{error.problem}; {error.remedy}"
    return found


def _of(pieces: dict[str, dict[str, list[str]]], word: str) -> dict[str, list[str]]:
    return {kind: of_words[word] for kind, of_words in pieces.items()}


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


TEMPLATE = """# Words that were never seen, and what a vocabulary costs

Made by `python docs/words.py`, which keeps the figures in `docs/words.json`; `make docs` writes this page from them.
The text is {text}: {learnt:,} words to learn from, {different:,} of them different,
and every tenth file, {held_out:,} words, held out.

## The same unseen words

None of these words is in the text. Word2Vec has a vector for a word or has none: it says so, and names the nearest
spellings that have one. Byte-pair encoding and WordPiece cut a word into pieces they know, here with vocabularies of
{shown:,}. Bytes can spell everything; the others know the characters they have met, and the rest is lost to `<unk>` or
`[UNK]`. A blank is written `␣`, a byte that is no character by itself like `\\xc3`; `_` ends a word, `##` goes on with
one.

| word | BPE, bytes | BPE, words | WordPiece |
|---|---|---|---|
{unseen}

What `regard vectors neighbours` answers for them:

```text
{answers}
```

## Compression and token length against vocabulary size

On the files held out. A larger vocabulary makes fewer tokens of a text, and each doubling buys less. Learning stops
before the size asked for where no pair occurs twice. Length is in characters, the mean over a vocabulary's entries
without special tokens, blanks and marks. Words and WordPiece drop what blanks there were, WordPiece capitals too, so
their tokens stand for more bytes than they carry; those of BPE over bytes give every text back.

![Bytes per token, tokens per word and length of an entry, each over the size of the vocabulary](words.svg)

| kind | asked | entries | {columns} |
|---|---:|---:|---:|---:|---:|---:|
{rows}
"""


def page(found: dict[str, Any]) -> str:
    """The page that figures give."""
    unseen = [
        f"| {word} | {' | '.join(' · '.join(map(_shown, of[kind])) for kind in KINDS)} |"
        for word, of in found["unseen"].items()
    ]
    rows = [
        f"| {KINDS[row['kind']]} | {row['asked']:,} | {row['entries']:,} | {row['bytes_per_token']:.2f} "
        f"| {row['tokens_per_word']:.2f} | {row['entry_length']:.2f} | {row['unknown']:,} |"
        for row in found["rows"]
    ]
    return TEMPLATE.format(
        text=found["text"],
        learnt=found["learnt"]["words"],
        different=found["learnt"]["different"],
        held_out=found["held_out"]["words"],
        shown=found["shown"],
        unseen="\n".join(unseen),
        answers="\n".join(of["vectors"] for of in found["unseen"].values()),
        columns=" | ".join(COLUMNS.values()),
        rows="\n".join(rows),
    )


def _shown(piece: str) -> str:
    return f"`{piece.replace(' ', '␣').replace('|', chr(92) + '|')}`"


def draw(found: dict[str, Any], path: Path) -> None:
    """The figure: what is measured over the vocabulary's size, a line for each kind; the same file every time."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names = list(COLUMNS)[:3]
    styles = dict(zip(KINDS, (("#1f77b4", "o"), ("#d95f02", "s"), ("#2a7f3f", "^")), strict=True))
    figure = Figure(figsize=(10.5, 3.4), layout="constrained")
    FigureCanvasAgg(figure)
    sizes = sorted({row["asked"] for row in found["rows"]})
    for axis, name in zip(figure.subplots(1, 3), names, strict=True):
        for kind, (colour, marker) in styles.items():
            rows = [row for row in found["rows"] if row["kind"] == kind]
            points = [row["asked"] for row in rows], [row[name] for row in rows]
            axis.plot(*points, color=colour, marker=marker, markersize=4, label=KINDS[kind])
        axis.set_xscale("log", base=2)
        axis.set_xticks(sizes, [f"{size / 1000:g}k" for size in sizes])
        axis.set_title(COLUMNS[name], fontsize=10)
        axis.set_xlabel("vocabulary asked for", fontsize=9)
        axis.grid(alpha=0.25)
        axis.tick_params(labelsize=8)
    figure.axes[0].legend(fontsize=8, frameon=False)
    with matplotlib.rc_context({"svg.hashsalt": "words"}):
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=130)


def write() -> None:
    """The page and the figure, from the figures that are kept."""
    found = json.loads(FIGURES.read_text(encoding="utf-8"))
    PAGE.write_text(page(found), encoding="utf-8")
    draw(found, FIGURE)


def main() -> None:
    """Measure, keep the figures, write the page."""
    found = measure(docstrings(Path(sysconfig.get_path("stdlib"))), SIZES, SHOWN, UNSEEN)
    FIGURES.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    write()
    print(f"{PAGE.relative_to(ROOT)} and {FIGURE.relative_to(ROOT)} are written")


if __name__ == "__main__":
    main()
