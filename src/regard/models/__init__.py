"""From ids to logits: whole models, described by a config and kept in a folder."""
