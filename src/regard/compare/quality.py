"""How good a model that turns a text into another is, with the right tokens given to it and by itself.

forced       share of tokens that are the likeliest where the right ones stand before them, as in training
free         share of tokens that are right, place by place, in what the model writes by itself
exact_match  share of texts that are right as a whole in what it writes
"""

import math
from collections.abc import Sequence

import torch

from regard.api.model import Model
from regard.data.batching import IGNORED
from regard.data.corpus import Pair, Split
from regard.tasks.pairs import open_corpus
from regard.tasks.text_to_text import objective


def held_out_pairs(model: Model, most: int) -> list[Pair]:
    """The first test pairs of the corpus it was trained on."""
    assert model.data is not None
    splits: list[Split] = ["test"]
    corpus = open_corpus(model.data, splits)
    return [corpus.example("test", index) for index in range(min(most, corpus.size("test") or most))]


def quality(model: Model, most: int = 200) -> dict[str, float]:
    """All three, on the first test pairs."""
    model.module.eval()
    pairs = held_out_pairs(model, most)
    return {"forced": forced_share(model, pairs)} | free_shares(model, pairs)


@torch.no_grad()
def forced_share(model: Model, pairs: Sequence[Pair]) -> float:
    """Of all targets' tokens and ends, each predicted from the right ones before it."""
    how = objective(model.module.config, model.tokenizer)
    batch = how.batch(how.encode(pairs)).to(model.device)
    wanted = batch.targets != IGNORED
    right = model.module(batch.inputs).argmax(dim=-1) == batch.targets
    return float(right[wanted].float().mean())


def free_shares(model: Model, pairs: Sequence[Pair]) -> dict[str, float]:
    """Of what is written by itself, tokens and whole texts; a token that is missing is wrong."""
    found = model.hypotheses([pair.source for pair in pairs])
    right = total = exact = 0
    for pair, one in zip(pairs, found, strict=True):
        target = (*model.tokenizer.encode(pair.target), model.tokenizer.eos_id)
        right += sum(token == wanted for token, wanted in zip(one.ids, target, strict=False))
        total += len(target)
        exact += one.ids == target
    return {"free": right / total, "exact_match": exact / len(pairs)}


def attention_entropy(model: Model, most: int = 20) -> float:
    """Of attention over the source, in all layers: the mean entropy as a share of the largest there is."""
    shares = []
    for pair in held_out_pairs(model, most):
        seen = model.look(pair.source, target=pair.target)
        for layer in seen.layers:
            if layer.startswith("decoder") and layer.endswith("self"):
                continue  # a row that sees more keys than the one before has another largest entropy
            rows = seen.weights(layer)
            shares.append(float(torch.special.entr(rows).sum(dim=-1).mean()) / math.log(rows.shape[-1]))
    return math.fsum(shares) / len(shares)
