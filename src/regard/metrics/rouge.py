"""ROUGE (Lin 2004): how many words a summary shares with its reference, as rouge-score computes it.

F1 of words (ROUGE-1), of pairs of neighbours (ROUGE-2) and of the longest row of words in common (ROUGE-L), each a mean
over summaries, from 0 to 1. Words are runs of a to z and of digits in lower case, without stemming; of other scripts
nothing counts.
"""

import re
from collections.abc import Sequence

from regard.errors import InputError

KINDS = ("rouge1", "rouge2", "rougeL")
_COUNTED = re.compile(r"[a-z0-9]", re.IGNORECASE)
_END = re.compile(r"(?<=[.!?])\s+")


def rouge(outputs: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """The mean F1 of each kind."""
    from rouge_score.rouge_scorer import RougeScorer

    if not any(_COUNTED.search(reference) for reference in references):
        raise InputError(
            "no reference has a letter from a to z or a digit, and ROUGE counts no others",
            "measure on texts in Latin letters",
        )
    scorer = RougeScorer(list(KINDS))
    scores = [scorer.score(reference, output) for output, reference in zip(outputs, references, strict=True)]
    return {kind: sum(score[kind].fmeasure for score in scores) / len(scores) for kind in KINDS}


def lead(text: str) -> str:
    """The first sentence of a text: the summary that is hard to beat where texts say first what they are about."""
    return _END.split(text.strip(), 1)[0]
