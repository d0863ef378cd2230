"""`regard look` at a passage that does not fit into one window says what can be done, and that can be done."""

import pytest

pytest.importorskip("transformers")

from tiny_folders import write

import regard

ASKED = "What is red?\t" + "The roses by the bank are red, and the river is wide. " * 9


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write("bert spans", tmp_path_factory.mktemp("spans"))


@pytest.mark.parametrize("options", [(), ("--steps",), ("--word", "river"), ("--layer", "encoder.1.self")])
def test_several_windows_are_not_drawn_and_the_remedy_names_no_option_that_is_missing(call, folder, options, tmp_path):
    done = call("look", folder, ASKED, *options, "--to", tmp_path / "picture.png")
    assert done.code == 1
    assert "windows of a long passage" in done.err
    assert "shorter text" in done.err
    assert not list(tmp_path.iterdir())


def test_each_window_can_be_asked_for_in_python(folder):
    seen = regard.load(folder).look(ASKED)
    assert seen.sequences > 1
    for batch in range(seen.sequences):
        weights = seen.weights("encoder.0.self", 0, batch=batch)
        assert weights.sum(dim=-1).tolist() == pytest.approx([1.0] * len(weights), abs=1e-5)
