"""How alike a query and a key are, before the softmax: five ways, each an object.

    dot          q · k                       Luong et al. 2015, §3.1
    scaled_dot   q · k / √d_k                Vaswani et al. 2017, eq. 1
    cosine       q · k / (‖q‖ ‖k‖)           dot on unit vectors
    general      qᵀ W k                      Luong et al. 2015, §3.1
    additive     vᵀ tanh(W q + U k)          Bahdanau et al. 2014, §A.1.2

General and additive map what they compare, so their queries and keys may be of different widths. `split` parts any
similarity into what maps the keys, computed once for a memory that many queries come to, and what compares queries
with mapped keys; `split_similarity` does so by name, between any two widths.

Adding one is one class and one line in SIMILARITIES; the laws, every model and every kernel then know it. One of your
own goes as an object into `attend` and `MultiHeadAttention`, or by `register_similarity` into recipes. What owns
parameters owns one set for all heads: the heads already differ by their projections.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from regard.axes import ComparedKey, ComparedQuery, Key, Query, Scores
from regard.errors import ConfigError, choose
from regard.layers.linear import Linear
from regard.plugins import load_plugins


class Similarity(nn.Module, ABC):
    """Scores of every query against every key.

    Laws: the score of (query, key) depends on that pair alone; where `as_dot` returns something, its scaled dot
    product equals `scores`, which is what lets the fused kernels run it; `split` changes no score.
    """

    maps_keys: ClassVar[bool] = False
    """Whether it maps keys itself, and is made by `(head_width, key_width)` where these differ."""

    @property
    def widths(self) -> tuple[int, int] | None:
        """Of the queries and the keys it is made for; None where any will do that are equal."""
        return None

    @abstractmethod
    def scores(self, query: Query, key: Key) -> Scores:
        """[batch, heads, queries, keys]."""

    def as_dot(self, query: Query, key: Key) -> tuple[ComparedQuery, ComparedKey, float] | None:
        """(query', key', scale) with `scores = scale · query' · key'ᵀ`, or None where no inner product says it."""
        return None

    def split(self) -> "tuple[nn.Module, Similarity]":
        """A map of keys that needs no query, and the similarity of queries with mapped keys; they share the weights."""
        return nn.Identity(), self


class InnerProduct(Similarity):
    """A similarity that is a scaled dot product of transformed queries and keys."""

    @abstractmethod
    def as_dot(self, query: Query, key: Key) -> tuple[ComparedQuery, ComparedKey, float]:
        """(query', key', scale)."""

    def scores(self, query: Query, key: Key) -> Scores:
        """`scale · query' · key'ᵀ`."""
        query, key, scale = self.as_dot(query, key)
        return (query @ key.transpose(-2, -1)) * scale


class Dot(InnerProduct):
    """`q · k`; its variance grows with the head width."""

    def as_dot(self, query: Query, key: Key) -> tuple[ComparedQuery, ComparedKey, float]:
        """As they are."""
        return query, key, 1.0


class ScaledDot(InnerProduct):
    """`q · k / √d_k`; unit variance for unit-variance coordinates. A `scale` takes the place of 1/√d_k."""

    def __init__(self, scale: float | None = None) -> None:
        super().__init__()
        self.scale = scale

    def as_dot(self, query: Query, key: Key) -> tuple[ComparedQuery, ComparedKey, float]:
        """As they are, divided by √d_k."""
        return query, key, query.shape[-1] ** -0.5 if self.scale is None else self.scale


class Cosine(InnerProduct):
    """The cosine of the angle between query and key, in [−1, 1]."""

    def as_dot(self, query: Query, key: Key) -> tuple[ComparedQuery, ComparedKey, float]:
        """Both brought to length 1."""
        return F.normalize(query, dim=-1), F.normalize(key, dim=-1), 1.0


class General(InnerProduct):
    """`qᵀ W k` with a learnt matrix that starts as the identity ÷ √d_k, where it equals scaled dot.

    Between different widths it starts as a part of a rotation instead, ÷ √d_k as well.
    """

    maps_keys = True

    def __init__(self, head_width: int, key_width: int | None = None) -> None:
        super().__init__()
        matrix = torch.eye(head_width) if key_width in (None, head_width) else rotation(head_width, key_width)
        self.matrix = nn.Parameter(matrix * head_width**-0.5)

    @property
    def widths(self) -> tuple[int, int]:
        """Of the matrix."""
        head_width, key_width = self.matrix.shape
        return head_width, key_width

    def as_dot(self, query: Query, key: Key) -> tuple[ComparedQuery, ComparedKey, float]:
        """The query passed through W."""
        return query @ self.matrix, key, 1.0

    def split(self) -> tuple[nn.Module, Similarity]:
        """`q · (W k)`: the keys passed through W, and a dot product."""
        head_width, key_width = self.widths
        of_key = Linear(key_width, head_width, bias=False)
        of_key.weight = self.matrix
        return of_key, Dot()


class Additive(Similarity):
    """`vᵀ tanh(W q + U k)`: a small network per pair. No inner product says it, so the reference kernel runs it."""

    maps_keys = True

    def __init__(self, head_width: int, key_width: int | None = None) -> None:
        super().__init__()
        self.of_query = Linear(head_width, head_width, bias=False)
        self.of_key = Linear(head_width if key_width is None else key_width, head_width, bias=False)
        self.direction = nn.Parameter(torch.empty(head_width).uniform_(-1, 1) * head_width**-0.5)

    @property
    def widths(self) -> tuple[int, int]:
        """Of W and U."""
        return self.of_query.in_features, self.of_key.in_features

    def scores(self, query: Query, key: Key) -> Scores:
        """Of keys passed through U."""
        return _additive(self.of_query(query), self.of_key(key), self.direction)

    def split(self) -> "tuple[nn.Module, AdditiveOfMapped]":
        """U, and the rest."""
        return self.of_key, AdditiveOfMapped(self.of_query, self.direction)


class AdditiveOfMapped(Similarity):
    """`vᵀ tanh(W q + u)` of keys u that have been passed through U."""

    def __init__(self, of_query: Linear, direction: nn.Parameter) -> None:
        super().__init__()
        self.of_query = of_query
        self.direction = direction

    @property
    def widths(self) -> tuple[int, int]:
        """Of W: what goes in, and what comes out."""
        return self.of_query.in_features, self.of_query.out_features

    def scores(self, query: Query, key: Key) -> Scores:
        """Of keys as they come."""
        return _additive(self.of_query(query), key, self.direction)


class Softcapped(Similarity):
    """`c · tanh(s / c)` of another similarity's scores s: none is beyond ±c (Gemma Team 2024, §2).

    No inner product says it, so the reference kernel runs it.
    """

    def __init__(self, similarity: Similarity, cap: float) -> None:
        super().__init__()
        self.similarity, self.cap = similarity, cap

    @property
    def widths(self) -> tuple[int, int] | None:
        return self.similarity.widths

    def scores(self, query: Query, key: Key) -> Scores:
        """The other's, bent."""
        return self.cap * torch.tanh(self.similarity.scores(query, key) / self.cap)


