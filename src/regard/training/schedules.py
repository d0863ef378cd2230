"""The learning rate over time: a linear warm-up, then one of four ways down.

constant       stays
linear         falls in a straight line to 0 at the last step
cosine         falls along half a cosine to 0
inverse_sqrt   √(warmup / step), Vaswani et al. 2017, eq. 3, scaled so that its peak is 1

With a floor, linear and cosine end at that share of the peak instead of 0, their shapes being squeezed.
"""

import math
from collections.abc import Callable

Shape = Callable[[int, int, int], float]


def _linear(step: int, warmup: int, steps: int) -> float:
    return (steps - step) / max(steps - warmup, 1)


def _cosine(step: int, warmup: int, steps: int) -> float:
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(steps - warmup, 1)))


SCHEDULES: dict[str, Shape] = {
    "constant": lambda step, warmup, steps: 1.0,
    "linear": _linear,
    "cosine": _cosine,
    "inverse_sqrt": lambda step, warmup, steps: math.sqrt(max(warmup, 1) / step),
}


def factor(schedule: str, step: int, *, warmup: int, steps: int, floor: float = 0.0) -> float:
    """What the peak rate is multiplied by at this step; steps count from 1."""
    if step <= warmup:
        return step / warmup
    return floor + (1 - floor) * SCHEDULES[schedule](step, warmup, steps)
