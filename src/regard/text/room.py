"""A vocabulary too small for what must be in it, as an error that knows its numbers."""

from regard.errors import ConfigError


class RoomError(ConfigError):
    """So few entries cannot hold the special tokens and the least that texts are made of."""

    def __init__(self, size: int, specials: int, others: int, what: str) -> None:
        """`what` names the others."""
        super().__init__(
            f"a vocabulary of {size} cannot hold {specials} special tokens and {what}",
            f"use a size of {specials + others} or more",
        )
        self._numbers = size, specials, others, what

    def beside(self, more: int) -> "RoomError":
        """The same where room was kept for so many special tokens more."""
        size, specials, others, what = self._numbers
        return RoomError(size + more, specials + more, others, what)
