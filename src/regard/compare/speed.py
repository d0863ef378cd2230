"""How long forward and backward take for a token, at lengths that grow while the tokens of a batch stay as many."""

import statistics
import time

import torch

from regard.compare.probe import probe
from regard.models.network import Network

PASSES, SECONDS = 5, 6.0
"""How often a length is timed after a first pass, and for how long at the most, but once."""


def seconds_per_token(module: Network, length: int, tokens: int) -> float:
    """The median of a few passes over `tokens` target tokens in rows of `length`, with sources as long."""
    rows = max(tokens // length, 1)
    inputs = probe(module.config.vocabulary, rows=rows, length=length).to(module.device)
    module.train()
    begun, found = time.perf_counter(), []
    for number in range(PASSES + 1):
        before = time.perf_counter()
        module(inputs).sum().backward()
        module.zero_grad(set_to_none=True)
        if module.device.type == "cuda":
            torch.cuda.synchronize(module.device)
        if number:
            found.append(time.perf_counter() - before)
        if found and time.perf_counter() - begun > SECONDS:
            break
    module.eval()
    return statistics.median(found) / (rows * length)
