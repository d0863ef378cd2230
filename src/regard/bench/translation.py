"""Translating the sentences of a corpus: Regard, transformers and CTranslate2 on a Transformer-base, random weights.

Sentences are of unequal length and each gets as many tokens on every side, by a beam. All sort by length and decode so
many side by side; CTranslate2 has the weights of transformers' model, by its own converter, in float32 and in its int8.
"""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import torch

from regard.bench.apart import Contestant, Task
from regard.bench.decoders import START, Size, marian, our_model
from regard.bench.timing import installed
from regard.data.batching import Inputs, Padded
from regard.decoding.engine import generate
from regard.decoding.hypothesis import Stop
from regard.decoding.strategies import Beam
from regard.tasks.generation import TOGETHER, TOKENS, side_by_side, texts_together

BASE = Size(vocabulary=32_000)


@dataclass(frozen=True)
class Corpus:
    """Sentences, the model that translates them, and how."""

    sentences: int = 200
    beams: int = 4
    new_tokens: int = 30
    size: Size = BASE

    @property
    def name(self) -> str:
        """What is translated, in words."""
        return f"{self.sentences} sentences by a Transformer-base, {self.new_tokens} tokens each, beam {self.beams}"

    def sources(self) -> list[list[int]]:
        """Random sentences of 8 to 40 tokens, the same for all."""
        draw = torch.Generator().manual_seed(0)
        lengths = torch.randint(8, 41, (self.sentences,), generator=draw).tolist()
        return [torch.randint(START + 1, self.size.vocabulary - 1, (n,), generator=draw).tolist() for n in lengths]


TRANSLATION = Corpus()


def translators() -> list[Contestant]:
    """Who is there."""
    found = [
        Contestant("regard", regard, keeps_memory=False, precisions=("float32", "bfloat16", "int8")),
        Contestant("transformers, sdpa", transformers, keeps_memory=False),
    ]
    if installed("ctranslate2"):
        found.append(Contestant("CTranslate2", ctranslate2, keeps_memory=False, precisions=("float32", "int8")))
    return found


def regard(case: Corpus, precision: str) -> Task:
    """In groups by tokens, as `Model.run` does."""
    model, parameters = our_model(case.size, precision, "cpu")
    sources, stop = case.sources(), Stop(eos_id=-1, max_new_tokens=case.new_tokens)

    def work() -> int:
        made = 0
        for group in side_by_side([len(one) for one in sources], texts_together(case.beams), TOKENS // case.beams):
            read = Padded.of([sources[number] for number in group])
            inputs = Inputs(Padded.of([[START]] * len(group)), read)
            made += sum(len(one.ids) for one in generate(model, inputs, Beam(case.beams), stop))
        return made

    return Task(work, case.sentences * case.new_tokens, parameters)


def transformers(case: Corpus, precision: str) -> Task:
    """Sorted, in groups of as many sentences."""
    model = marian("sdpa", case.size, precision)
    sources = sorted(case.sources(), key=len, reverse=True)
    how = {"max_new_tokens": case.new_tokens, "do_sample": False, "num_beams": case.beams, "use_cache": True}

    def work() -> int:
        made = 0
        for first in range(0, len(sources), TOGETHER):
            read = Padded.of(sources[first : first + TOGETHER])
            seen = (torch.arange(read.ids.shape[1]) < read.lengths[:, None]).long()
            with torch.no_grad():
                made += int(model.generate(read.ids, attention_mask=seen, **how)[:, 1:].numel())
        return made

    return Task(work, case.sentences * case.new_tokens, sum(one.numel() for one in model.parameters()))


def ctranslate2(case: Corpus, precision: str) -> Task:
    """As its users call it: a batch by sentences, sorted by itself, on as many threads as PyTorch has."""
    peer: Any = import_module("ctranslate2")
    with tempfile.TemporaryDirectory() as folder:
        parameters = convert(case.size, folder)
        translator = peer.Translator(
            folder, compute_type=precision, inter_threads=1, intra_threads=torch.get_num_threads()
        )
    sources = [[str(token) for token in one] for one in case.sources()]
    count = case.new_tokens
    limits = {"beam_size": case.beams, "max_decoding_length": count, "min_decoding_length": count}
    translate: Callable[..., Any] = partial(translator.translate_batch, max_batch_size=TOGETHER, **limits)

    def work() -> int:
        return sum(len(one.hypotheses[0]) for one in translate(sources))

    return Task(work, case.sentences * count, parameters)


def convert(size: Size, folder: str) -> int:
    """The Marian-shaped model with random weights in CTranslate2's format; how many parameters it has."""
    converter: Any = import_module("ctranslate2.converters.transformers")
    model = marian("sdpa", size, "float32")
    spec = converter.MarianMTLoader().get_model_spec(model)
    words = ["<pad>", "</s>", "<s>", *map(str, range(START + 1, size.vocabulary - 1))]  # its loader leaves the last out
    spec.config.eos_token, spec.config.unk_token, spec.config.decoder_start_token = "</s>", "<pad>", "<s>"
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    spec.validate()
    spec.optimize()
    spec.save(folder)
    return sum(one.numel() for one in model.parameters())
