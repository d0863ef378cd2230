"""The heart: similarities, masks, biases, and the attention they meet in."""
