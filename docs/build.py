"""Writes docs/reference/: one page per folder, taken from the code's own docstrings, so that they cannot disagree."""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE, PAGES = ROOT / "src" / "regard", ROOT / "docs" / "reference"


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


def main() -> None:
    """Write all pages anew."""
    PAGES.mkdir(exist_ok=True)
    for old in PAGES.glob("*.md"):
        old.unlink()
    for name, text in pages().items():
        (PAGES / name).write_text(text, encoding="utf-8")
    print(f"{PAGES.relative_to(ROOT)} has a page for every folder")


if __name__ == "__main__":
    main()
