"""Several trainings side by side: each is kept in a folder of its own, and what was measured of it beside it."""
