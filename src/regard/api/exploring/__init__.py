"""What the explorer's page asks of a model, answered as plain JSON: over HTTP, in a notebook, or into a file."""
