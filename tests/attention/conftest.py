"""What the attention tests share."""

from collections.abc import Iterator

import pytest
from jaxtyping import config

from regard.attention import gathered


@pytest.fixture(autouse=True)
def _small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles of three by three, so that a handful of tokens has empty, full and ragged ones."""
    monkeypatch.setattr(gathered, "SIZE", 3)


@pytest.fixture
def unchecked() -> Iterator[None]:
    """The shape hook off, as for a user: what does not fit is then refused by the package itself."""
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)
