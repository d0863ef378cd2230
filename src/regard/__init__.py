"""Regard: a toolkit for attention models.

The public names are found here and loaded when first used, so that `import regard` stays light. Type checkers read
them from the imports below; a test holds these and the table of homes together.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.api import (
        Model as Model,
        doctor as doctor,
        load as load,
        tokenizer as tokenizer,
        train as train,
        vectors as vectors,
        watch as watch,
    )
    from regard.attention.bias import ALiBi as ALiBi, RelativeBuckets as RelativeBuckets
    from regard.attention.core import attend as attend, weights as weights, which_kernel as which_kernel
    from regard.attention.kernels import KernelChoice as KernelChoice
    from regard.attention.mask import (
        Block as Block,
        Causal as Causal,
        Dense as Dense,
        Dilated as Dilated,
        Document as Document,
        Global as Global,
        Mask as Mask,
        MaskFunction as MaskFunction,
        Padding as Padding,
        Prefix as Prefix,
        Window as Window,
    )
    from regard.attention.cache import AttentionState as AttentionState
    from regard.attention.mechanism import (
        Abilities as Abilities,
        LayerContext as LayerContext,
        Mechanism as Mechanism,
        MechanismShape as MechanismShape,
        register_mechanism as register_mechanism,
    )
    from regard.attention.multihead import MultiHeadAttention as MultiHeadAttention
    from regard.attention.projections import Projections as Projections
    from regard.attention.rotary import Rotary as Rotary
    from regard.attention.similarity import (
        Additive as Additive,
        Cosine as Cosine,
        Dot as Dot,
        General as General,
        ScaledDot as ScaledDot,
        Similarity as Similarity,
        register_similarity as register_similarity,
    )
    from regard.attention.slot import Slot as Slot
    from regard.data.batching import Batch as Batch, Inputs as Inputs, Padded as Padded
    from regard.decoding.constraints import MustContain as MustContain, MustNotContain as MustNotContain
    from regard.decoding.engine import generate as generate
    from regard.decoding.filters import Filter as Filter, Generated as Generated
    from regard.decoding.hypothesis import Hypothesis as Hypothesis, Stop as Stop
    from regard.decoding.speculative import PromptLookup as PromptLookup
    from regard.decoding.stepper import Stepper as Stepper
    from regard.decoding.strategies import (
        Beam as Beam,
        Contrastive as Contrastive,
        Greedy as Greedy,
        Sample as Sample,
    )
    from regard.errors import (
        ConfigError as ConfigError,
        FileError as FileError,
        InputError as InputError,
        RegardError as RegardError,
    )
    from regard.inspection.intervention import (
        EdgeKnockout as EdgeKnockout,
        HeadAblation as HeadAblation,
        StreamPatch as StreamPatch,
    )
    from regard.models.config import TransformerConfig as TransformerConfig
    from regard.models.network import (
        Network as Network,
        NetworkConfig as NetworkConfig,
        NetworkShape as NetworkShape,
        register_network as register_network,
    )
    from regard.models.transformer import Transformer as Transformer
    from regard.tasks.recipe import Recipe as Recipe
    from regard.tasks.scoring import Score as Score
    from regard.tasks.task import Task as Task, register_task as register_task
    from regard.tasks.task_table import TaskTable as TaskTable
    from regard.text.tokenizer import Tokenizer as Tokenizer
    from regard.training.trainable import Loss as Loss, Trainable as Trainable

__version__ = "0.1.0"

_HOMES = {
    "regard.api": ("Model", "doctor", "load", "tokenizer", "train", "vectors", "watch"),
    "regard.attention.bias": ("ALiBi", "RelativeBuckets"),
    "regard.attention.core": ("attend", "which_kernel", "weights"),
    "regard.attention.kernels": ("KernelChoice",),
    "regard.attention.mask": (
        "Block",
        "Causal",
        "Dense",
        "Dilated",
        "Document",
        "Global",
        "Mask",
        "MaskFunction",
        "Padding",
        "Prefix",
        "Window",
    ),
    "regard.attention.cache": ("AttentionState",),
    "regard.attention.mechanism": ("Abilities", "LayerContext", "Mechanism", "MechanismShape", "register_mechanism"),
    "regard.attention.multihead": ("MultiHeadAttention",),
    "regard.attention.projections": ("Projections",),
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
    "regard.attention.slot": ("Slot",),
    "regard.data.batching": ("Batch", "Inputs", "Padded"),
    "regard.decoding.constraints": ("MustContain", "MustNotContain"),
    "regard.decoding.engine": ("generate",),
    "regard.decoding.filters": ("Filter", "Generated"),
    "regard.decoding.hypothesis": ("Hypothesis", "Stop"),
    "regard.decoding.stepper": ("Stepper",),
    "regard.decoding.speculative": ("PromptLookup",),
    "regard.decoding.strategies": ("Beam", "Contrastive", "Greedy", "Sample"),
    "regard.errors": ("ConfigError", "FileError", "InputError", "RegardError"),
    "regard.inspection.intervention": ("EdgeKnockout", "HeadAblation", "StreamPatch"),
    "regard.models.config": ("TransformerConfig",),
    "regard.models.network": ("Network", "NetworkConfig", "NetworkShape", "register_network"),
    "regard.models.transformer": ("Transformer",),
    "regard.tasks.recipe": ("Recipe",),
    "regard.tasks.scoring": ("Score",),
    "regard.tasks.task": ("Task", "register_task"),
    "regard.tasks.task_table": ("TaskTable",),
    "regard.text.tokenizer": ("Tokenizer",),
    "regard.training.trainable": ("Loss", "Trainable"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)  # noqa: PLE0605  (a list of strings, made from the table above)


if not TYPE_CHECKING:  # which would take any name for one of Regard's otherwise

    def __getattr__(name: str) -> Any:
        if name not in _HOME_OF:
            raise AttributeError(f"regard has no public name {name!r}")
        return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
