"""From vectors to vectors: the layers a Transformer is stacked from."""
