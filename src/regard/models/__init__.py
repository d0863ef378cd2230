"""From ids to logits: networks, described by a config and kept in a folder. Importing this fills `NETWORKS`."""

from regard.models import transformer

__all__ = ["transformer"]
