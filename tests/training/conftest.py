"""Small pools, and an undisturbed run to compare with."""

from pathlib import Path

import pytest
from tiny_runs import real

from regard.data import stream


@pytest.fixture(autouse=True)
def _small_pools(monkeypatch):
    monkeypatch.setattr(stream, "POOL", 128)


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory) -> Path:
    """The folder of `real` trained without a break; copy it before changing it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "POOL", 128)
        folder = tmp_path_factory.mktemp("undisturbed")
        real(folder).fit()
        return folder
