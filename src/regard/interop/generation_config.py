"""How a published model writes, both ways: generation_config.json, or what older config.jsons say in its place.

    eos_token_id            one id that ends an answer, or several
    bad_words_ids           words of one token or several that are never written
    suppress_tokens         the same, even of an id that ends answers
    forced_bos_token_id     what an answer begins with; forced_eos_token_id: what stands at its limit of length
    renormalize_logits      a beam counts shares of what may be chosen
    repetition_penalty      and no_repeat_ngram_size whatever the strategy; of sampling temperature, top_k, top_p, min_p
    stop_strings            texts that end an answer; Regard cuts it before them, transformers behind
    decoder_start_token_id  what the decoder reads first

What would change the text and is not known here is refused by name, and never passed over in silence; but the
`max_length` of a model that goes on with a text, which counts that text too, is: say how many new tokens you want.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.errors import ConfigError, FileError
from regard.files import read_json
from regard.models.checkpoint import CONFIG
from regard.models.config import TransformerConfig
from regard.tasks.decoding_table import DecodingTable

GENERATION = "generation_config.json"

SILENT: dict[str, tuple[Any, ...]] = {
    "begin_suppress_tokens": ([],),
    "encoder_no_repeat_ngram_size": (0,),
    "encoder_repetition_penalty": (1,),
    "exponential_decay_length_penalty": (),
    "forced_decoder_ids": (),
    "guidance_scale": (1,),
    "min_length": (0,),
    "min_new_tokens": (0,),
    "num_beam_groups": (1,),
    "penalty_alpha": (0,),
    "sequence_bias": ({}, []),
    "token_healing": (False,),
    "watermarking_config": (),
}
"""Keys that change what is written, and the values besides null that change nothing."""
SILENT_OF_BEAMS = {"early_stopping": (False,), "diversity_penalty": (0,)}
SILENT_OF_SAMPLING = {
    "typical_p": (1,),
    "epsilon_cutoff": (0,),
    "eta_cutoff": (0,),
    "num_beams": (1,),
    "top_h": (),
}
NO_WORD = ("diversity_penalty", "beam_groups", "penalty_alpha", "prefix", "must_contain", "must_not_contain")
"""Keys of [decoding] that transformers obeys no key for, unless it may run code from elsewhere."""
DEFAULT_TOP_K = 50
"""How many of the likeliest are drawn from where a file does not say."""


def read_generation_config(folder: Path, config: TransformerConfig, end: int | None) -> DecodingTable:
    """How the model in Hugging Face's folder answers; `end` is what ends texts for its tokenizer, if anything."""
    path = _file(folder)
    said = read_json(path, "copy it again")
    try:
        read = DecodingTable.model_validate(
            _strategy(said) | _length(said, config) | _tokens(said, config, end) | _repeating(said)
        )
        read.filters(config.vocabulary)
    except ConfigError as error:
        raise FileError(f"{path} cannot be used: {error.problem}", error.remedy) from error
    return read


def read_start(folder: Path) -> int | None:
    """What the decoder of an encoder–decoder reads first, if a file says so."""
    for path in (_file(folder), folder / CONFIG):
        try:
            start = _one(read_json(path, "copy it again"), "decoder_start_token_id")
        except ConfigError as error:
            raise FileError(f"{path} cannot be used: {error.problem}", error.remedy) from error
        if start is not None:
            return start
    return None


def to_generation_config(table: DecodingTable, ids: Mapping[str, int | None]) -> dict[str, object]:
    """The [decoding] table in Hugging Face's words, with the ids of special tokens; what has none is refused."""
    lost = [key for key in NO_WORD if getattr(table, key) is not None]
    if lost or table.strategy == "contrastive":
        said = f"{lost[0]} = {getattr(table, lost[0])!r}" if lost else "strategy = 'contrastive'"
        raise ConfigError(
            f"[decoding] {said} cannot be written: transformers has no key for it that it obeys",
            f"take it out of the model's {GENERATION} first",
        )
    given: dict[str, object] = {**ids, "do_sample": table.strategy == "sample", "max_new_tokens": table.max_new_tokens}
    for key in ("temperature", "top_p", "min_p", "repetition_penalty", "no_repeat_ngram_size"):
        if getattr(table, key) is not None:
            given[key] = getattr(table, key)
    if table.stop is not None:
        given["stop_strings"] = list(table.stop)
    if table.strategy == "sample":
        given["top_k"] = table.top_k or 0
    if table.strategy == "beam":
        given["num_beams"] = table.beams or 5
        given["length_penalty"] = 1.0 if table.length_penalty is None else table.length_penalty
    ends = table.eos_ids or [ids.get("eos_token_id")]
    single = [[token] for token in table.suppressed or () if token not in ends]
    written = {
        "eos_token_id": None if table.eos_ids is None else list(table.eos_ids),
        "bad_words_ids": [*single, *map(list, table.banned or ())],
        "suppress_tokens": [token for token in table.suppressed or () if token in ends],
        "forced_bos_token_id": table.forced_bos,
        "forced_eos_token_id": table.forced_eos,
        "renormalize_logits": table.renormalize,
    }
    return given | {key: value for key, value in written.items() if value is not None and value not in ([], False)}


