"""What a network says of its size beyond its parameters, which are counted: `Network.estimates`, `Network.part`."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Estimates:
    """Numbers and operations for a token; for one of the source and one of the target together where there are two
    texts, equally long. What a network does not say is left out of its size.
    """

    work: float
    """Operations of the forward pass."""
    tied: int = 0
    """Numbers of an embedding table that the output multiplies by as well."""
    cache: int = 0
    """Numbers kept to write on: of a token that was read or written."""
    cached_texts: int = 1
    """How many of the two texts are kept."""
    kept: int | None = None
    """Numbers kept for the backward pass."""
    formulas: tuple[tuple[str, str], ...] = ()
    """How these come about, each with the name of what it explains."""
