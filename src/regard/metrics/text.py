"""How well generated texts match their references: exact match as a fraction, BLEU and chrF from 0 to 100.

BLEU (Papineni et al. 2002) and chrF (Popović 2015) are sacrebleu's own, so that figures compare with published ones;
`signature` says how they were computed.
"""

from collections.abc import Sequence
from typing import Literal

BleuTokenizer = Literal["13a", "intl", "zh", "char", "none"]


def exact_match(outputs: Sequence[str], references: Sequence[str]) -> float:
    """The share of outputs that equal their reference, character for character."""
    return sum(output == reference for output, reference in zip(outputs, references, strict=True)) / len(references)


def bleu(outputs: Sequence[str], references: Sequence[str], tokenizer: BleuTokenizer = "13a") -> float:
    """Of the whole corpus, on words as the tokenizer cuts them; `none` for texts that are tokenised already."""
    from sacrebleu.metrics.bleu import BLEU

    return float(BLEU(tokenize=tokenizer, force=True).corpus_score(list(outputs), [list(references)]).score)


def chrf(outputs: Sequence[str], references: Sequence[str]) -> float:
    """Of the whole corpus, on runs of up to six characters."""
    from sacrebleu.metrics.chrf import CHRF

    return float(CHRF().corpus_score(list(outputs), [list(references)]).score)


def signature(tokenizer: BleuTokenizer) -> str:
    """Everything a BLEU figure depends on besides the texts, as sacrebleu writes it."""
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU(tokenize=tokenizer, force=True)
    metric.corpus_score(["."], [["."]])  # it knows the number of references only then
    return str(metric.get_signature())
