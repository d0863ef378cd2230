"""Inputs of an exact size, drawn by a seed, for measurements that do not ask what the tokens say."""

import torch

from regard.data.batching import Inputs, Padded


def probe(vocabulary: int, *, rows: int, length: int, seed: int = 0) -> Inputs:
    """Sources and targets of so many tokens each."""
    generator = torch.Generator().manual_seed(seed)
    source, tokens = (torch.randint(vocabulary, (rows, length), generator=generator) for _ in range(2))
    lengths = torch.full((rows,), length)
    return Inputs(Padded(tokens, lengths, ragged=False), Padded(source, lengths, ragged=False))
