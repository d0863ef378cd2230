"""Whoever waits for Numba is told what for, and only where nothing is kept."""

import os

import pytest

from regard.text import training
from regard.text.compiling import announce, announcing, is_kept

numba = pytest.importorskip("numba")

SOURCE = """
import numba

@numba.njit(cache=True)
def double(number):
    return 2 * number
"""


@pytest.fixture
def kernels(tmp_path, monkeypatch):
    """The same file loaded again and again, as by one process after the other."""
    (tmp_path / "kernel.py").write_text(SOURCE)

    def load():
        space = {"__name__": "kernel", "__file__": str(tmp_path / "kernel.py")}
        exec(compile(SOURCE, str(tmp_path / "kernel.py"), "exec"), space)
        return space["double"]

    return load


def test_a_kernel_is_announced_until_it_is_kept(kernels, tmp_path):
    said: list[str] = []
    first = kernels()
    announce(first, "the kernel", 15)
    with announcing(said.append):
        announce(first, "the kernel", 15)
    assert said == ["compiling the kernel, once: about 15 s"]
    assert not is_kept(first)
    assert first(3) == 6
    assert is_kept(first)
    second = kernels()
    assert is_kept(second), "the next process finds it"
    later = (tmp_path / "kernel.py").stat().st_mtime + 1000
    os.utime(tmp_path / "kernel.py", (later, later))
    assert not is_kept(second), "of a file that was changed it is compiled again"
    with announcing(said.append):
        announce(first, "the kernel", 15)
    assert len(said) == 1


def test_what_the_tokenizers_learner_compiles_is_where_it_says():
    """A module that is not found is done without, so that its name must be right."""
    for name in training.COMPILED:
        found = training._compiled(
            name, {"bpe_numba": "learn", "pretokenize_numba": "count"}[name], lambda module: module
        )
        assert found is not None, name
