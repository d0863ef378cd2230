"""What people ask for: data, model and metric in one, and the recipe that puts them together."""

from regard.tasks import registry

__all__ = ["registry"]
