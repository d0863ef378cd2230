"""Writes what the docs take from elsewhere, so that they cannot disagree with it.

docs/reference/       one page per folder, from the code's own docstrings; not committed
docs/benchmarks.md    the tables of benchmarks/results/*.json; committed, and a test asks whether it is still theirs
docs/words.md         likewise the page and the figure of docs/words.json, which docs/words.py measures
"""

import ast
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import words

ROOT = Path(__file__).resolve().parents[1]
PACKAGE, PAGES = ROOT / "src" / "regard", ROOT / "docs" / "reference"
RESULTS, BENCHMARKS = ROOT / "benchmarks" / "results", ROOT / "docs" / "benchmarks.md"


def pages() -> dict[str, str]:
    """File name and content of every page."""
    folders = sorted(path for path in PACKAGE.iterdir() if (path / "__init__.py").is_file())
    found = {f"{folder.name}.md": page(folder) for folder in folders}
    top = [file for file in sorted(PACKAGE.glob("*.py")) if not file.name.startswith("__")]
    found["regard.md"] = "\n".join(["# regard", "", docstring(PACKAGE / "__init__.py"), "", *map(section, top)])
    return found


def page(folder: Path) -> str:
    """A folder: its sentence, then every file."""
    files = [file for file in sorted(folder.glob("*.py")) if file.name != "__init__.py"]
    return "\n".join([f"# {folder.name}/", "", docstring(folder / "__init__.py"), "", *map(section, files)])


def section(file: Path) -> str:
    """A file: what it says of itself, then the first line of every public class and function."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    kinds = (ast.ClassDef, ast.FunctionDef)
    names = [node for node in tree.body if isinstance(node, kinds) and not node.name.startswith("_")]
    lines = [f"- `{signature(node)}`: {(ast.get_docstring(node) or '').splitlines()[0]}" for node in names]
    return "\n".join([f"## {file.stem}", "", "```text", docstring(file), "```", "", *lines, ""])


def signature(node: ast.ClassDef | ast.FunctionDef) -> str:
    """`name(arguments)` of a function, `class name` of a class."""
    if isinstance(node, ast.ClassDef):
        return f"class {node.name}"
    arguments = [*node.args.args, *node.args.kwonlyargs]
    return f"{node.name}({', '.join(argument.arg for argument in arguments)})"


def docstring(file: Path) -> str:
    """What a file says at its top."""
    return ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""


def benchmarks(folder: Path) -> str:
    """All results as one page: for each file how it was made, then a table."""
    intro = (
        "Made by `make docs` from `benchmarks/results`, which `make bench` writes; every file there holds the raw "
        "rounds too. A figure is the median of rounds in which all contestants took turns in one run. The ratio is how "
        "many times regard's time a contestant takes, regard's being that of its own faster precision; \\* marks the "
        "faster precision of each. On a shared machine trust ratios."
    )
    files = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*.json"))]
    return "\n".join(["# Side by side", "", intro, *map(results, files)]) + "\n"


def results(found: dict[str, Any]) -> str:
    """One file: its circumstances, and a row for every figure."""
    known = {name: value for name, value in found.items() if name not in ("command", "device", "rows")}
    made = f"{found['device']}; {', '.join(f'{name} {value}' for name, value in known.items())}"
    rows = [f"| {row['what']} | {contestant(row)} | {figure(row)} | {row['ratio']:.2f} |" for row in found["rows"]]
    head = ["| what | contestant | figure | ratio |", "|---|---|---:|---:|"]
    return "\n".join(["", f"## `{found['command'].split(' --out')[0]}`", "", made, "", *head, *rows])


def contestant(row: dict[str, Any]) -> str:
    """Its name, with its precision or kernel where that is known."""
    named = [row["contestant"], *(str(row[what]) for what in ("precision", "kernel") if what in row)]
    return ", ".join(named) + (" \\*" if row.get("faster") else "")


def figure(row: dict[str, Any]) -> str:
    """Tokens per second, milliseconds, bytes, or what a row says itself."""
    if "figure" in row:
        return str(row["figure"])
    if "tokens_per_second" in row:
        return f"{row['tokens_per_second']:,.0f} tokens/s"
    return f"{row['milliseconds']:.2f} ms" if "milliseconds" in row else f"{row['extra_peak_bytes']:,} B"


def main() -> None:
    """Write all pages anew."""
    PAGES.mkdir(exist_ok=True)
    for old in PAGES.glob("*.md"):
        old.unlink()
    for name, text in pages().items():
        (PAGES / name).write_text(text, encoding="utf-8")
    BENCHMARKS.write_text(benchmarks(RESULTS), encoding="utf-8")
    words.write()
    print(f"{PAGES.relative_to(ROOT)} has a page for every folder")


if __name__ == "__main__":
    main()
