"""Code that Numba compiled and kept: what cannot be read is compiled anew and kept again."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("numba")

PROGRAM = """
from regard.compiled import cached_njit

def twice(number):
    return 2 * number

part = cached_njit(twice, {})
"""


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("program", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("ending", ["nbi", "nbc"])
@pytest.mark.parametrize("left", [0, 7, 61])
def test_half_a_file_is_as_good_as_none(ending, left, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    first = loaded(program).part
    assert first(21) == 42
    kept = next(tmp_path.rglob(f"*.{ending}"))
    whole = kept.stat().st_size
    again = loaded(program).part
    assert (again(21), sum(again.stats.cache_hits.values())) == (42, 1)
    kept.write_bytes(kept.read_bytes()[:left])
    broken = loaded(program).part
    assert (broken(21), sum(broken.stats.cache_hits.values())) == (42, 0)
    assert kept.stat().st_size == pytest.approx(whole, rel=0.1)
    mended = loaded(program).part
    assert (mended(21), sum(mended.stats.cache_hits.values())) == (42, 1)


def test_everything_that_numba_compiles_here_is_kept_so():
    from regard.compiled import MendingCache
    from regard.embedding.word2vec import draws, kernel
    from regard.text import bpe_numba, pretokenize_numba

    for module in (bpe_numba, pretokenize_numba, draws, kernel):
        parts = [one for one in vars(module).values() if hasattr(one, "py_func")]
        assert parts
        assert all(isinstance(one._cache, MendingCache) for one in parts), module
