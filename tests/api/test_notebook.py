"""Notebooks: objects show themselves, and the one in the documentation runs from its first cell to its last."""

import os
from pathlib import Path

import nbformat
import pytest
from IPython.core.interactiveshell import InteractiveShell
from nbclient import NotebookClient

from small_models import small_model

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "docs" / "notebook.ipynb"


def test_models_recordings_and_tokenizers_are_shown_as_html():
    model = small_model("translation")
    show = InteractiveShell.instance().display_formatter.format
    try:
        shown = {name: show(one)[0] for name, one in vars(model).items() if name == "tokenizer"}
        shown |= {"model": show(model)[0], "recording": show(model.look("mars"))[0]}
    finally:
        InteractiveShell.clear_instance()
    assert shown["model"]["text/html"].startswith("<table>")
    assert shown["recording"]["text/html"].startswith("<iframe srcdoc=")
    assert "<code>" in shown["tokenizer"]["text/html"]
    assert all(one["text/plain"].startswith("<") for one in shown.values())


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict]]:
    """The outputs of every cell, by the last line of its code."""
    paths = [str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(paths))
        patch.setenv("OMP_NUM_THREADS", "1")
        notebook = nbformat.read(NOTEBOOK, as_version=4)
        NotebookClient(notebook, timeout=300, resources={"metadata": {"path": tmp_path_factory.mktemp("n")}}).execute()
    return {one.source.splitlines()[-1]: one.outputs for one in notebook.cells if one.cell_type == "code"}


def test_a_notebook_shows_a_model_a_recording_and_a_picture_inline(cells):
    assert "<table><caption>Model</caption>" in cells["model"][0]["data"]["text/html"]
    assert cells["seen"][0]["data"]["text/html"].startswith('<iframe srcdoc="&lt;!doctype html')
    assert cells['Image("attention.png")'][0]["data"]["image/png"].startswith("iVBORw0KGgo")


def test_training_in_a_notebook_tells_how_it_goes(cells):
    [training] = [outputs for line, outputs in cells.items() if line.startswith("model = regard.train")]
    said = "".join(one.get("text", "") for one in training)
    assert "step     40  training loss" in said
    assert "Install" not in said  # of a widget that a bar would need


def test_the_notebook_is_kept_without_outputs():
    for cell in nbformat.read(NOTEBOOK, as_version=4).cells:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None
