"""Equal up to rounding: the tolerance goes by the size of what is compared.

A sum of products is rounded by the size of its terms: a small entry beside large ones is off by as much as they are.
By how much differs between processors and numbers of threads, which add in orders of their own.
"""

import torch
from torch import Tensor


def assert_close(found: Tensor, expected: Tensor, tolerance: float = 1e-5, name: str = "") -> None:
    """No entry is off by more than `tolerance` of the largest one expected, or of 1 where all are smaller."""
    size = max(1.0, float(expected.detach()[expected.isfinite()].abs().amax()))
    torch.testing.assert_close(
        found, expected, atol=tolerance * size, rtol=0, msg=lambda said: f"{name}: {said}" if name else said
    )
