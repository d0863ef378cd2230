"""Tables in plain text, for a terminal: columns under each other, whatever the width of their letters."""

from collections.abc import Container

from rich.cells import cell_len


def aligned(rows: list[list[str]], left: Container[int] = (0,)) -> list[str]:
    """Columns of words to the left, of numbers to the right; a rule below the heading."""
    widths = [max(cell_len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = []
        for column, (cell, width) in enumerate(zip(row, widths, strict=True)):
            blank = " " * (width - cell_len(cell))
            cells.append(cell + blank if column in left else blank + cell)
        lines.append("  ".join(cells).rstrip())
    rule = "─" * max(map(cell_len, lines))
    return [lines[0], rule, *lines[1:]]
