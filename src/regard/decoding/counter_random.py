"""Random numbers that are a function of a seed and a place: the same for a text alone or in any batch, on any device.

A generator gives its numbers one after the other, so what a row draws would depend on who drew before it, and a GPU
would have to be asked. Here a counter is scrambled instead (SplitMix64: Steele et al. 2014, figure 13), in whole
numbers of 64 bits that wrap around alike everywhere.
"""

from jaxtyping import Float, Int
from torch import Tensor

GOLDEN, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def uniform(seeds: Int[Tensor, "rows"], places: Int[Tensor, "rows"]) -> Float[Tensor, "rows"]:
    """A number in [0, 1) for each seed and place, in float64."""
    mixed = _scrambled(_scrambled(seeds) + places * signed(GOLDEN))
    return (mixed >> 11 & (1 << 53) - 1).double() * 2.0**-53


def seed_of(seed: int, number: int) -> int:
    """The seed of text `number` of a call with this seed."""
    return signed((seed * 1_000_003 + number) % 2**64)


def _scrambled(state: Int[Tensor, "rows"]) -> Int[Tensor, "rows"]:
    mixed = state + signed(GOLDEN)
    mixed = (mixed ^ _shifted(mixed, 30)) * signed(FIRST)
    mixed = (mixed ^ _shifted(mixed, 27)) * signed(SECOND)
    return mixed ^ _shifted(mixed, 31)


def _shifted(number: Int[Tensor, "rows"], bits: int) -> Int[Tensor, "rows"]:
    """To the right, zeros coming in from the left."""
    return number >> bits & (1 << 64 - bits) - 1


def signed(number: int) -> int:
    """The same 64 bits as a number with a sign."""
    return number - 2**64 if number >= 2**63 else number
