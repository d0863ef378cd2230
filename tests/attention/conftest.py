"""What the attention tests share."""

from collections.abc import Iterator

import pytest
import torch
from jaxtyping import config


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Tensors of a few hundred numbers: on a busy machine, waiting for a second thread takes longer than the work."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def unchecked() -> Iterator[None]:
    """The shape hook off, as for a user: what does not fit is then refused by the package itself."""
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)
