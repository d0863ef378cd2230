"""Decoded tokens per second on one GPU: Regard, `generate` of transformers, and a plain graph, in one run.

    python benchmarks/decoding_on_gpu.py --out OUT [--only gpt2-1,gpt2-64,…] [--without transformers] [--rounds 3]

Random weights, bf16, prompts of 32 tokens, nothing ends a text. The plain graph is the floor: eager kernels, a static
cache over the whole room, all rows at one position, one step captured by hand and replayed; no prefill is in its time.
Regard decodes through `generate`, as `Model.run` does, prefill included; the first call, which captures its graphs, is
told apart as the warm-up. OUT/decoding-h200.json is written after every line.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.bench.timing import circumstances
from regard.data.batching import Inputs, Padded
from regard.decoding.engine import generate
from regard.decoding.hypothesis import Stop
from regard.decoding.strategies import Beam, Greedy, Sample, Strategy
from regard.models.config import TransformerConfig
from regard.models.transformer import Transformer

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


GREEDY = Greedy()


@dataclass(frozen=True)
class Case:
    """One line: a model, how many texts, how many new tokens, and how they are chosen."""

    name: str
    shape: str
    rows: int
    tokens: int
    strategy: Strategy = GREEDY


CASES = (
    Case("gpt2-1", "gpt2", 1, 256),
    Case("gpt2-64", "gpt2", 64, 256),
    Case("gpt2-256", "gpt2", 256, 256),
    Case("gpt2-64-sample", "gpt2", 64, 256, Sample(top_k=50, top_p=0.95)),
    Case("gpt2-16-beam", "gpt2", 16, 128, Beam(4)),
    Case("llama7b-1", "llama", 1, 128),
)


def prompts(case: Case) -> Tensor:
    """Random, the same for all."""
    draw = torch.Generator().manual_seed(0)
    return torch.randint(3, 30000, (case.rows, PROMPT), generator=draw)


def build(shape: str) -> Transformer:
    """Ours, made on the GPU."""
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("cuda"):
            model = Transformer(TransformerConfig(**(GPT2 if shape == "gpt2" else LLAMA)))
    finally:
        torch.set_default_dtype(torch.float32)
    return model.eval()


def regard(case: Case, model: Transformer) -> Callable[[], int]:
    """Through the engine that `Model.run` decodes by."""
    tokens = prompts(case)
    inputs = Inputs(Padded(tokens, torch.full((case.rows,), PROMPT), ragged=False)).to("cuda")
    stop = Stop(eos_id=-5, max_new_tokens=case.tokens)
    return lambda: sum(len(one.ids) for one in generate(model, inputs, case.strategy, stop))


class PlainGraph:
    """The floor: our weights by plain torch calls, one step captured."""

    def __init__(self, case: Case, model: Transformer) -> None:
        self.case, self.model, self.room = case, model, 64 * -(-(PROMPT + case.tokens) // 64)
        layers = model.decoder.layers
        first = layers[0].self_attention
        self.heads, self.width = first.heads, first.head_width
        sizes = (case.rows, self.heads, self.room, self.width)
        self.cache = [tuple(torch.zeros(sizes, dtype=torch.bfloat16, device="cuda") for _ in "kv") for _ in layers]
        self.qkv = [_stacked(layer.self_attention) for layer in layers]
        self.ids = prompts(case)[:, -1].cuda()
        self.place = torch.full((1,), PROMPT, device="cuda")
        self.columns = torch.arange(self.room, device="cuda")
        with torch.no_grad():
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                self.step()
            torch.cuda.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.step()

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
        self.ids.copy_(logits.argmax(dim=-1))
        self.place.add_(1)

    def __call__(self) -> int:
        self.place.fill_(PROMPT)
        for _ in range(self.case.tokens):
            self.graph.replay()
        return self.case.rows * self.case.tokens


def _stacked(attention: Any) -> tuple[Tensor, Tensor | None]:
    parts = (attention.query, attention.key, attention.value)
    bias = None if parts[0].bias is None else torch.cat([one.bias for one in parts])
    return torch.cat([one.weight for one in parts]), bias


def transformers(case: Case) -> Callable[[], int]:
    """The `generate` of transformers."""
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        if case.shape == "gpt2":
            model: Any = GPT2LMHeadModel(GPT2Config(pad_token_id=0))
        else:
            model = LlamaForCausalLM(LlamaConfig(pad_token_id=0))
    torch.set_default_dtype(torch.float32)
    model.eval()
    model.generation_config.eos_token_id = None
    tokens = prompts(case).cuda()
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


def timed(work: Callable[[], int], rounds: int) -> dict[str, float]:
    """Tokens per second, the median of the rounds, and how long the first call took beside them."""
    seconds = []
    for _ in range(rounds + 1):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        tokens = work()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begun)
    first, *rest = seconds
    return {"tokens_per_second": tokens / statistics.median(rest), "warm_up_seconds": first - statistics.median(rest)}


def main() -> None:
    """Line by line, each written as soon as it is there."""
    options = argparse.ArgumentParser()
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--only", default="")
    options.add_argument("--without", default="")
    options.add_argument("--rounds", type=int, default=3)
    given = options.parse_args()
    names = given.only.split(",") if given.only else [case.name for case in CASES]
    given.out.mkdir(parents=True, exist_ok=True)
    lines: list[dict[str, Any]] = []
    models: dict[str, Transformer] = {}
    for case in CASES:
        if case.name not in names:
            continue
        if case.shape not in models:
            models.clear()
            torch.cuda.empty_cache()
            models[case.shape] = build(case.shape)
        model = models[case.shape]
        found: dict[str, Any] = {"case": case.name, "regard": timed(regard(case, model), given.rounds)}
        if isinstance(case.strategy, Greedy):
            found["plain graph"] = timed(PlainGraph(case, model), given.rounds)
        if "transformers" not in given.without:
            found["transformers"] = timed(transformers(case), 1)
        lines.append(found)
        print(json.dumps(found), flush=True)
        record = {**circumstances("cuda"), "lines": lines}
        (given.out / "decoding-h200.json").write_text(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
