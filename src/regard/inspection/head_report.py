"""All that is measured of a model's heads: on texts, on random tokens that come twice, and on a small grammar."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from regard.data.batching import Inputs, Padded
from regard.inspection.arcs import GrammarReport
from regard.inspection.capture import Recording, record_into
from regard.inspection.heads import HeadMeasures, measure_heads, repeated_induction
from regard.models.network import Network
from regard.text.tokenizer import Tokenizer

HALF, ROWS = 24, 4
"""Random tokens that come twice, and how many such texts."""


@dataclass(frozen=True)
class HeadReport:
    """Every head's measures, and what the heads find of a grammar where that was asked."""

    heads: tuple[HeadMeasures, ...]
    grammar: GrammarReport | None
    read: str
    """What they were measured on, in words."""

    def of(self, layer: str, head: int) -> HeadMeasures:
        """One head's."""
        return next(one for one in self.heads if (one.layer, one.head) == (layer, head))


def report_heads(
    seen: Recording, module: Network, tokenizer: Tokenizer, grammar: GrammarReport | None, read: str
) -> HeadReport:
    """What was seen, with induction measured on random tokens as well."""
    measured = measure_heads(seen, [*tokenizer.special_ids.values()])
    repeated = repeated_tokens(module, tokenizer)
    found = tuple(replace(one, repeated=repeated.get((one.layer, one.head))) for one in measured)
    return HeadReport(found, grammar, read)


@torch.no_grad()
def repeated_tokens(module: Network, tokenizer: Tokenizer, seed: int = 0) -> dict[tuple[str, int], float]:
    """Induction where nothing but a repetition can be learnt from: every head's on random tokens that come twice."""
    half = half_length(module, tokenizer)
    if half < 2:
        return {}
    rows = random_twice(tokenizer, half, ROWS, seed)
    padded = Padded.of(rows).to(module.device)
    inputs = Inputs(padded, padded) if module.config.reads_source else Inputs(padded)
    training = module.training
    module.eval()
    try:
        with record_into(Recording(), module) as seen:
            module.hidden(inputs)
    finally:
        module.train(training)
    return repeated_induction(seen, half)


def half_length(module: Network, tokenizer: Tokenizer) -> int:
    """How many random tokens can come twice: no more than there are, nor than have a position."""
    limit = module.config.position_limit or 2 * HALF + 1
    return min(HALF, (limit - 1) // 2, tokenizer.size - len(tokenizer.special_ids))


def random_twice(tokenizer: Tokenizer, half: int, count: int, seed: int) -> list[list[int]]:
    """`[first, x_1 … x_n, x_1 … x_n]`, no x like another."""
    special = tokenizer.special_ids
    usual = [one for one in range(tokenizer.size) if one not in special.values()]
    first = special.get(tokenizer.bos, usual[0])
    generator = torch.Generator().manual_seed(seed)
    rows: list[list[int]] = []
    for _ in range(count):
        drawn = [usual[at] for at in torch.randperm(len(usual), generator=generator)[:half].tolist()]
        rows.append([first, *drawn, *drawn])
    return rows


def joined(recordings: Sequence[Recording]) -> Recording:
    """Several recordings as one, in their order."""
    whole = Recording()
    for one in recordings:
        whole.forwards += one.forwards
    return whole
