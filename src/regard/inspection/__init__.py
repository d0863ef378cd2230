"""Looking inside: what a model attends to, and the laws a correct one obeys."""
