"""Decoded tokens per second on one GPU: Regard, `generate` of transformers, and a plain graph, in one run.

    python benchmarks/decoding_on_gpu.py --out OUT [--only gpt2-1,gpt2-64,…] [--without transformers] [--rounds 3]
                                         [--resume FILE] [--minutes 8] [--profile] [--ablate]

Random weights, bf16, prompts of 32 tokens, nothing ends a text. The plain graph is the floor: eager kernels, a static
cache over the whole room, all rows at one position, one step captured by hand and replayed; no prefill is in its time.
`regard` is `Model.run` on texts, cutting them and putting the answer together included; `engine` is the same without
texts. Both read the prompt anew; the first call, which captures its graphs, is told apart as the warm-up.
OUT/decoding-h200.json is written after every line; `--resume` takes lines that are there from such a file.
`--profile` writes to OUT/CASE-kernels.txt where a call's time goes. `--ablate` measures the engine again without each
of our own kernels, and without all of them; `kernels` says which of them run at all. All but transformers in five
minutes: `--ablate --profile --without transformers --minutes 4.5`. `--tiny` runs all of it on a CPU with small models.
"""

import argparse
import gc
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.api import Model
from regard.bench.timing import circumstances
from regard.data.batching import Inputs, Padded
from regard.decoding import paths, row_beams, row_engine
from regard.decoding.engine import generate
from regard.decoding.hypothesis import Stop
from regard.decoding.strategies import Beam, Greedy, Sample, Strategy
from regard.layers import triton_kernel
from regard.layers.linear import keep_int8
from regard.models.config import TransformerConfig
from regard.models.transformer import Transformer
from regard.tasks.decoding_table import DecodingTable
from regard.tasks.task import TASKS
from regard.text.characters import CharacterTokenizer

PROMPT = 32
GPT2 = {
    "architecture": "decoder",
    "width": 768,
    "heads": 12,
    "layers": 12,
    "vocabulary": 50257,
    "norm_placement": "pre",
    "feedforward": "gelu_tanh",
    "positions": "learned",
    "max_positions": 1024,
    "scale_embeddings": False,
}
LLAMA = {
    "architecture": "decoder",
    "width": 4096,
    "heads": 32,
    "layers": 32,
    "vocabulary": 32000,
    "feedforward": "swiglu",
    "feedforward_width": 11008,
    "norm": "rms",
    "bias": False,
    "norm_placement": "pre",
    "positions": "rotary",
    "scale_embeddings": False,
    "tie_embeddings": False,
}


TINY = {"width": 32, "heads": 4, "layers": 2, "vocabulary": 97, "feedforward_width": 64}
GREEDY = Greedy()
LETTERS = 0x20000
"""The first of as many letters as there are tokens."""


@dataclass(frozen=True)
class Case:
    """One line: a model, how many texts, how many new tokens, and how they are chosen."""

    name: str
    shape: str
    rows: int
    tokens: int
    strategy: Strategy = GREEDY
    int8: bool = False


CASES = (
    Case("gpt2-1", "gpt2", 1, 256),
    Case("gpt2-64", "gpt2", 64, 256),
    Case("gpt2-256", "gpt2", 256, 256),
    Case("gpt2-64-sample", "gpt2", 64, 256, Sample(top_k=50, top_p=0.95)),
    Case("gpt2-16-beam", "gpt2", 16, 128, Beam(4)),
    Case("llama7b-1", "llama", 1, 128),
    Case("llama7b-1-int8", "llama", 1, 128, int8=True),
)


@dataclass(frozen=True)
class Place:
    """A device, and the size of the models there."""

    device: str = "cuda"
    tiny: bool = False

    def keys(self, shape: str) -> dict[str, Any]:
        """Of the model's config."""
        found = GPT2 if shape == "gpt2" else LLAMA
        return {**found, **TINY} if self.tiny else found

    def settle(self) -> None:
        """Wait for what is still done there."""
        if self.device == "cuda":
            torch.cuda.synchronize()


