"""Every signature's shapes are checked while the tests run: jaxtyping's import hook with beartype, package-wide.

With REGARD_SHAPES=off they are not: torch.compile cannot read what the hook makes of a function (tests/compiled).
REGARD_THREADS says on how many threads torch computes, here and in processes that tests start; one if it is not set.
"""

import os

import pytest
import torch
from hypothesis import settings
from jaxtyping import install_import_hook

if os.environ.get("REGARD_SHAPES") != "off":
    install_import_hook("regard", "beartype.beartype")

settings.register_profile("regard", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("regard")
os.environ["OMP_NUM_THREADS"] = os.environ.get("REGARD_THREADS", "1")  # small tensors: a second thread costs more time
torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(20170612)
