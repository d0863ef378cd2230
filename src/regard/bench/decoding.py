"""Decoded tokens per second: Regard and `generate` of transformers on models of one size, random weights.

The models are GPT-2's, a decoder of 12 layers × 768, LLaMA's as small checkpoints have it, 30 layers 576 wide with 9
heads that share 3 key/value heads, and Marian's, 6 + 6 layers × 512. No token ends a text, so all sides make the same
number of tokens. Sentences of a corpus are translated in translation.py.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from regard.bench.apart import Contestant, Result, Task, compared, compete, compete_in_each
from regard.bench.decoders import GPT2, LLAMA, MARIAN, START, Size, gpt2, llama, marian, our_model
from regard.bench.timing import installed
from regard.bench.translation import TRANSLATION, translators
from regard.data.batching import Inputs, Padded
from regard.decoding.engine import generate
from regard.decoding.hypothesis import Stop
from regard.decoding.strategies import Beam, Greedy

PEERS = {"transformers": "transformers"}


@dataclass(frozen=True)
class Case:
    """A model, how many texts it decodes at a time, and how."""

    batch: int
    beams: int = 1
    size: Size = MARIAN
    source_tokens: int = 32
    new_tokens: int = 64
    device: str = "cpu"

    @property
    def name(self) -> str:
        """What is decoded, in words."""
        how = "greedy" if self.beams == 1 else f"beam {self.beams}"
        return f"{self.size}, {self.batch} × {self.new_tokens} tokens, {how}"

    def sources(self) -> Tensor:
        """Random sources, the same for all."""
        shape = (self.batch, self.source_tokens)
        return torch.randint(START + 1, self.size.vocabulary, shape, generator=torch.Generator().manual_seed(0))


CASES = (
    *(Case(batch, size=size, new_tokens=32) for size in (GPT2, LLAMA) for batch in (1, 8)),
    *(Case(batch) for batch in (1, 8, 32)),
    Case(4, beams=4),
)


ON_GPU = (
    *(Case(batch, size=GPT2, new_tokens=256, device="cuda") for batch in (1, 64, 256)),
    Case(16, beams=4, size=GPT2, new_tokens=128, device="cuda"),
)


def rows(
    device: str = "cpu",
    known: Sequence[dict[str, Any]] = (),
    until: float | None = None,
    sentences: int | None = None,
) -> Iterator[dict[str, Any]]:
    """All figures for this device, of the peers that are installed; of a CPU `known` ones are not measured again.

    On a CPU nothing new is begun after the time `until`; where a number of sentences is given, they are translated and
    no other case is measured.
    """
    if not installed("transformers"):
        return
    if device == "cuda":
        contestants = [
            Contestant("regard", regard, keeps_memory=True),
            Contestant("transformers, sdpa", partial(transformers, "sdpa"), keeps_memory=False),
        ]
        found = compete_in_each(contestants, ON_GPU, rounds=3, precisions=["bfloat16"])
        for case, timed in zip(ON_GPU, found, strict=True):
            yield from compared(case.name, timed)
        return
    contestants = [
        Contestant("regard", regard, keeps_memory=False, precisions=("float32", "bfloat16", "int8")),
        Contestant("transformers, sdpa", partial(transformers, "sdpa"), keeps_memory=False),
        Contestant("transformers, eager", partial(transformers, "eager"), keeps_memory=False, precisions=("float32",)),
    ]
    works: list[tuple[str, Callable[[], list[Result]]]] = [
        *((case.name, partial(compete, contestants, case)) for case in CASES),
    ]
    corpus = TRANSLATION if sentences is None else replace(TRANSLATION, sentences=sentences)
    works = [*(works if sentences is None else []), (corpus.name, partial(compete, translators(), corpus))]
    for name, work in works:
        before = [row for row in known if row["what"] == name]
        if before:
            yield from before
        elif until is None or time.monotonic() < until:
            yield from compared(name, work())


def regard(case: Case, precision: str) -> Task:
    """Regard's decoding."""
    model, parameters = our_model(case.size, precision, case.device)
    sources = case.sources()
    read = Padded(sources, torch.full((case.batch,), case.source_tokens), ragged=False)
    begin = Padded(torch.full((case.batch, 1), START), torch.ones(case.batch, dtype=torch.long), ragged=False)
    inputs = (Inputs(begin, read) if case.size.architecture == "encoder_decoder" else Inputs(read)).to(case.device)
    strategy = Greedy() if case.beams == 1 else Beam(case.beams)
    stop = Stop(eos_id=-1, max_new_tokens=case.new_tokens)

    def work() -> int:
        return sum(len(one.ids) for one in generate(model, inputs, strategy, stop))

    return Task(work, case.batch * case.new_tokens, parameters)


def transformers(attention: str, case: Case, precision: str) -> Task:
    """The `generate` of transformers, with its cache."""
    decoder = gpt2 if case.size.key_value_heads is None else llama
    build = marian if case.size.architecture == "encoder_decoder" else decoder
    model = build(attention, case.size, precision).to(case.device)
    sources = case.sources().to(case.device)
    options = {"max_new_tokens": case.new_tokens, "do_sample": False, "num_beams": case.beams, "use_cache": True}

    def work() -> int:
        with torch.no_grad():
            found = model.generate(sources, attention_mask=torch.ones_like(sources), **options)
        return int(found[:, -case.new_tokens :].numel())  # before them stands the start token, or the prompt

    return Task(work, case.batch * case.new_tokens, sum(one.numel() for one in model.parameters()))
