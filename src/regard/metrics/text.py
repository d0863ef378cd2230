"""How well generated texts match their references, as fractions from 0 to 1."""

from collections.abc import Sequence


def exact_match(outputs: Sequence[str], references: Sequence[str]) -> float:
    """The share of outputs that equal their reference, character for character."""
    return sum(output == reference for output, reference in zip(outputs, references, strict=True)) / len(references)
