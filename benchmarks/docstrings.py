"""Docstrings to be summed up: the body of each, and its first sentence as the summary.

    python benchmarks/docstrings.py FOLDER

Of every function, class and module of the standard library and of the packages that are installed beside this one. It
writes train.jsonl, valid.jsonl and test.jsonl (text, summary, package); what is held out is packages, a tenth for valid
and a tenth for test. A body that comes twice is written once.

    regard train summary --set data.train=train.jsonl --set data.valid=valid.jsonl --set data.test=test.jsonl \\
        --set data.folder=FOLDER --out runs/docstrings
    regard evaluate runs/docstrings
"""

import argparse
import ast
import inspect
import json
import re
import sysconfig
import warnings
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

LEFT_OUT = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__", "_vendor", "pip"}
SHORTEST, LONGEST, MOST = 80, 1200, 400
"""Characters of a body, and of a package so many docstrings: else the largest would be most of them."""
SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z`*\"'(<\[0-9])|\n\s*\n")


def pairs(source: str) -> Iterator[tuple[str, str]]:
    """The body and the first sentence of every docstring that has both."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        text = inspect.cleandoc(ast.get_docstring(node, clean=False) or "")
        first, *rest = SENTENCE.split(text, maxsplit=1)
        summary, body = " ".join(first.split()), " ".join("".join(rest).split())
        both = summary + body
        if 10 <= len(summary) <= 160 and SHORTEST <= len(body) <= LONGEST and both.isascii() and both.isprintable():
            yield body, summary


def packages() -> Iterator[tuple[str, list[Path]]]:
    """The name of each package or module with its files."""
    for root in sorted({sysconfig.get_paths()["stdlib"], sysconfig.get_paths()["purelib"]}):
        for top in sorted(Path(root).iterdir()):
            if top.name not in LEFT_OUT and (top.suffix == ".py" or (top / "__init__.py").is_file()):
                inside = [top] if top.suffix == ".py" else sorted(top.rglob("*.py"))
                yield top.stem, [path for path in inside if LEFT_OUT.isdisjoint(path.relative_to(root).parts)]


def main() -> None:
    """Read what is installed, write three files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    splits: dict[str, list[dict[str, str]]] = {"train": [], "valid": [], "test": []}
    seen: set[str] = set()
    for name, files in packages():
        bucket = blake2b(name.encode(), digest_size=2).digest()[0] % 10
        rows = splits[{0: "test", 1: "valid"}.get(bucket, "train")]
        found = [pair for path in files for pair in pairs(path.read_text(encoding="utf-8", errors="ignore"))]
        for body, summary in found[:: max(1, len(found) // MOST)]:
            if body not in seen and summary not in seen:
                seen |= {body, summary}
                rows.append({"text": body, "summary": summary, "package": name})
    for split, rows in splits.items():
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        print(f"{split}: {len(rows):,} docstrings of {len({row['package'] for row in rows})} packages")


if __name__ == "__main__":
    main()
