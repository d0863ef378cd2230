"""From ids to logits: networks, described by a config and kept in a folder. Importing this fills `NETWORKS`."""

from regard.models import recurrent, transformer

__all__ = ["recurrent", "transformer"]