def _file(folder: Path) -> Path:
    """Where it is said: older folders have it all in config.json."""
    return folder / GENERATION if (folder / GENERATION).is_file() else folder / CONFIG


def _strategy(said: Mapping[str, Any]) -> dict[str, Any]:
    """How tokens are chosen; refuse what has no word here."""
    for key in ("do_sample", "renormalize_logits"):
        if said.get(key) not in (None, True, False):
            raise ConfigError(f"{key} = {str(said[key])[:60]} is neither true nor false", f"copy {GENERATION} again")
    sampling, beams = bool(said.get("do_sample")), said.get("num_beams")
    many = not sampling and beams not in (None, 1)
    for key, silent in {**SILENT, **(SILENT_OF_BEAMS if many else SILENT_OF_SAMPLING if sampling else {})}.items():
        value = said.get(key)
        if value is not None and value not in silent:
            raise ConfigError(f"{key} = {str(value)[:60]} is not known here", f"take {key} out to load it without")
    if sampling:
        kept = {key: said.get(key) for key in ("temperature", "top_k", "top_p")} | {"min_p": said.get("min_p") or None}
        kept["top_k"] = (DEFAULT_TOP_K if kept["top_k"] is None else kept["top_k"]) or None  # 0 is all of them
        return {"strategy": "sample", **kept}
    return {"strategy": "beam", "beams": beams, "length_penalty": said.get("length_penalty")} if many else {}


def _length(said: Mapping[str, Any], config: TransformerConfig) -> dict[str, Any]:
    """The most new tokens; `max_length` counts what is read too, which is one token in an encoder–decoder."""
    if said.get("max_new_tokens"):
        return {"max_new_tokens": said["max_new_tokens"]}
    longest = said.get("max_length")
    counted = config.reads_source and isinstance(longest, int) and longest > 1
    return {"max_new_tokens": longest - 1} if counted and longest is not None else {}


def _tokens(said: Mapping[str, Any], config: TransformerConfig, end: int | None) -> dict[str, Any]:
    """Which tokens end answers, are banned from them, and are demanded."""
    there = range(config.vocabulary)  # an id that no token has is never written, so it ends and bans nothing
    ends = [token for token in _several(said, "eos_token_id") if token in there]
    words = said.get("bad_words_ids") or []
    if not isinstance(words, list) or not all(isinstance(word, list) for word in words):
        raise ConfigError(f"bad_words_ids = {str(words)[:60]} is no list of lists", f"copy {GENERATION} again")
    if not all(words):
        raise ConfigError("bad_words_ids bans a word of no tokens", f"copy {GENERATION} again")
    single = _several({"bad_words_ids": [word[0] for word in words if len(word) == 1]}, "bad_words_ids")
    long = [_several({"bad_words_ids": word}, "bad_words_ids", once=False) for word in words if len(word) > 1]
    spared: list[int | None] = [*ends] or [end]
    banned = {token for token in single if token not in spared} | set(_several(said, "suppress_tokens"))
    first = _one(said, "forced_bos_token_id")
    if first is not None and not config.reads_source:
        raise ConfigError(f"forced_bos_token_id = {first} is an encoder–decoder's", "take it out")
    return {
        "eos_ids": None if ends in ([], [end]) else ends,
        "banned": [word for word in long if all(token in there for token in word)] or None,
        "suppressed": sorted(token for token in banned if token in there) or None,
        "forced_bos": first,
        "forced_eos": _one(said, "forced_eos_token_id"),
        "renormalize": said.get("renormalize_logits") is True,
    }


def _one(said: Mapping[str, Any], key: str) -> int | None:
    found = _several(said, key)
    if len(found) > 1:
        raise ConfigError(f"{key} = {str(found)[:60]} is several ids where one is known here", "give one")
    return found[0] if found else None


def _repeating(said: Mapping[str, Any]) -> dict[str, Any]:
    """What keeps a text from repeating itself, and where it stops."""
    stops = said.get("stop_strings") or None
    return {
        "repetition_penalty": None if said.get("repetition_penalty") == 1 else said.get("repetition_penalty"),
        "no_repeat_ngram_size": said.get("no_repeat_ngram_size") or None,
        "stop": [stops] if isinstance(stops, str) else stops,
    }


def _several(said: Mapping[str, Any], key: str, *, once: bool = True) -> list[int]:
    """One id or a list of them, each once, in order; null and a lone −1 are none."""
    value = said.get(key)
    ids = [] if value in (None, -1) else value if isinstance(value, list) else [value]
    if not all(isinstance(one, int) and not isinstance(one, bool) and one >= 0 for one in ids):
        raise ConfigError(f"{key} = {str(value)[:60]} is no id of a token", f"copy {GENERATION} again")
    return list(dict.fromkeys(ids)) if once else list(ids)
