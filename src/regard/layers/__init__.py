"""The small parts: linear maps, dropout, norms, the feed-forward network, the residual connection."""
