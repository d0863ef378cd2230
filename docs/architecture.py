"""Draws docs/architecture.svg from the source: the folders in their order, and an arc where one uses another.

Run by `make docs`. The order and what each folder is for are read from CONTRIBUTING.md and the folders themselves, so
the picture cannot disagree with the code.
"""

import ast
import re
from collections import Counter
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[1]
PACKAGE, PICTURE = ROOT / "src" / "regard", ROOT / "docs" / "architecture.svg"
ROW, LEFT, WIDTH, TOP = 34, 12, 480, 8


def order() -> list[str]:
    """The folders of the package, in the order CONTRIBUTING.md says them: who may be imported by whom."""
    said = re.search(r"The order is `([^`]+)`", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    assert said is not None, "CONTRIBUTING.md no longer says the order of the folders"
    names = re.split(r",\s+", said.group(1))
    return [name for name in names if (PACKAGE / name / "__init__.py").is_file() and any(sources(name))]


def sources(folder: str) -> list[Path]:
    """The files of a folder that have code."""
    return [path for path in sorted((PACKAGE / folder).rglob("*.py")) if path.name != "__init__.py"]


def purpose(folder: str) -> str:
    """What a folder says it is for: the first sentence of its own docstring."""
    said = ast.get_docstring(ast.parse((PACKAGE / folder / "__init__.py").read_text(encoding="utf-8"))) or ""
    return said.partition("\n")[0].rstrip(".")


def uses() -> Counter[tuple[str, str]]:
    """How many import statements of one folder name another."""
    folders, found = order(), Counter[tuple[str, str]]()
    for folder in folders:
        for path in sources(folder):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("regard."):
                    other = str(node.module).split(".")[1]
                    if other in folders and other != folder:
                        found[folder, other] += 1
    return found


def picture() -> str:
    """The drawing: one line a folder, arcs at the right from the one that uses to the one that is used."""
    folders, arcs = order(), uses()
    height = TOP * 2 + ROW * len(folders)
    middle = {name: TOP + ROW * place + ROW / 2 for place, name in enumerate(folders)}
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 {height}" role="img" '
        'font-family="system-ui, sans-serif">',
        "<title>The folders of Regard, top to bottom in the order data takes, and which uses which</title>",
        "<style>text{fill:#24292f}rect{fill:#f6f8fa;stroke:#d0d7de}path{stroke:#0969da}.note{fill:#57606a}"
        "@media(prefers-color-scheme:dark){text{fill:#e6edf3}rect{fill:#161b22;stroke:#30363d}path{stroke:#58a6ff}"
        ".note{fill:#8b949e}}</style>",
    ]
    for (user, used), count in sorted(arcs.items(), key=lambda arc: arc[1]):
        reach = 26 + 15 * abs(folders.index(user) - folders.index(used))
        edge = LEFT + WIDTH
        parts.append(
            f'<path d="M{edge} {middle[user]:.0f} C{edge + reach} {middle[user]:.0f} {edge + reach} '
            f'{middle[used]:.0f} {edge} {middle[used]:.0f}" fill="none" '
            f'stroke-width="{min(0.6 + count / 8, 4):.1f}" stroke-opacity="0.35">'
            f"<title>{user} imports {used} {count} times</title></path>"
        )
    for name in folders:
        y, said = middle[name], escape(clipped(purpose(name)))
        parts += [
            f'<rect x="{LEFT}" y="{y - ROW / 2 + 3:.0f}" width="{WIDTH}" height="{ROW - 6}" rx="5"/>',
            f'<text x="{LEFT + 10}" y="{y + 5:.0f}" font-size="14" font-weight="600">{name}</text>',
            f'<text class="note" x="{LEFT + 108}" y="{y + 4:.0f}" font-size="11">{said}</text>',
        ]
    return "\n".join([*parts, "</svg>"]) + "\n"


def clipped(sentence: str, longest: int = 58) -> str:
    """As much of a sentence as fits, to its last whole word."""
    if len(sentence) <= longest:
        return sentence
    return sentence[:longest].rpartition(" ")[0].rstrip(",;:") + " …"


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
