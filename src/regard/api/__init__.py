"""The objects people hold: `load` a model, `train` one from a recipe, `watch` what it attends to.

Here the folders above are joined: text becomes ids, the model decodes, ids become text again.
"""

from regard.api import tokenizer, vectors
from regard.api.checkup import doctor
from regard.api.loading import load
from regard.api.model import Model, save_around, watch
from regard.api.preview import Preview, preview
from regard.api.training import train
from regard.api.watched import Watched

__all__ = [
    "Model",
    "Preview",
    "Watched",
    "doctor",
    "load",
    "preview",
    "save_around",
    "tokenizer",
    "train",
    "vectors",
    "watch",
]
