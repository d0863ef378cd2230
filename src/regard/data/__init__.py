"""Files and built-in corpora to pairs of texts. Importing this folder fills `regard.data.corpus.CORPORA`."""

from regard.data import dates, listops, mixture, numbers, python, recall, repeats, synthetic
from regard.data.tales import corpus as tales

__all__ = ["dates", "listops", "mixture", "numbers", "python", "recall", "repeats", "synthetic", "tales"]
