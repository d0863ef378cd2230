"""Word2Vec: the plain form, its fast CPU kernel, its torch trainer for GPUs."""
