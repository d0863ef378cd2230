"""A model's token embedding that begins with word vectors instead of chance.

A token whose text, without the space around it, is a word that has a vector takes it; all others keep what was drawn.
The vectors keep their proportions and are scaled together, so that their numbers vary as much as drawn ones: a model's
first outputs then have the size it is built for.
"""

import numpy as np
import torch

from regard.embedding.tokens import TokenEmbedding
from regard.embedding.vectors import Vectors
from regard.errors import ConfigError, changing
from regard.text.tokenizer import Tokenizer


def begin_with(embedding: TokenEmbedding, tokenizer: Tokenizer, vectors: Vectors) -> int:
    """Put the vectors in place; how many tokens had one."""
    size, width = embedding.weight.shape
    if vectors.width != width:
        raise ConfigError(
            f"the vectors have a width of {vectors.width} and the model has {width}",
            f"use {changing('model.width', vectors.width)}, or vectors of width {width}",
        )
    texts = [tokenizer.token_text(token).strip() for token in range(size)]
    tokens = [token for token, text in enumerate(texts) if text in vectors]
    if not tokens:
        raise ConfigError(
            f"none of the {size:,} tokens is a word among the {len(vectors):,} that have vectors",
            "use vectors of the same language, or leave them out",
        )
    found = vectors.matrix[[vectors.index[texts[token]] for token in tokens]]
    scale = width**-0.5 / (float(np.sqrt(np.mean(found.astype(np.float64) ** 2))) or 1.0)
    with torch.no_grad():
        embedding.weight[tokens] = torch.from_numpy(found * np.float32(scale)).to(embedding.weight)
    return len(tokens)
