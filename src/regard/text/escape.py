"""Pieces of text as a terminal may be given them: what it would obey, or show as nothing, is written out."""

BLANKS = {" ": "␣", "\n": "⏎", "\r": "⏎", "\t": "⇥"}


def escape(piece: str) -> str:
    r"""A piece with a sign for each blank, since blanks part the pieces, and `\x1b` for a control character.

    >>> escape("a b\x1b")
    'a␣b\\x1b'
    """
    if piece.isprintable() and " " not in piece:
        return piece
    found = (BLANKS.get(character, character) for character in piece)
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in found)
