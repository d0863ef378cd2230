"""Regard: a toolkit for attention models.

The public names are found here and loaded when first used, so that `import regard` stays light.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "regard.api": ("Model", "load", "train", "watch"),
    "regard.attention.bias": ("ALiBi", "RelativeBuckets"),
    "regard.attention.core": ("attend", "which_kernel", "weights"),
    "regard.attention.kernels": ("KernelChoice",),
    "regard.attention.mask": (
        "Block",
        "Causal",
        "Dense",
        "Dilated",
        "Document",
        "Function",
        "Global",
        "Mask",
        "Padding",
        "Prefix",
        "Window",
    ),
    "regard.attention.multihead": ("MultiHeadAttention",),
    "regard.attention.rotary": ("Rotary",),
    "regard.attention.similarity": (
        "Additive",
        "Cosine",
        "Dot",
        "General",
        "ScaledDot",
        "Similarity",
        "register_similarity",
    ),
    "regard.data.batching": ("Batch", "Inputs", "Padded"),
    "regard.decoding.engine": ("generate",),
    "regard.decoding.filters": ("Filter",),
    "regard.decoding.hypothesis": ("Hypothesis", "Stop"),
    "regard.decoding.stepper": ("Stepper",),
    "regard.decoding.strategies": ("Beam", "Greedy", "Sample"),
    "regard.errors": ("ConfigError", "FileError", "InputError", "RegardError"),
    "regard.models.config": ("TransformerConfig",),
    "regard.models.transformer": ("Transformer",),
    "regard.tasks.recipe": ("Recipe",),
    "regard.tasks.task": ("Task",),
    "regard.text.tokenizer": ("Tokenizer",),
    "regard.training.trainable": ("Loss", "Trainable"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)  # noqa: PLE0605  (a list of strings, made from the table above)


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"regard has no public name {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
