"""Pictures of what the lower layers return as plain records: matplotlib figures, drawn without a display."""

from regard.views.attention import (
    AttentionMap,
    draw_alignment,
    draw_alignment_with_heads,
    draw_heads,
    label,
    save_figure,
)

__all__ = [
    "AttentionMap",
    "draw_alignment",
    "draw_alignment_with_heads",
    "draw_heads",
    "label",
    "save_figure",
]
