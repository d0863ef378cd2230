"""What sentence-transformers writes beside an encoder, both ways: how the vectors of a text become one.

modules.json             what follows the encoder: Pooling, then Normalize or not; anything else is refused
1_Pooling/config.json    which of the vectors it is: pooling_mode_mean_tokens and its like
"""

import os.path
from pathlib import Path
from typing import Any

from regard.errors import FileError
from regard.files import read_json, read_list, write_json
from regard.tasks.recipe import TaskTable

POOLING, MODULES = "1_Pooling/config.json", "modules.json"
KINDS = ("Transformer", "Pooling", "Normalize")
THEIRS = {"mean": "mean_tokens", "first": "cls_token", "max": "max_tokens"}
"""Our word for what stands for a text → theirs, after `pooling_mode_`."""
_REMEDY = f"this version reads {', '.join(THEIRS.values())}, one of them"


def read_pooling(folder: Path) -> dict[str, Any]:
    """Of the [task] table: the mean, brought to length 1, where nothing is said."""
    kinds = _kinds(folder / MODULES) if (folder / MODULES).is_file() else list(KINDS)
    path = folder / POOLING
    said = read_json(path, "copy it again") if path.is_file() else {}
    modes = [key.removeprefix("pooling_mode_") for key, on in said.items() if key.startswith("pooling_mode_") and on]
    if isinstance(said.get("pooling_mode"), str):  # as newer versions write it
        modes = [
            next((name for name in THEIRS.values() if name.startswith(said["pooling_mode"])), said["pooling_mode"])
        ]
    ours = {theirs: name for name, theirs in THEIRS.items()}
    if len(modes) > 1 or not all(mode in ours for mode in modes):
        raise FileError(f"{path} makes one vector of a text by {' and '.join(modes)}, which is not known here", _REMEDY)
    return {"pooling": ours[modes[0]] if modes else "mean", "normalised": "Normalize" in kinds}


def write_pooling(folder: Path, width: int, task: TaskTable) -> None:
    """The same files."""
    modes = {f"pooling_mode_{theirs}": task.pooling == ours for ours, theirs in THEIRS.items()}
    write_json(folder / POOLING, {"word_embedding_dimension": width, **modes})
    paths = {"": "Transformer", os.path.dirname(POOLING): "Pooling"} | (
        {"2_Normalize": "Normalize"} if task.normalised else {}
    )
    modules = [
        {"idx": place, "name": str(place), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for place, (path, kind) in enumerate(paths.items())
    ]
    write_json(folder / MODULES, modules)


def _kinds(path: Path) -> list[str]:
    """What the text goes through, by the last part of each name."""
    modules = read_list(path, "copy it again")
    kinds = [str(one.get("type")).rpartition(".")[2] if isinstance(one, dict) else str(one) for one in modules]
    unknown = next((kind for kind in kinds if kind not in KINDS), None)
    if unknown is not None or kinds != [kind for kind in KINDS if kind in kinds]:
        problem = f"{path} lets a text go through {' and '.join(kinds)}"
        raise FileError(problem, f"this version reads {', '.join(KINDS)}, in this order")
    return kinds
