"""The loop: anything Trainable, from a loss that is a sum and a count to a folder that can be resumed."""
