"""What a published tokenizer's files say that nothing here reads, kept as it is for whoever it is written for again.

tokenizer_config.json  chat_template, padding_side, truncation_side, model_max_length
chat_template.jinja    the chat template, where it has a file of its own, which then wins
tokenizer.json         how texts are truncated and padded
"""

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Engine

from regard.errors import FileError
from regard.files import read_json, write_json, write_text

KEPT = "kept_settings"
"""The key of Regard's tokenizer.json that has them, in its model."""
CONFIG_KEYS = ("chat_template", "padding_side", "truncation_side", "model_max_length")
FILE_KEYS = ("truncation", "padding")
CHAT_TEMPLATE = "chat_template.jinja"
TOKENIZER_CONFIG = "tokenizer_config.json"


def read_kept_settings(folder: Path, engine: Engine) -> dict[str, Any]:
    """Those in a folder of Hugging Face's, and in the engine of its tokenizer.json."""
    path = folder / TOKENIZER_CONFIG
    said = read_json(path, "copy it again") if path.is_file() else {}
    found = {key: said[key] for key in CONFIG_KEYS if said.get(key) is not None}
    if (folder / CHAT_TEMPLATE).is_file():
        try:
            found["chat_template"] = (folder / CHAT_TEMPLATE).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise FileError(f"{folder / CHAT_TEMPLATE} cannot be read ({error})", "copy it again") from error
    if engine.truncation is not None or engine.padding is not None:
        record = json.loads(engine.to_str())
        found |= {key: record[key] for key in FILE_KEYS if record[key] is not None}
    return found


def kept_settings(text: str) -> dict[str, Any]:
    """Those that Regard's tokenizer.json carries."""
    found = json.loads(text)["model"].get(KEPT, {}) if f'"{KEPT}"' in text else {}  # files of megabytes are read once
    if not isinstance(found, dict):
        raise FileError(f"{KEPT} in tokenizer.json is no table", "write the folder again")
    return {key: value for key, value in found.items() if key in (*CONFIG_KEYS, *FILE_KEYS)}


def write_kept_settings(folder: Path, settings: dict[str, Any]) -> None:
    """The same in Hugging Face's files, which are there already; a chat template in a file of its own."""
    path, template = folder / TOKENIZER_CONFIG, settings.get("chat_template")
    said = {key: value for key, value in settings.items() if key in CONFIG_KEYS and value is not None}
    if isinstance(template, str):
        write_text(folder / CHAT_TEMPLATE, said.pop("chat_template"))
    write_json(path, read_json(path, "write the folder again") | said)
    limits = {key: value for key, value in settings.items() if key in FILE_KEYS}
    if limits:
        path = folder / "tokenizer.json"
        write_json(path, read_json(path, "write the folder again") | limits)