def prompts(case: Case, place: Place) -> Tensor:
    """Random, the same for all; the first token is the one that texts begin with."""
    draw = torch.Generator().manual_seed(0)
    drawn = torch.randint(4, place.keys(case.shape)["vocabulary"], (case.rows, PROMPT), generator=draw)
    drawn[:, 0] = 1
    return drawn


def build(case: Case, place: Place) -> Model:
    """A language model, made where it is used; its special tokens are never written."""
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    keys = place.keys(case.shape)
    try:
        with torch.device(place.device):
            module = Transformer(TransformerConfig(**keys))
    finally:
        torch.set_default_dtype(torch.float32)
    with torch.no_grad():
        table = module.embedding if module.config.tie_embeddings else module.output
        table.weight[:4] = 0
    if case.int8:
        keep_int8(module.eval())
    letters = "".join(chr(LETTERS + place) for place in range(keys["vocabulary"] - 4))
    tokenizer = CharacterTokenizer.train([letters], keys["vocabulary"])
    assert tokenizer.size == keys["vocabulary"]
    return Model(module.eval(), tokenizer, TASKS["language_modelling"](), DecodingTable(max_new_tokens=case.tokens))


def regard(case: Case, model: Model, place: Place) -> Callable[[], int]:
    """As a user asks it."""
    texts = [model.tokenizer.decode(row[1:]) for row in prompts(case, place).tolist()]
    assert all(len(text) == PROMPT - 1 for text in texts)
    return lambda: sum(map(len, model.run(texts, strategy=case.strategy)))  # every token is a letter


def engine(case: Case, model: Model, place: Place) -> Callable[[], int]:
    """What `Model.run` decodes by."""
    tokens = prompts(case, place)
    inputs = Inputs(Padded(tokens, torch.full((case.rows,), PROMPT), ragged=False)).to(place.device)
    stop = Stop(eos_id=model.tokenizer.eos_id, max_new_tokens=case.tokens)

    def work() -> int:
        found = generate(model.module, inputs, case.strategy, stop)
        assert {one.path for one in found} == {"graph" if place.device == "cuda" else "in place"}
        return sum(len(one.ids) for one in found)

    return work


