"""Attention in less than n² steps: one paper, one file, each a registered mechanism. Importing this registers all."""
