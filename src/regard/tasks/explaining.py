"""How an answer came about, as records: the candidates of every step, or the tree of a beam."""

from collections.abc import Callable, Sequence
from typing import Any

from regard.decoding.engine import ordered, watch_beam, watch_steps
from regard.decoding.hypothesis import Hypothesis
from regard.decoding.strategies import Beam, Contrastive, Greedy, Sample, Strategy
from regard.decoding.trace import BeamTree, BeamWatch, Choices, Finished, StepWatch
from regard.tasks.generation import Generation
from regard.tasks.task import Loaded


def explain(
    task: Generation[Any], model: Loaded, text: str, strategy: Strategy | None, max_new_tokens: int | None
) -> Choices | BeamTree:
    """Decode one text by the same loops as ever, and tell what was considered."""
    chosen = task.strategy(model, strategy)
    inputs = task.begun(model, [text]).to(model.module.device)
    stepper = task.stepper(model)
    stop, filters = task.limits(model, stepper, inputs, max_new_tokens)
    name, prefix = model.tokenizer.token_text, model.decoding.prefix or ""
    if isinstance(chosen, Beam):
        watch = BeamWatch(name, chosen)
        found = watch_beam(stepper, inputs, chosen, stop, filters, watch)
        ended = finished(watch, found, lambda one: task.answer(model, text, one).text)
        branches = tuple(watch.branches)
        return BeamTree(text, words(chosen), chosen.size, chosen.length_penalty, branches, ended, prefix)
    steps = StepWatch((*ordered(filters, chosen), *chosen.filters), name)
    one = watch_steps(stepper, inputs, chosen, stop, filters, steps)
    output = task.answer(model, text, one).text
    return Choices(text, words(chosen), steps.stages(), tuple(steps.steps), output, one.score, prefix)


def finished(
    watch: BeamWatch, found: Sequence[Hypothesis], text_of: Callable[[Hypothesis], str]
) -> tuple[Finished, ...]:
    """The answers of a beam, best first, each with the branch that it ends in."""
    ends = zip(_nodes(watch, found), found, strict=True)
    return tuple(Finished(node, text_of(one), one.score, one.log_probabilities) for node, one in ends)


def words(strategy: Strategy) -> str:
    """A strategy as people say it."""
    if isinstance(strategy, Beam):
        penalty = f"length penalty {strategy.length_penalty:g}"
        diverse = (
            f", diversity penalty {strategy.diversity_penalty:g} in {strategy.parts} groups"
            if strategy.diversity_penalty
            else ""
        )
        return f"beam search, {strategy.size} beams, {penalty}{diverse}"
    if isinstance(strategy, Contrastive):
        return f"contrastive search, top-k {strategy.top_k}, α {strategy.penalty_alpha:g}"
    if isinstance(strategy, Sample):
        given = {"temperature": strategy.temperature, "top-k": strategy.top_k, "top-p": strategy.top_p}
        given |= {"min-p": strategy.min_p, "seed": strategy.seed}
        return "sampling, " + ", ".join(f"{key} {value:g}" for key, value in given.items() if value is not None)
    assert isinstance(strategy, Greedy)
    return "greedy: the likeliest token every time"


def _nodes(watch: BeamWatch, found: Sequence[Hypothesis]) -> list[int]:
    """The branches that the answers end in."""
    path: dict[int, tuple[int, ...]] = {0: ()}
    ends: dict[tuple[int, ...], int] = {}
    for one in watch.branches:
        path[one.number] = (*path[one.parent], one.id)
        if one.fate == "finished":
            ends[path[one.number]] = one.number
    return [ends[one.ids] for one in found]