class PlainGraph:
    """The floor: our weights by plain torch calls, one step captured."""

    def __init__(self, case: Case, model: Transformer, place: Place) -> None:
        self.case, self.model, self.room = case, model, 64 * -(-(PROMPT + case.tokens) // 64)
        layers = model.decoder.layers
        first = layers[0].self_attention
        self.heads, self.width = first.heads, first.head_width
        sizes = (case.rows, self.heads, self.room, self.width)
        self.cache = [
            tuple(torch.zeros(sizes, dtype=torch.bfloat16, device=place.device) for _ in "kv") for _ in layers
        ]
        self.qkv = [_stacked(layer.self_attention) for layer in layers]
        self.ids = prompts(case, place)[:, -1].to(place.device)
        self.place = torch.full((1,), PROMPT, device=place.device)
        self.columns = torch.arange(self.room, device=place.device)
        self.replay: Callable[[], None] = torch.no_grad()(self.step)
        if place.device == "cuda":
            self._capture()

    def _capture(self) -> None:
        with torch.no_grad():
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                self.step()
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self.step()
        self.replay = graph.replay

    def step(self) -> None:
        """One token further in every row."""
        model = self.model
        stream = model.embedding(self.ids[:, None])
        turn = None
        if model.decoder_positions.rotary is not None:
            turn = model.decoder_positions.rotate(self.place[None])
        else:
            stream = stream + model.decoder_positions.absolute(self.place[None]).to(stream.dtype)
        seen = (self.columns <= self.place).view(1, 1, 1, -1)
        for layer, (weight, bias), (keys, values) in zip(model.decoder.layers, self.qkv, self.cache, strict=True):
            mixed = F.linear(layer.self_residual.norm(stream), weight, bias)
            query, key, value = mixed.view(len(mixed), 1, 3, self.heads, self.width).permute(2, 0, 3, 1, 4)
            if turn is not None:
                query, key = turn(query), turn(key)
            keys.index_copy_(2, self.place, key)
            values.index_copy_(2, self.place, value)
            out = F.scaled_dot_product_attention(query, keys, values, attn_mask=seen)
            stream = stream + layer.self_attention.output(out.transpose(1, 2).flatten(2))
            stream = stream + layer.feedforward(layer.feedforward_residual.norm(stream))
        logits = model.logits(model.decoder.norm(stream))[:, 0]
        if isinstance(self.case.strategy, Sample):  # by Gumbel noise on the most likely ones; no top-p
            likely, at = logits.float().topk(self.case.strategy.top_k or logits.shape[-1])
            noise = torch.empty_like(likely).exponential_().log_().neg_()
            self.ids.copy_(at.gather(1, (likely + noise).argmax(dim=-1, keepdim=True)).squeeze(1))
        else:
            self.ids.copy_(logits.argmax(dim=-1))
        self.place.add_(1)

    def __call__(self) -> int:
        self.place.fill_(PROMPT)
        for _ in range(self.case.tokens):
            self.replay()
        return self.case.rows * self.case.tokens


def _stacked(attention: Any) -> tuple[Tensor, Tensor | None]:
    parts = (attention.query, attention.key, attention.value)
    bias = None if parts[0].bias is None else torch.cat([one.bias for one in parts])
    return torch.cat([one.weight for one in parts]), bias


def transformers(case: Case, place: Place) -> Callable[[], int]:
    """The `generate` of transformers."""
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    gpt2 = {"n_embd": 32, "n_head": 4, "n_layer": 2, "vocab_size": 97} if place.tiny else {}
    small = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 64}
    llama = {**small, "vocab_size": 97} if place.tiny else {}
    with torch.device(place.device):
        if case.shape == "gpt2":
            model: Any = GPT2LMHeadModel(GPT2Config(pad_token_id=0, **gpt2))
        else:
            model = LlamaForCausalLM(LlamaConfig(pad_token_id=0, **llama))
    torch.set_default_dtype(torch.float32)
    model.eval()
    model.generation_config.eos_token_id = None
    tokens = prompts(case, place).to(place.device)
    options: dict[str, Any] = {"max_new_tokens": case.tokens, "do_sample": isinstance(case.strategy, Sample)}
    if isinstance(case.strategy, Sample):
        options |= {"top_k": case.strategy.top_k, "top_p": case.strategy.top_p}
    if isinstance(case.strategy, Beam):
        options |= {"num_beams": case.strategy.size}

    def work() -> int:
        with torch.no_grad():
            found = model.generate(tokens, attention_mask=torch.ones_like(tokens), **options)
        return int(found[:, PROMPT:].numel())

    return work


def timed(work: Callable[[], int], rounds: int, case: Case, place: Place) -> dict[str, float]:
    """Tokens per second, the median of the rounds, and how long the first call took beside them."""
    seconds = []
    for _ in range(rounds + 1):
        place.settle()
        begun = time.perf_counter()
        tokens = work()
        place.settle()
        seconds.append(time.perf_counter() - begun)
        assert tokens == case.rows * case.tokens, f"{tokens} tokens are not {case.rows} × {case.tokens}"
    first, *rest = seconds
    middle = statistics.median(rest)
    found = {"tokens_per_second": tokens / middle, "warm_up_seconds": first - middle}
    return {**found, "step_milliseconds": 1000 * middle / case.tokens}


def ablated(case: Case, model: Model, place: Place) -> dict[str, dict[str, float]]:
    """The engine without each kernel, and without all: its graphs are captured anew for each."""
    names = ["head", "product"] if isinstance(case.strategy, Beam) else list(triton_kernel.NAMES)
    if not isinstance(case.strategy, Sample):
        names = [name for name in names if name != "draw"]
    found = {}
    try:
        for left_out in (*names, ",".join(triton_kernel.NAMES)):
            os.environ["REGARD_WITHOUT"] = left_out
            for kept in (row_engine.KEPT, row_beams.KEPT):
                kept.of.pop(model.module, None)
            label = left_out if left_out in names else "all"
            found[label] = timed(engine(case, model, place), 1, case, place)
    finally:
        os.environ.pop("REGARD_WITHOUT", None)
        for kept in (row_engine.KEPT, row_beams.KEPT):
            kept.of.pop(model.module, None)
    return found


