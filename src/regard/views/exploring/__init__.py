"""What the explorer's page asks of a recording, answered as plain JSON: over HTTP, or in a notebook."""
