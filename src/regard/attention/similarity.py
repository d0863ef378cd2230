"""How alike a query and a key are, before the softmax: five ways, each an object.

    dot          q · k                       Luong et al. 2015, §3.1
    scaled_dot   q · k / √d_k                Vaswani et al. 2017, eq. 1
    cosine       q · k / (‖q‖ ‖k‖)           dot on unit vectors
    general      qᵀ W k                      Luong et al. 2015, §3.1
    additive     vᵀ tanh(W q + U k)          Bahdanau et al. 2014, §A.1.2

Adding one is one class and one line in SIMILARITIES; the laws, every model and every kernel then know it. One of your
own goes as an object into `attend` and `MultiHeadAttention`, or by `register_similarity` into recipes. What owns
parameters owns one set for all heads: the heads already differ by their projections.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from regard.axes import Key, Query, Scores
from regard.errors import ConfigError, choose


class Similarity(nn.Module, ABC):
    """Scores of every query against every key.

    Laws: the score of (query, key) depends on that pair alone; where `as_dot` returns something, its scaled dot
    product equals `scores`, which is what lets the fused kernels run it.
    """

    @abstractmethod
    def scores(self, query: Query, key: Key) -> Scores:
        """[batch, heads, queries, keys]."""

    def as_dot(self, query: Query, key: Key) -> tuple[Query, Key, float] | None:
        """(query', key', scale) with `scores = scale · query' · key'ᵀ`, or None where no inner product says it."""
        return None


class InnerProduct(Similarity):
    """A similarity that is a scaled dot product of transformed queries and keys."""

    @abstractmethod
    def as_dot(self, query: Query, key: Key) -> tuple[Query, Key, float]:
        """(query', key', scale)."""

    def scores(self, query: Query, key: Key) -> Scores:
        """`scale · query' · key'ᵀ`."""
        query, key, scale = self.as_dot(query, key)
        return (query @ key.transpose(-2, -1)) * scale


class Dot(InnerProduct):
    """`q · k`; its variance grows with the head width."""

    def as_dot(self, query: Query, key: Key) -> tuple[Query, Key, float]:
        """As they are."""
        return query, key, 1.0


class ScaledDot(InnerProduct):
    """`q · k / √d_k`; unit variance for unit-variance coordinates."""

    def as_dot(self, query: Query, key: Key) -> tuple[Query, Key, float]:
        """As they are, divided by √d_k."""
        return query, key, query.shape[-1] ** -0.5


class Cosine(InnerProduct):
    """The cosine of the angle between query and key, in [−1, 1]."""

    def as_dot(self, query: Query, key: Key) -> tuple[Query, Key, float]:
        """Both brought to length 1."""
        return F.normalize(query, dim=-1), F.normalize(key, dim=-1), 1.0


class General(InnerProduct):
    """`qᵀ W k` with a learnt matrix that starts as the identity ÷ √d_k, where it equals scaled dot."""

    def __init__(self, head_width: int) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.eye(head_width) * head_width**-0.5)

    def as_dot(self, query: Query, key: Key) -> tuple[Query, Key, float]:
        """The query passed through W."""
        return query @ self.matrix, key, 1.0


class Additive(Similarity):
    """`vᵀ tanh(W q + U k)`: a small network per pair. No inner product says it, so the reference kernel runs it."""

    def __init__(self, head_width: int) -> None:
        super().__init__()
        self.of_query = nn.Linear(head_width, head_width, bias=False)
        self.of_key = nn.Linear(head_width, head_width, bias=False)
        self.direction = nn.Parameter(torch.empty(head_width).uniform_(-1, 1))

    def scores(self, query: Query, key: Key) -> Scores:
        """[batch, heads, queries, keys], by way of [batch, heads, queries, keys, head_width]."""
        hidden: Float[Tensor, "batch heads queries keys head_width"] = torch.tanh(
            self.of_query(query).unsqueeze(-2) + self.of_key(key).unsqueeze(-3)
        )
        return hidden @ self.direction.to(hidden.dtype)


SIMILARITIES: dict[str, Callable[[int], Similarity]] = {
    "dot": lambda head_width: Dot(),
    "scaled_dot": lambda head_width: ScaledDot(),
    "cosine": lambda head_width: Cosine(),
    "general": General,
    "additive": Additive,
}


def register_similarity(name: str, factory: Callable[[int], Similarity]) -> None:
    """Make a similarity known by a name, for recipes and configs: `model.similarity = "name"`.

    The factory is given the head width, so a class whose only argument is the head width will do. A saved model names
    its similarity and does not hold its code: register it again before loading one.
    """
    if name in SIMILARITIES:
        raise ConfigError(f"similarity {name!r} is there already", "choose another name")
    if not name.isidentifier():
        raise ConfigError(f"similarity {name!r} is not a name", "use letters, digits and underscores")
    if not callable(factory) or isinstance(factory, Similarity):
        raise ConfigError(
            f"similarity {name!r} is made by a function of the head width, not by {type(factory).__name__}",
            "give the class, or `lambda head_width: MySimilarity()`",
        )
    SIMILARITIES[name] = factory


def check_similarity(name: str) -> None:
    """Refuse a name that is none."""
    if name not in SIMILARITIES:
        raise ConfigError(f"similarity {name!r} is unknown", choose(name, SIMILARITIES))


def similarity_module(name: str, head_width: int) -> Similarity:
    """A fresh similarity by name, for heads of this width."""
    check_similarity(name)
    return require_similarity(SIMILARITIES[name](head_width))


def require_similarity(given: object) -> Similarity:
    """The object itself, if it is one that scores queries against keys."""
    if not isinstance(given, Similarity):
        raise ConfigError(
            f"a similarity is a name or an object, not {given if isinstance(given, type) else type(given).__name__}",
            "derive a class from regard.Similarity with a method `scores(query, key)`, and give an object of it",
        )
    return given


def resolve(similarity: str | Similarity, head_width: int) -> Similarity:
    """The object meant by a name or an object; a name whose similarity must be learnt is refused."""
    return _shared(similarity, head_width) if isinstance(similarity, str) else require_similarity(similarity)


@cache
def _shared(name: str, head_width: int) -> Similarity:
    """The one object of a similarity without parameters."""
    found = similarity_module(name, head_width)
    if next(found.parameters(), None) is not None:
        raise ConfigError(
            f"similarity {name!r} has parameters of its own and a bare call would draw new ones each time",
            f"make one, `regard.{type(found).__name__}({head_width})`, and pass the object",
        )
    return found