def measured(
    case: Case, place: Place, rounds: int, without: str, profile: Path | None, *, ablate: bool
) -> dict[str, Any]:
    """One line; every side's memory is given back before the next."""
    model = build(case, place)
    found: dict[str, Any] = {"case": case.name}
    found["regard"] = timed(regard(case, model, place), rounds, case, place)
    found["engine"] = timed(engine(case, model, place), rounds, case, place)
    if profile is not None:
        profile.write_text(kernels(engine(case, model, place)))
    if ablate:
        found["without"] = ablated(case, model, place)
    if not isinstance(case.strategy, Beam) and not case.int8:
        graph = PlainGraph(case, model.module, place)
        found["plain graph"] = timed(graph, rounds, case, place)
        found["of the plain graph"] = found["regard"]["tokens_per_second"] / found["plain graph"]["tokens_per_second"]
        del graph
    del model
    gc.collect()
    if place.device == "cuda":
        found["peak_bytes"] = torch.cuda.max_memory_allocated()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    if "transformers" not in without and not case.int8:
        found["transformers"] = timed(transformers(case, place), 1, case, place)
    return found


def kernels(work: Callable[[], int]) -> str:
    """Where the time of a call goes."""
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]
    with profile(activities=activities) as seen:
        work()
    key = "cuda_time_total" if torch.cuda.is_available() else "cpu_time_total"
    return str(seen.key_averages().table(sort_by=key, row_limit=60, max_name_column_width=90))


def rows(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the page of results shows: every side of every line, and how many times Regard's time it takes."""
    cases = {case.name: case for case in CASES}
    found = []
    for line in lines:
        case = cases[line["case"]]
        shape = {"gpt2": "GPT-2 124M", "llama": "LLaMA-7B's shape"}[case.shape] + (
            ", int8" if case.int8 else ", bfloat16"
        )
        how = type(case.strategy).__name__.lower()
        what = f"decoding, {shape}, {case.rows} × {case.tokens} tokens, {how}"
        for who in ("regard", "plain graph", "transformers"):
            if who in line:
                figure = line[who]["tokens_per_second"]
                ratio = line["regard"]["tokens_per_second"] / figure
                found.append({"what": what, "contestant": who, "tokens_per_second": figure, "ratio": ratio})
    return found


def main() -> None:
    """Line by line, each written as soon as it is there."""
    options = argparse.ArgumentParser()
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--only", default="")
    options.add_argument("--without", default="")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--resume", type=Path)
    options.add_argument("--minutes", type=float, default=8.0)
    options.add_argument("--profile", action="store_true")
    options.add_argument("--ablate", action="store_true")
    options.add_argument("--tiny", action="store_true")
    given = options.parse_args()
    place = Place("cpu", tiny=True) if given.tiny else Place()
    paths.DEVICES = frozenset({place.device})
    names = given.only.split(",") if given.only else [case.name for case in CASES]
    given.out.mkdir(parents=True, exist_ok=True)
    lines: list[dict[str, Any]] = json.loads(given.resume.read_text())["lines"] if given.resume else []
    until = time.monotonic() + 60 * given.minutes
    for case in CASES:
        if case.name not in names or any(line["case"] == case.name for line in lines) or time.monotonic() > until:
            continue
        if given.tiny:
            case = replace(case, rows=min(case.rows, 3), tokens=9)
        try:
            profile = given.out / f"{case.name}-kernels.txt" if given.profile else None
            lines.append(measured(case, place, given.rounds, given.without, profile, ablate=given.ablate))
        except (RuntimeError, AssertionError) as error:  # one line that fails costs no other
            print(f"{case.name}: {type(error).__name__}: {error}", flush=True)
            continue
        print(json.dumps(lines[-1]), flush=True)
        about = circumstances(place.device) | {"command": "python " + " ".join(sys.argv)}
        record = {**about, "rows": rows(lines), "kernels": triton_kernel.tried(), "lines": lines}
        (given.out / "decoding-h200.json").write_text(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