def _additive(query: ComparedQuery, key: ComparedKey, direction: Float[Tensor, "compared"]) -> Scores:
    """`vᵀ tanh(q + u)` of mapped queries and keys, by way of [batch, heads, queries, keys, compared]."""
    hidden = torch.tanh(query.unsqueeze(-2) + key.unsqueeze(-3))
    return hidden @ direction.to(hidden.dtype)


def rotation(out: int, inputs: int) -> Float[Tensor, "out inputs"]:
    """A random matrix with orthogonal rows or columns: it keeps lengths as far as there is room for them."""
    return nn.init.orthogonal_(torch.empty(out, inputs))


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
    load_plugins()
    if name not in SIMILARITIES:
        raise ConfigError(f"similarity {name!r} is unknown", choose(name, SIMILARITIES))


def similarity_module(name: str, head_width: int) -> Similarity:
    """A fresh similarity by name, for heads of this width."""
    check_similarity(name)
    return require_similarity(SIMILARITIES[name](head_width))


def split_similarity(name: str, head_width: int, key_width: int) -> tuple[nn.Module, Similarity]:
    """What maps the keys of a memory once, and what then compares queries of `head_width` with them.

    Where the widths differ, a similarity that does not map keys itself gets them through a learnt matrix.
    """
    if head_width == key_width:
        return similarity_module(name, head_width).split()
    check_similarity(name)
    factory = SIMILARITIES[name]
    if isinstance(factory, type) and issubclass(factory, Similarity) and factory.maps_keys:
        return factory(head_width, key_width).split()
    to_query = Linear(key_width, head_width, bias=False)
    to_query.weight = nn.Parameter(rotation(head_width, key_width))
    of_key, mapped = similarity_module(name, head_width).split()
    return (to_query if isinstance(of_key, nn.Identity) else nn.Sequential(to_query, of_key)), mapped


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
