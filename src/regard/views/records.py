"""What the tables of `regard look` show, for programs: plain values with every number, not only those that fit."""

from typing import Any

from regard.inspection.contextual import InSentence, Meaning
from regard.views.steps import FourSteps
from regard.views.word_attention import WordAttention


def word_attention_record(found: WordAttention) -> dict[str, Any]:
    """Where a word looks: for each word the mean of all heads, and the head that looks at it most."""
    means = found.weights.mean(axis=(0, 1)).tolist()
    looks = []
    for at, (word, mean) in enumerate(zip(found.words, means, strict=True)):
        layer, head, most = found.most(at)
        looks.append(
            {"word": word, "itself": at == found.itself, "mean": mean, "most": most, "layer": layer, "head": head}
        )
    return {"word": found.word, "looks_at": looks}


def meaning_record(found: Meaning) -> dict[str, Any]:
    """The cosines of all pairs of sentences after each layer, and what moved the word in each."""
    cosines = [
        {"sentences": [one + 1, other + 1], "cosines": found.cosines[:, one, other].tolist()}
        for one, other in found.pairs
    ]
    sentences = [_sentence(found, one) for one in found.sentences]
    return {
        "word": found.word,
        "causal": found.causal,
        "layers": found.layers,
        "pairs": cosines,
        "sentences": sentences,
    }


def _sentence(found: Meaning, one: InSentence) -> dict[str, Any]:
    layers = []
    for at, layer in enumerate(found.layers[1:]):
        parts = {"change": float(one.change[at]), "bias": float(one.bias[at]), "rest": float(one.rest[at])}
        layers.append({"layer": layer, **parts, "words": one.moved[at].tolist()})
    return {"sentence": one.sentence, "words": one.words, "itself": one.itself, "moved": layers}


def steps_record(found: FourSteps) -> dict[str, Any]:
    """The four steps of one row: for each key its score, the score as softmax reads it, its exponential and weight."""
    keys = [
        {
            "key": key,
            "score": float(found.raw[at]),
            "scaled": float(found.scaled[at]) if found.allowed[at] else None,
            "exp": float(found.exponentials[at]),
            "weight": float(found.weights[at]),
        }
        for at, key in enumerate(found.keys)
    ]
    return {
        "title": found.title,
        "token": found.token,
        "scale": found.scale,
        "keys": keys,
        "output": found.output.tolist(),
    }
