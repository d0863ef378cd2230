"""What `regard look` shows of a whole model: its heads, each by what it does."""

from regard.cli.looking import Look


def show_heads(asked: Look) -> None:
    """Every head's measures: a table in the terminal, a scatter in the file."""
    from regard.views.figure import check_format, draw_to
    from regard.views.heads import draw_heads, heads_record, heads_text

    check_format(asked.to)
    loaded = asked.open()
    report = loaded.heads(asked.text or None)
    draw_to(asked.to, lambda: draw_heads(report))
    asked.tell(loaded, heads_record(report), heads_text(report), f"the {len(report.heads)} heads")
