"""The mean of several states' weights: often better than any one of them (Vaswani et al. 2017, §6.1)."""

from collections.abc import Iterable

from torch import Tensor


def mean(several: Iterable[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Tensor by tensor, added in float64 in the order given and rounded once; whole numbers are the last one's."""
    sums: dict[str, Tensor] = {}
    last: dict[str, Tensor] = {}
    count = 0
    for last in several:
        count += 1
        for name, tensor in last.items():
            if tensor.is_floating_point():
                sums[name] = sums[name].add_(tensor) if name in sums else tensor.double()
    return {name: (sums[name] / count).to(tensor.dtype) if name in sums else tensor for name, tensor in last.items()}
