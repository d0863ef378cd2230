"""Heads while they form: the measures of each head at every step whose weights a run kept."""

from dataclasses import dataclass

from regard.inspection.head_report import HeadReport


@dataclass(frozen=True)
class HeadHistory:
    """The same heads at several steps, measured on the same texts."""

    steps: tuple[int, ...]
    reports: tuple[HeadReport, ...]

    def of(self, layer: str, head: int, measure: str) -> list[float | None]:
        """One head's measure at every step."""
        return [getattr(report.of(layer, head), measure) for report in self.reports]

    def born(self, layer: str, head: int) -> int | None:
        """The first step from which on the head has the character that it ends with; None of a mixed one."""
        characters = [report.of(layer, head).character for report in self.reports]
        if characters[-1] == "mixed":
            return None
        same = len(characters)
        while same > 0 and characters[same - 1] == characters[-1]:
            same -= 1
        return self.steps[same]
