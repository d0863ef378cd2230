"""Writes what the docs take from elsewhere, so that they cannot disagree with it.

docs/reference/       one page per folder, from the code's own docstrings; not committed
docs/benchmarks.md    the tables of benchmarks/results/*.json; committed, and a test asks whether it is still theirs
README.md             likewise the lines between its two marks, the headlines of these results
docs/mechanisms.md    likewise how mechanisms grow, of those that are called mechanisms-*.json, by docs/mechanisms.py
docs/keys.md          likewise every key of a recipe, from the classes that read it
docs/doctor.md        likewise every law, between the page's two marks, from the table that the doctor and the tests use
docs/words.md         likewise the page and the figure of docs/words.json, which docs/words.py measures
docs/architecture.svg the folders and what uses what, drawn by docs/architecture.py
"""

import ast
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import architecture
import mechanisms
import words

ROOT = Path(__file__).resolve().parents[1]
PACKAGE, PAGES = ROOT / "src" / "regard", ROOT / "docs" / "reference"
RESULTS, BENCHMARKS = ROOT / "benchmarks" / "results", ROOT / "docs" / "benchmarks.md"
MECHANISMS, GROWTH = ROOT / "docs" / "mechanisms.md", "mechanisms-"
README, KEYS, DOCTOR = ROOT / "README.md", ROOT / "docs" / "keys.md", ROOT / "docs" / "doctor.md"


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
    """`name(arguments) -> result` of a function with its types; of a class, what it is made from."""
    if isinstance(node, ast.FunctionDef):
        result = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
        return f"{node.name}({ast.unparse(node.args)}){result}"
    made = next((one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"), None)
    if made is not None:
        return f"class {node.name}({ast.unparse(made.args).removeprefix('self').removeprefix(', ')})"
    fields = [
        f"{ast.unparse(one.target)}: {ast.unparse(one.annotation)}"
        for one in node.body
        if isinstance(one, ast.AnnAssign)
    ]
    return f"class {node.name}({', '.join(fields)})"


def docstring(file: Path) -> str:
    """What a file says at its top."""
    return ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""


HEADLINES = (
    ("attention-cpu", "causal window 256", "sdpa, dense mask", "attention in a causal window of 256, 8,192 tokens"),
    (
        "attention-h200",
        "causal, 16384 tokens, heads of 64, bfloat16, forward+",
        "flash",
        "causal attention, 16,384 tokens",
    ),
    ("train-cpu", "training, encoder-decoder", "nn.Transformer", "training an encoder–decoder, 3 + 3 layers × 256"),
    ("train-cpu", "training, decoder", "x-transformers", "training a decoder, 6 layers × 256"),
    ("decoding-h200", "decoding, GPT-2 124M, bfloat16, 64 ×", "transformers", "decoding 64 texts by GPT-2's size"),
    ("tokenizer-cpu", "training 16000 BPE", "tokenizers", "learning 16,000 BPE entries from 20 MB"),
    ("tokenizer-cpu", "encoding documents of 20 kB", "tiktoken, in threads", "encoding documents of 20 kB"),
    ("vectors-cpu", "Word2Vec, skip-gram", "gensim", "Word2Vec, skip-gram, with negative sampling"),
)
"""What a reader wants to know first: of which file, which row, beside whom, and in which words."""


def headlines(folder: Path) -> str:
    """The few lines that open the page of results and stand in the README."""
    lines = ["| on one machine, in one run | regard | the peer | times as fast |", "|---|---:|---:|---:|"]
    for file, what, peer, said in HEADLINES:
        found = json.loads((folder / f"{file}.json").read_text(encoding="utf-8"))
        rows = [row for row in found["rows"] if row["what"].startswith(what)]
        rows = [row for row in rows if row["what"] == rows[0]["what"]]
        own, other = (fastest(rows, name) for name in ("regard", peer))
        where = "two CPU cores" if found["device"].startswith("CPU") else found["device"]
        times = other["ratio"] / own["ratio"]
        lines.append(f"| {said}, {where} | {figure(own)} | {peer}: {figure(other)} | {times:.1f} |")
    return "\n".join(lines)


def fastest(rows: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """A contestant's best row: that of its faster precision where it has two."""
    return min((row for row in rows if row["contestant"] == name), key=lambda row: float(row["ratio"]))


BEGIN, END = "<!-- headlines: made by `make docs` from benchmarks/results -->", "<!-- end of headlines -->"


def readme(text: str, lines: str) -> str:
    """The README with these lines between its two marks."""
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n{lines}\n{END}{rest.partition(END)[2]}"


def benchmarks(folder: Path) -> str:
    """All results as one page: for each file how it was made, then a table."""
    intro = (
        "Made by `make docs` from `benchmarks/results`, which `make bench` writes; every file there holds the raw "
        "rounds too. A figure is the median of rounds in which all contestants took turns in one run. The ratio is how "
        "many times regard's time a contestant takes, regard's being that of its own faster precision; \\* marks the "
        "faster precision of each. On a shared machine trust ratios."
    )
    there = [file for file in sorted(folder.glob("*.json")) if not file.name.startswith(GROWTH)]
    files = [json.loads(file.read_text(encoding="utf-8")) for file in there]
    first = [headlines(folder), ""] if folder == RESULTS else []
    return "\n".join(["# Side by side", "", *first, intro, *map(results, files)]) + "\n"


def mechanisms_page(folder: Path) -> str:
    """What `regard bench attention` measured by length."""
    return mechanisms.page(grown(folder))


def grown(folder: Path) -> list[tuple[str, dict[str, Any]]]:
    """The files of results on growth, by their names."""
    files = [(file.stem.removeprefix(GROWTH), file) for file in sorted(folder.glob(f"{GROWTH}*.json"))]
    return [(name, json.loads(file.read_text(encoding="utf-8"))) for name, file in files]


def results(found: dict[str, Any]) -> str:
    """One file: its circumstances, and a row for every figure."""
    said = {name: value for name, value in found.items() if not isinstance(value, (list, dict))}
    known = {name: value for name, value in said.items() if name not in ("command", "device")}
    made = f"{found['device']}; {', '.join(f'{name} {value}' for name, value in known.items())}"
    rows = [f"| {subject(row)} | {contestant(row)} | {figure(row)} | {ratio(row)} |" for row in found["rows"]]
    head = ["| what | contestant | figure | ratio |", "|---|---|---:|---:|"]
    return "\n".join(["", f"## `{found['command'].split(' --out')[0]}`", "", made, "", *head, *rows])


def subject(row: dict[str, Any]) -> str:
    """What was measured, with the length where it was measured at several."""
    return row["what"] + (f", {row['tokens']:,} tokens" if "tokens" in row else "")


def contestant(row: dict[str, Any]) -> str:
    """Its name, with its precision or kernel where that is known."""
    named = [row["contestant"], *(str(row[what]) for what in ("precision", "kernel") if what in row)]
    return ", ".join(named) + (" \\*" if row.get("faster") else "")


def ratio(row: dict[str, Any]) -> str:
    """How many times regard's time it takes; nothing of a figure that has no other beside it."""
    return f"{row['ratio']:.2f}" if "ratio" in row else ""


def figure(row: dict[str, Any]) -> str:
    """Tokens per second, milliseconds, bytes, or what a row says itself."""
    if "figure" in row:
        return str(row["figure"])
    if "tokens_per_second" in row:
        return f"{row['tokens_per_second']:,.0f} tokens/s"
    if "milliseconds" in row:
        return f"{row['milliseconds']:.2f} ms"
    return f"{max(row['extra_peak_bytes'], 0) / 2**20:.0f} MiB more at the peak"


def keys_page() -> str:
    """Every key of a recipe: its table, what it may be, what it is if absent, and what it means."""
    from regard.tasks.keys import keys

    said = "Made by `make docs` from the classes that read a recipe, as `regard list keys` is."
    lines = ["# Every key of a recipe", "", said]
    table = ""
    for key in keys():
        if key.table != table:
            table = key.table
            lines += ["", f"## [{table}]", "", "| key | is | if absent | means |", "|---|---|---|---|"]
        kind, meaning = (one.replace("|", "\\|") for one in (key.kind, key.meaning))
        lines.append(f"| `{key.name}` | {kind} | `{key.shown}` | {meaning} |")
    return "\n".join(lines) + "\n"


LAWS_BEGIN, LAWS_END = "<!-- laws: made by `make docs` from inspection/laws -->", "<!-- end of laws -->"


def doctor_page(text: str) -> str:
    """The page with a row for every law: what it says, what is measured, and what is wrong where it is broken."""
    from regard.inspection.laws import LAWS

    lines = ["| law | says | measured, at most | where it is broken, most likely |", "|---|---|---|---|"]
    for law in LAWS:
        causes = [f"{how}: {cause}" if how else cause for how, cause in law.causes.items()]
        size = f"{law.tolerance:g} {law.unit}"
        lines.append(f"| `{law.name}` | {law.statement} | {size} | {'<br>'.join(causes)} |")
    before, _, rest = text.partition(LAWS_BEGIN)
    return "\n".join([before + LAWS_BEGIN, *lines, LAWS_END + rest.partition(LAWS_END)[2]])


def main() -> None:
    """Write all pages anew."""
    PAGES.mkdir(exist_ok=True)
    for old in PAGES.glob("*.md"):
        old.unlink()
    for name, text in pages().items():
        (PAGES / name).write_text(text, encoding="utf-8")
    BENCHMARKS.write_text(benchmarks(RESULTS), encoding="utf-8")
    MECHANISMS.write_text(mechanisms_page(RESULTS), encoding="utf-8")
    from regard.views.growth import draw_growth

    for name, found in grown(RESULTS):
        figure = draw_growth(found["rows"], "Attention by length", found["device"])
        figure.savefig(MECHANISMS.with_name(f"growth-{name}.png"), metadata={"Software": None})
    KEYS.write_text(keys_page(), encoding="utf-8")
    DOCTOR.write_text(doctor_page(DOCTOR.read_text(encoding="utf-8")), encoding="utf-8")
    README.write_text(readme(README.read_text(encoding="utf-8"), headlines(RESULTS)), encoding="utf-8")
    architecture.PICTURE.write_text(architecture.picture(), encoding="utf-8")
    words.write()
    print(f"{PAGES.relative_to(ROOT)} has a page for every folder")


if __name__ == "__main__":
    main()
