"""Laws of decoding: cached steps give what a whole text gives, and a beam's scores are what they claim to be."""

from collections.abc import Iterator
from itertools import product

import torch
from torch import Tensor

from regard.data.batching import Padded
from regard.decoding.engine import generate_ranked
from regard.decoding.filters import Suppressed
from regard.decoding.hypothesis import Stop
from regard.decoding.strategies import Beam
from regard.inspection.laws.examined import Examined, Texts, difference, needs_steps
from regard.inspection.laws.law import Law, Trial
from regard.inspection.laws.reading import batch_of

MOST_STEPS = 5
ALPHA = 0.7
CHOICES, HORIZON = 3, 3


def _caching_tried(model: Examined) -> Iterator[Trial]:
    for how in ("one row, step by step", "several tokens at once behind a cache"):
        yield batch_of(model, how, (9,))
    for how in ("rows of unequal prompts", "rows that change places"):
        yield batch_of(model, how, (9, 7, 8))


@torch.no_grad()
def _caching(model: Examined, trial: Trial) -> float:
    """Between decoding from a cache and reading the whole text at once."""
    texts, sources = trial.texts, trial.sources or ((0,),) * len(trial.texts)
    steps = min(MOST_STEPS, *(len(text) - 1 for text in texts), MOST_STEPS)
    if steps < 1:
        return 0.0
    whole = model.each(texts, sources)
    given = [len(text) - steps for text in texts]
    prompts = Padded.of([text[:count] for text, count in zip(texts, given, strict=True)], side="left")
    state = model.stepper.start(model.inputs(prompts, Padded.of(sources)))
    found: list[Tensor] = []
    expected: list[Tensor] = []
    rows = list(range(len(texts)))
    at = 0
    while at < steps:
        together = steps - at if trial.how.startswith("several") and at == 1 else 1
        first = [given[row] - 1 + at for row in rows]
        ids = [texts[row][place : place + together] for row, place in zip(rows, first, strict=True)]
        taken = torch.tensor(ids, device=model.device)
        if together == 1:
            logits, state = model.stepper.step(taken[:, 0], state)
            logits = logits[:, None]
        else:
            logits, state = model.stepper.extend(taken, state)
        found += list(logits)
        expected += [whole[row][place : place + together] for row, place in zip(rows, first, strict=True)]
        if trial.how == "rows that change places":
            order = [*range(1, len(rows)), 0]
            state, rows = state.select(torch.tensor(order, device=model.device)), [rows[place] for place in order]
        at += together
    return difference(found, expected)


@torch.no_grad()
def _beam_scores(model: Examined, trial: Trial) -> float:
    """Between the score that a beam tells and the sum of log-probabilities by length^α, read from the whole text."""
    prompts = model.inputs(Padded.of(trial.texts, side="left"), Padded.of(trial.sources or ((0,),) * len(trial.texts)))
    found = generate_ranked(model.stepper, prompts, Beam(3, length_penalty=ALPHA), Stop(model.eos_id, max_new_tokens=4))
    told: list[float] = []
    added: list[float] = []
    for row, ranked in enumerate(found):
        source = trial.sources[row] if trial.sources else ()
        for one in ranked:
            told.append(one.score)
            added.append(_score(model, trial.texts[row], source, one.ids))
    return difference(torch.tensor(told, dtype=torch.float64), torch.tensor(added, dtype=torch.float64))


def _score(model: Examined, prompt: tuple[int, ...], source: tuple[int, ...], ids: tuple[int, ...]) -> float:
    """`Σ log p / length^α` of an answer, by the model without a cache."""
    logits = model.module(model.alone(prompt + ids[:-1], source))[0, len(prompt) - 1 :]
    likely = logits.double().log_softmax(dim=-1)
    total = sum(float(likely[place, token]) for place, token in enumerate(ids))
    return float(total / len(ids) ** ALPHA)


@torch.no_grad()
def _beam_search(model: Examined, trial: Trial) -> float:
    """Between the best answer of a beam that holds all there are and the best of them all, written out; by scores."""
    eos = model.eos_id
    kept = [eos, *(token for token in range(model.vocabulary) if token != eos)][:CHOICES]
    banned = tuple(token for token in range(model.vocabulary) if token not in kept)
    prompt, source = trial.texts[0], trial.sources[0] if trial.sources else ()
    stop = Stop(eos, max_new_tokens=HORIZON)
    beam = Beam(CHOICES**HORIZON, length_penalty=ALPHA)
    filters = (Suppressed(banned),) if banned else ()
    [ranked] = generate_ranked(model.stepper, model.alone(prompt, source), beam, stop, filters)
    every = [ids for length in range(1, HORIZON + 1) for ids in product(kept, repeat=length) if _whole(ids, eos)]
    scores = [_score(model, prompt, source, ids) for ids in every]
    return difference(torch.tensor([ranked[0].score]), torch.tensor([max(scores)]))


def _whole(ids: tuple[int, ...], eos: int) -> bool:
    """Whether these are an answer: the end stands last, or the limit is reached, and nowhere before."""
    return eos not in ids[:-1] and (ids[-1] == eos or len(ids) == HORIZON)


def _of_beams(model: Examined) -> str | None:
    if (reason := needs_steps(model)) is not None:
        return reason
    return None if model.vocabulary > 3 else "there are too few tokens for a beam"


def _short(model: Examined, *lengths: int) -> list[Trial]:
    sources: Texts = model.texts(*(5, 2)[: len(lengths)], seed=1) if model.reads_source else ()
    return [Trial("", model.texts(*lengths), sources)]


STEPPING = (
    Law(
        "caching",
        "Decoding from a cache gives what reading the whole text gives, also when rows are reordered.",
        _caching_tried,
        _caching,
        {
            "one row, step by step": "a step reads a stale cache or stands at another position: what was read before "
            "is not kept, or positions do not go on behind it",
            "several tokens at once behind a cache": "several tokens behind a cache see each other wrongly: the causal "
            "mask is lost there, or counts queries from the first key",
            "rows of unequal prompts": "the padding of unequal prompts is not remembered by the cache: it is attended "
            "to, or positions count it",
            "rows that change places": "`state.select` does not reorder all that was kept: a row goes on with another "
            "row's cache",
        },
        unfit=needs_steps,
    ),
    Law(
        "beam_scores",
        "A beam's score is the sum of its tokens' log-probabilities by length^α, added up again without a cache.",
        lambda model: _short(model, 4, 2),
        _beam_scores,
        {
            "": "the score is not what it says: the length rule is left out or counts other tokens, or a step's logits "
            "belong to another row"
        },
        unfit=_of_beams,
    ),
    Law(
        "beam_search",
        "A beam that can hold every answer of three tokens out of three finds the best of them.",
        lambda model: _short(model, 3),
        _beam_search,
        {"": "the search loses answers: finished ones leave too early, or it stops before the best is found"},
        unfit=_of_beams,
    ),
)
