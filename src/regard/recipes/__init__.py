"""The shipped recipes: TOML files, found by name."""
