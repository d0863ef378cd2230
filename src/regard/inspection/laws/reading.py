"""Laws of reading a text: what stands beside it, around it or behind it never changes what is made of it."""

from collections.abc import Iterator

import torch
from torch import Tensor

from regard.data.batching import Inputs, Padded
from regard.inspection.laws.examined import (
    Examined,
    difference,
    needs_forward,
    needs_network,
    needs_steps,
)
from regard.inspection.laws.law import Law, Trial

LENGTHS, SOURCE_LENGTHS = (7, 3, 5, 1), (3, 8, 1, 5)
LONGEST = 11
FINITE = "finite"
"""The law without which no other that computes says anything."""


def batch_of(model: Examined, how: str = "", lengths: tuple[int, ...] = LENGTHS) -> Trial:
    """Texts of these lengths, with sources where they are read."""
    sources = model.texts(*(SOURCE_LENGTHS[: len(lengths)]), seed=1) if model.reads_source else ()
    return Trial(how, model.texts(*lengths), sources)


def _every_weight(model: Examined) -> Iterator[Trial]:
    yield from (Trial(part=name) for name, _ in model.original.named_parameters())


def _finite(model: Examined, trial: Trial) -> float:
    """How many numbers of a weight are none."""
    return float(int((~model.original.get_parameter(trial.part).isfinite()).sum()))


def _lengths_tried(model: Examined) -> Iterator[Trial]:
    for length in (1, 2, LONGEST) if model.large else range(1, LONGEST + 1):
        sources = model.texts(LONGEST + 1 - length, seed=1) if model.reads_source else ()
        yield Trial("", model.texts(length), sources)


def _lengths(model: Examined, trial: Trial) -> float:
    """How many of the logits and gradients are no finite numbers."""
    weights = [parameter for parameter in model.module.parameters() if parameter.requires_grad]
    with torch.enable_grad():
        out = model.module(model.together(trial.texts, trial.sources))
        gradients: tuple[Tensor | None, ...] = ()
        if weights and out.requires_grad:
            gradients = torch.autograd.grad(out.square().mean(), weights, allow_unused=True)
    found = [out, *(one for one in gradients if one is not None)]
    return float(sum(int((~one.isfinite()).sum()) for one in found))


def _padded(model: Examined) -> Iterator[Trial]:
    """First what shows that padding is read at all, then that it moves something."""
    hows = ["what stands in the padding on the right", "what stands in the padding on the left"]
    hows += ["what stands in the source's padding"] if model.reads_source else []
    for how in (*hows, "padding on the right", "padding on the left"):
        yield batch_of(model, how)


@torch.no_grad()
def _padding(model: Examined, trial: Trial) -> float:
    """Between two fillings, or between a padded text and the same alone; of real tokens only."""
    side = "left" if trial.how.endswith("left") else "right"
    other = model.vocabulary - 1
    if trial.how.startswith("what"):
        fills = (0, other) if "source" in trial.how else (other, 0)
        first, second = (model.together(trial.texts, trial.sources, side, both) for both in ((0, 0), fills))
        expected, found = (_real(model.module(one), one) for one in (first, second))
    else:
        inputs = model.together(trial.texts, trial.sources, side)
        expected, found = model.each(trial.texts, trial.sources), _real(model.module(inputs), inputs)
    return difference(found, expected)


def _real(out: Tensor, inputs: Inputs) -> list[Tensor]:
    """Of every row what belongs to its own tokens, or what stands for the whole text."""
    return list(out) if out.dim() == 2 else [row[keep] for row, keep in zip(out, inputs.tokens.real, strict=True)]


@torch.no_grad()
def _batching(model: Examined, trial: Trial) -> float:
    """Between texts of one length together, and each alone."""
    return difference(list(model.module(model.together(trial.texts, trial.sources))), model.each(*_both(trial)))


def _both(trial: Trial) -> tuple[tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...]]:
    return trial.texts, trial.sources


def _of_one_length(model: Examined) -> Iterator[Trial]:
    sources = model.texts(*(7,) * 4, seed=1) if model.reads_source else ()
    yield Trial("", model.texts(*(5,) * 4), sources)


@torch.no_grad()
def _causality(model: Examined, trial: Trial) -> float:
    """Of an earlier token's logits, when all later ones are replaced."""
    worst = 0.0
    for text, source in zip(trial.texts, trial.sources or ((),) * len(trial.texts), strict=True):
        before = model.module(model.alone(text, source))[0]
        for place in range(1, len(text)):
            changed = text[:place] + tuple((token + 1) % model.vocabulary for token in text[place:])
            after = model.module(model.alone(changed, source))[0]
            worst = max(worst, difference(after[:place], before[:place]))
    return worst


