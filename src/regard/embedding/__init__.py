"""From ids to vectors: what a token is, and where it stands."""
