"""Single values of somebody else's config.json, each of the kind it must be, or refused by its name there."""

from collections.abc import Mapping
from typing import Any

from regard.blocks.config import MOST
from regard.errors import ConfigError
from regard.models.config import MOST_LAYERS

HUGE = 1e30
PATTERNS: dict[str, tuple[Any, ...]] = {
    "sliding_window": (None,),
    "attention_chunk_size": (None,),
    "is_causal": (True,),
    "use_bidirectional_attention": (None, False),
    "layer_types": (None, []),
    "num_kv_shared_layers": (None, 0),
    "per_layer_config": (None, {}),
}
"""Keys by which transformers lets any decoder see less or more than all before it, and the values that do not."""
_REMEDY = "copy config.json again from where the model came from"


def value_of(hf: Mapping[str, Any], key: str, default: Any) -> Any:
    """The value of a key, of the kind its default is; None is a whole number that may be absent."""
    if isinstance(default, bool):
        return flag(hf, key, default)
    if isinstance(default, float):
        return number(hf, key, default)
    return whole(hf, key, default)


def whole(hf: Mapping[str, Any], key: str, default: int | None) -> int | None:
    """A whole number above zero, or None if the default is that."""
    value = hf.get(key, default)
    if value is None and default is None:
        return None
    most = MOST_LAYERS if "layer" in key else MOST
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise ConfigError(f"{key} = {_short(value)} is no number from 1 to {most:,}", _REMEDY)
    return value


def count(hf: Mapping[str, Any], key: str, default: int) -> int:
    """A whole number above zero that must be there."""
    return whole(hf, key, default) or default


def number(hf: Mapping[str, Any], key: str, default: float | None) -> float:
    """Any finite number, which must be there if there is no default."""
    value = hf.get(key, default)
    if not isinstance(value, int | float) or isinstance(value, bool) or not -HUGE < value < HUGE:
        raise ConfigError(f"{key} = {_short(value)} is no number", _REMEDY)
    return float(value)


def flag(hf: Mapping[str, Any], key: str, default: bool) -> bool:
    """Yes or no."""
    value = hf.get(key, default)
    if not isinstance(value, bool):
        raise ConfigError(f"{key} = {_short(value)} is neither true nor false", _REMEDY)
    return value


def choice(hf: Mapping[str, Any], key: str, default: str, known: Mapping[str, str]) -> str:
    """Hugging Face's word, as Regard's."""
    value = hf.get(key, default)
    if not isinstance(value, str) or value not in known:
        raise ConfigError(f"{key} = {_short(value)} is not known here", f"this version has {', '.join(known)}")
    return known[value]


def table(hf: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    """The first of these tables that is there and not empty, or an empty one."""
    for key in keys:
        value = hf.get(key)
        if value:
            if not isinstance(value, dict):
                raise ConfigError(f"{key} = {_short(value)} is no table", _REMEDY)
            return dict(value)
    return {}


def architecture(hf: Mapping[str, Any]) -> str | None:
    """The name of Hugging Face's class, if it is given."""
    value = hf.get("architectures")
    if value is None or value == []:
        return None
    if not isinstance(value, list) or not isinstance(value[0], str):
        raise ConfigError(f"architectures = {_short(value)} is no list of names", _REMEDY)
    return value[0]


def labels(hf: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of the classes, in order; two without names if nothing is said."""
    kind = hf.get("problem_type")
    names = hf.get("id2label")
    if names is None:
        names = {str(place): f"LABEL_{place}" for place in range(count(hf, "num_labels", 2))}
    numbered = isinstance(names, dict) and all(str(key).isdecimal() for key in names)
    if not numbered or not all(isinstance(name, str) for name in names.values()):
        raise ConfigError(f"id2label = {_short(names)} does not name classes by their numbers", _REMEDY)
    if kind not in (None, "single_label_classification") or len(names) < 2:
        said = f"problem_type = {kind!r} with {len(names)} classes"
        raise ConfigError(
            f"{said} is not known here", "this version reads classifiers that choose one class of several"
        )
    return tuple(names[key] for key in sorted(names, key=int))


def refuse_patterns(hf: Mapping[str, Any]) -> None:
    """Raise ConfigError for a key by which a decoder of transformers sees other tokens than all before it."""
    for key, plain in PATTERNS.items():
        value = hf.get(key, plain[0])
        full = isinstance(value, list) and all(kind == "full_attention" for kind in value)
        if value not in plain and not full:
            raise ConfigError(
                f"{key} = {_short(value)} changes what each token attends to and is not known here",
                f"use a model without {key}, which attends to all tokens before",
            )


def _short(value: Any) -> str:
    """A value as it was written, but for a long one's end."""
    text = "null" if value is None else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