@torch.no_grad()
def _packing(model: Examined, trial: Trial) -> float:
    """Between texts laid end to end in one row and each alone."""
    ids = torch.tensor([[token for text in trial.texts for token in text]])
    documents = torch.tensor([[number for number, text in enumerate(trial.texts, 1) for _ in text]])
    row = Padded(ids, torch.tensor([ids.shape[1]]), ragged=False, documents=documents)
    together = model.module(Inputs(row).to(model.device))[0]
    return difference(together.split([len(text) for text in trial.texts]), model.each(trial.texts, ()))


def _not_packed(model: Examined) -> str | None:
    if (reason := needs_network(model) or needs_forward(model)) is not None:
        return reason
    return None if model.config.reads_packed else "it reads one text in each row"


@torch.no_grad()
def _determinism(model: Examined, trial: Trial) -> float:
    """Between the same text read twice in evaluation, from other states of the random numbers."""
    found = []
    with torch.random.fork_rng():
        for seed in (1, 2):
            torch.manual_seed(seed)
            found.append(model.original(model.together(*_both(trial))).clone())
    return difference(found[1], found[0])


def _untied(model: Examined) -> str | None:
    if (reason := needs_network(model) or needs_forward(model)) is not None:
        return reason
    known = getattr(model.config, "tie_embeddings", None)
    fits = known is not None and model.outputs in ("tokens", "masked")
    return None if fits else "it has no output that could be tied to its embeddings"


def _tying(model: Examined, trial: Trial) -> float:
    """1 where the output reads the embedding table and the config says it does not, or the other way round."""
    network = model.network
    assert network is not None
    read = {token for text in (*trial.texts, *trial.sources) for token in text}
    free = next((token for token in range(model.vocabulary) if token not in read), None)
    if free is None:
        return 0.0
    with torch.enable_grad():
        logit = network(model.together(*_both(trial)))[0, -1, free]
        [gradient] = torch.autograd.grad(logit, [network.embedding.weight], allow_unused=True)
    tied = gradient is not None and bool((gradient[free] != 0).any())
    return float(tied != bool(getattr(network.config, "tie_embeddings", tied)))


READING = (
    Law(
        FINITE,
        "Every weight is a finite number.",
        _every_weight,
        _finite,
        {"": "a training that diverged, or a file that was damaged"},
        tolerance=0.0,
        unit="numbers that are not finite",
        shrinks=False,
        rounds=False,
    ),
    Law(
        "lengths",
        "A text of any length, one token among them, gives finite logits and gradients.",
        _lengths_tried,
        _lengths,
        {"": "something divides by zero, overflows, or takes a softmax over nothing at such a length"},
        tolerance=0.0,
        unit="numbers that are not finite",
        unfit=needs_forward,
        sample="texts of 1, 2 and 11 tokens",
    ),
    Law(
        "padding",
        "Padding, on either side and whatever stands in it, never changes a real token.",
        _padded,
        _padding,
        {
            "what stands in the padding on the right": "padding is attended to: the padding mask is missing, is not "
            "passed on, or is turned round",
            "what stands in the padding on the left": "padding on the left is attended to: the mask counts lengths "
            "from the other side, or a recurrent state reads it",
            "what stands in the source's padding": "the source's padding is attended to: cross-attention or the "
            "encoder has no padding mask",
            "padding on the right": "a size is taken from the padded width: a mean, a norm or a length of all columns",
            "padding on the left": "positions are counted from the padding and not from the text's first token",
        },
        unfit=needs_forward,
    ),
    Law(
        "batching",
        "What is made of a text does not depend on what stands beside it in the batch.",
        _of_one_length,
        _batching,
        {"": "something is computed over the batch: a norm or a statistic, or rows that change places"},
        unfit=needs_forward,
    ),
    Law(
        "causality",
        "A later token never changes an earlier one's logits.",
        lambda model: [batch_of(model, "", (9,))],
        _causality,
        {"": "later tokens are seen: the causal mask is missing, lost on the way, or turned round"},
        unfit=needs_steps,
    ),
    Law(
        "packing",
        "Texts that share a row give what each gives alone.",
        lambda model: [batch_of(model, "", (4, 1, 5))],
        _packing,
        {"": "documents leak: the document mask is missing, or positions do not begin anew in each document"},
        unfit=_not_packed,
    ),
    Law(
        "determinism",
        "In evaluation the same text gives the same numbers, bit for bit, whatever the state of the random numbers.",
        lambda model: [batch_of(model)],
        _determinism,
        {"": "chance is at work in evaluation: dropout was left on, or something is drawn at every call"},
        tolerance=0.0,
        unfit=needs_forward,
    ),
    Law(
        "tying",
        "The output reads the embedding table backwards where the config says so, and only there.",
        lambda model: [batch_of(model, "", (3,))],
        _tying,
        {
            "": "the output has a table of its own where the config ties it to the embeddings, or the other way round: "
            "tied weights come apart when one is replaced on loading"
        },
        tolerance=0.0,
        unit="tables that are not as the config says",
        unfit=_untied,
    ),
)
