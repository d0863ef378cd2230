"""Which ids of somebody else's tokenizer begin, end, fill, hide and part texts, read from the files beside it.

config.json              pad_token_id, bos_token_id, eos_token_id …: what the model was trained with, so it wins
tokenizer_config.json    pad_token, bos_token …: names, or objects that have a name
special_tokens_map.json  the same; older folders have it
the tokenizer itself     where no file names anything: names that everybody uses

A model may have several ids that end a text; of these the tokenizer's own is taken, else the first.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from regard.errors import FileError
from regard.files import read_json

CUSTOMARY: dict[str, tuple[str, ...]] = {
    "pad": ("<pad>", "[PAD]"),
    "bos": ("<s>", "<bos>", "<|begin_of_text|>", "<|endoftext|>"),
    "eos": ("</s>", "<eos>", "<|end_of_text|>", "<|endoftext|>"),
    "unk": ("<unk>", "[UNK]"),
    "mask": ("<mask>", "[MASK]"),
    "cls": ("[CLS]",),
    "sep": ("[SEP]",),
}
_REMEDY = "copy it again, or take it away: what it says can be read from the other files"


@dataclass(frozen=True)
class SpecialTokens:
    """The ids of the tokens that are no text; None where there is none."""

    pad: int | None = None
    bos: int | None = None
    eos: int | None = None
    unk: int | None = None
    mask: int | None = None
    cls: int | None = None
    sep: int | None = None

    def known(self) -> dict[str, int]:
        """Those that there are."""
        return {role: token for role, token in asdict(self).items() if token is not None}


ROLES = tuple(field.name for field in fields(SpecialTokens))


@dataclass(frozen=True)
class Settings:
    """What the files beside a tokenizer say."""

    names: Mapping[str, str]
    """The name of each role's token."""
    more: tuple[str, ...] = ()
    """Special tokens without a role."""
    ids: Mapping[str, Any] | None = None
    """config.json."""

    def special_tokens(self, vocabulary: Mapping[str, int]) -> SpecialTokens:
        """The ids: the model's own where it has some, else those of the names."""
        found = {role: vocabulary.get(name) for role, name in self.names.items()}
        if not self.names:
            customary = {role: [name for name in names if name in vocabulary] for role, names in CUSTOMARY.items()}
            found = {role: vocabulary[names[0]] for role, names in customary.items() if names}
        highest = max(vocabulary.values(), default=-1)
        for role in ROLES:
            said = (self.ids or {}).get(f"{role}_token_id")
            several = [one for one in (said if isinstance(said, list) else [said]) if _is_id(one, highest)]
            if several and found.get(role) not in several:
                found[role] = several[0]
        return SpecialTokens(**found)


def _is_id(value: Any, highest: int) -> bool:
    """Whether it is one: configs have null and -1 for none."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= highest


def read_settings(folder: Path) -> Settings:
    """What the files in a folder say; any of them may be missing."""
    own, older, config = (
        read_json(folder / name, _REMEDY) if (folder / name).is_file() else {}
        for name in ("tokenizer_config.json", "special_tokens_map.json", "config.json")
    )
    said = {**older, **{key: value for key, value in own.items() if value is not None}}
    names = {role: name for role in ROLES if (name := _name(said.get(f"{role}_token"))) is not None}
    listed = [said.get("additional_special_tokens"), said.get("extra_special_tokens")]
    more = [_name(token) for tokens in listed for token in (tokens if isinstance(tokens, list) else [])]
    return Settings(names, tuple(name for name in more if name is not None), config)


def _name(token: Any) -> str | None:
    """A token as files write it: its text, or an object that holds it."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None


def special_tokens_in(text: str) -> SpecialTokens | None:
    """The special tokens that Regard's tokenizer.json carries, if it does."""
    try:
        written = json.loads(text)["model"].get("special_tokens")
        return None if written is None else SpecialTokens(**written)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FileError(
            f"the special tokens in tokenizer.json cannot be read ({error})", "write the folder again"
        ) from error
