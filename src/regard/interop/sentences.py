"""What sentence-transformers writes beside an encoder, both ways: how the vectors of a text become one.

modules.json                       what follows the encoder: Pooling, then Normalize or not; anything else is refused
1_Pooling/config.json              which of the vectors it is: pooling_mode_mean_tokens and its like
sentence_bert_config.json          max_seq_length, the tokens that are read of a text, and do_lower_case
config_sentence_transformers.json  the prompt that is put before every text, where there is a default one
"""

import os.path
from pathlib import Path
from typing import Any

from regard.errors import FileError
from regard.files import read_json, read_list, write_json
from regard.tasks.sentence_embedding import SentenceEmbeddingTable

POOLING, MODULES = "1_Pooling/config.json", "modules.json"
LIMITS, PROMPTS = "sentence_bert_config.json", "config_sentence_transformers.json"
KINDS = ("Transformer", "Pooling", "Normalize")
HF_NAMES = {"mean": "mean_tokens", "first": "cls_token", "max": "max_tokens"}
"""Regard's word for what stands for a text → sentence-transformers', after `pooling_mode_`."""
_REMEDY = f"this version reads {', '.join(HF_NAMES.values())}, one of them"


def read_sentences(folder: Path, max_positions: int) -> dict[str, Any]:
    """Of the [task] table: what is read of a text, and what stands for it."""
    said = read_json(folder / LIMITS, "copy it again") if (folder / LIMITS).is_file() else {}
    longest, small = said.get("max_seq_length"), said.get("do_lower_case") or False
    if not isinstance(small, bool) or not (longest is None or (type(longest) is int and longest > 0)):
        shown = f"max_seq_length = {str(longest)[:40]} and do_lower_case = {str(small)[:40]}"
        raise FileError(f"{folder / LIMITS} has {shown}", "give a number above 0, and true or false")
    limit = None if longest is None else min(longest, max_positions)
    return read_pooling(folder) | {"max_seq_length": limit, "do_lower_case": small, "prefix": _prompt(folder)}


def _prompt(folder: Path) -> str:
    """What is put before every text, where config_sentence_transformers.json has a default."""
    said = read_json(folder / PROMPTS, "copy it again") if (folder / PROMPTS).is_file() else {}
    name, prompts = said.get("default_prompt_name"), said.get("prompts")
    prompt = prompts.get(name) if isinstance(prompts, dict) and isinstance(name, str) else None
    if name is not None and not isinstance(prompt, str):
        raise FileError(f"{folder / PROMPTS} has no prompt {str(name)[:40]!r}", "name one of its prompts, or none")
    return prompt or ""


def read_pooling(folder: Path) -> dict[str, Any]:
    """Of the [task] table: the mean, brought to length 1, where nothing is said."""
    modules = _modules(folder / MODULES)
    path = folder / POOLING if modules is None else folder / modules["Pooling"] / "config.json"
    if modules is None and not path.is_file():
        return {"pooling": "mean", "normalize": True}
    said = read_json(path, "copy it again")
    if said.get("include_prompt") is False and _prompt(folder):
        raise FileError(f"{path} leaves the prompt out of the vector, which is not known here", "use another model")
    modes = [key.removeprefix("pooling_mode_") for key, on in said.items() if key.startswith("pooling_mode_") and on]
    if "pooling_mode" in said:  # as newer versions write it
        mode = str(said["pooling_mode"])
        modes = [next((name for name in HF_NAMES.values() if mode and name.startswith(mode)), mode)]
    known = {hf: name for name, hf in HF_NAMES.items()}
    if len(modes) != 1 or modes[0] not in known:
        said_so = " and ".join(modes) or "nothing"
        raise FileError(f"{path} makes one vector of a text by {said_so[:80]}, which is not known here", _REMEDY)
    return {"pooling": known[modes[0]], "normalize": modules is None or "Normalize" in modules}


def write_sentences(folder: Path, width: int, task: SentenceEmbeddingTable) -> None:
    """The same files."""
    if task.max_seq_length is not None or task.do_lower_case:
        limits = {"max_seq_length": task.max_seq_length, "do_lower_case": task.do_lower_case}
        write_json(folder / LIMITS, limits)
    if task.prefix:
        write_json(folder / PROMPTS, {"prompts": {"default": task.prefix}, "default_prompt_name": "default"})
    modes = {f"pooling_mode_{hf}": task.pooling == name for name, hf in HF_NAMES.items()}
    write_json(folder / POOLING, {"word_embedding_dimension": width, **modes})
    paths = {"": "Transformer", os.path.dirname(POOLING): "Pooling"} | (
        {"2_Normalize": "Normalize"} if task.normalize else {}
    )
    modules = [
        {"idx": place, "name": str(place), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for place, (path, kind) in enumerate(paths.items())
    ]
    write_json(folder / MODULES, modules)


def _modules(path: Path) -> dict[str, str] | None:
    """What the text goes through, by the last part of each name, and the folder of each; None where no file says so."""
    if not path.is_file():
        return None
    modules = [one if isinstance(one, dict) else {"type": one} for one in read_list(path, "copy it again")]
    kinds = [str(one.get("type")).rpartition(".")[2] for one in modules]
    usual = {"Pooling": os.path.dirname(POOLING)}
    folders = {kind: str(one.get("path", usual.get(kind, ""))) for kind, one in zip(kinds, modules, strict=True)}
    known = [kind for kind in KINDS if kind in kinds]
    if kinds != known or not {"Transformer", "Pooling"} <= folders.keys():
        problem = f"{path} lets a text go through {' and '.join(kinds)[:80] or 'nothing'}"
        raise FileError(problem, f"this version reads {', '.join(KINDS)}, in this order; the last may be absent")
    inside = Path(folders["Pooling"]).name == folders["Pooling"] and folders["Pooling"] not in ("", "..")
    if folders["Transformer"] or not inside:
        where = folders["Transformer"] or folders["Pooling"]
        raise FileError(
            f"{path} has a module in {where[:80]!r}", "have the encoder beside it, the pooling in a folder there"
        )
    return folders
