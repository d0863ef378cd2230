"""Corpus `tales`: a small simulated world, tales told of it, and what is known about each."""
