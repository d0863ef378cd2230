"""Files and built-in corpora to pairs of texts. Importing this folder fills `regard.data.corpus.CORPORA`."""

from regard.data import dates, listops, numbers, recall, synthetic

__all__ = ["dates", "listops", "numbers", "recall", "synthetic"]
