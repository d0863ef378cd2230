"""The states a run can be resumed from: `state/step-N/`, each complete or absent.

A state holds the weights, the optimizer's memory, the random number generators, the place in the data and what was
best so far: everything the next step depends on, so that a resumed run equals an undisturbed one bit for bit.
"""

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from regard.data.stream import Position
from regard.errors import FileError
from regard.files import PARTIAL, read_json, write_json, writing
from regard.models.checkpoint import check_names, load_tensors, save_tensors

START = Position()


@dataclass(frozen=True)
class Progress:
    """Where a run stands."""

    step: int = 0
    position: Position = START
    best: float | None = None


def save_state(
    folder: Path, progress: Progress, module: nn.Module, optimizer: torch.optim.Optimizer, keep: int
) -> None:
    """Write `state/step-N/` whole, then drop all but the newest `keep` (a later one is damaged and does not count)."""
    with writing(_states(folder) / f"step-{progress.step}") as partial:
        partial.mkdir()
        save_tensors(partial / "model.safetensors", module.state_dict())
        save_tensors(partial / "optimizer.safetensors", _memory(optimizer))
        save_tensors(partial / "random.safetensors", _random())
        write_json(partial / "progress.json", asdict(progress))
    for _, old in [one for one in available(folder) if one[0] <= progress.step][keep:]:
        shutil.rmtree(old)


def load_state(path: Path, module: nn.Module, optimizer: torch.optim.Optimizer) -> Progress:
    """Put a state back where it was taken from; of a damaged one, nothing."""
    remedy = "use the state before it"
    tensors = load_tensors(path / "model.safetensors")
    memory = load_tensors(path / "optimizer.safetensors")
    random = load_tensors(path / "random.safetensors")
    values = read_json(path / "progress.json", remedy)
    check_names(module, tensors, path / "model.safetensors")
    state: dict[int, dict[str, Tensor]] = {}
    try:
        progress = Progress(values["step"], Position(**values["position"]), values["best"])
        if f"step-{progress.step}" != path.name:
            raise ValueError(f"it says step {progress.step}")
        generator = random["cpu"]
        for name, tensor in memory.items():
            index, part = name.split(".")
            state.setdefault(int(index), {})[part] = tensor
    except (KeyError, TypeError, ValueError) as error:
        raise FileError(f"{path} is not complete: {error}", remedy) from error
    module.load_state_dict(tensors)  # copied in place: the optimizer holds these very parameters
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
    torch.set_rng_state(generator)
    if "cuda" in random and torch.cuda.is_available():
        torch.cuda.set_rng_state(random["cuda"])
    return progress


def available(folder: Path) -> list[tuple[int, Path]]:
    """The complete states of a run, newest first."""
    found = [(path.name.removeprefix("step-"), path) for path in _states(folder).glob("step-*")]
    return sorted(((int(step), path) for step, path in found if step.isdecimal()), reverse=True)


def clean(folder: Path) -> None:
    """Remove what a killed run left half-written; nothing reads it, but it takes room."""
    for partial in [*folder.glob(f"{PARTIAL}*"), *_states(folder).glob(f"{PARTIAL}*")]:
        shutil.rmtree(partial) if partial.is_dir() else partial.unlink(missing_ok=True)


def rewind_metrics(path: Path, step: int) -> list[str]:
    """The lines of metrics.jsonl up to a step; later ones, and one cut off by a crash, are dropped."""
    kept = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []:
        try:
            if json.loads(line)["step"] > step:
                break
        except (ValueError, KeyError, TypeError):
            break
        kept.append(line)
    return kept


def damaged(path: Path, error: FileError) -> str:
    """What to tell about a state that cannot be used."""
    return f"{path} is damaged ({error.problem}); falling back to the state before it"


def _states(folder: Path) -> Path:
    return folder / "state"


def _memory(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    state = optimizer.state_dict()["state"]
    return {f"{index}.{part}": tensor for index, parts in state.items() for part, tensor in parts.items()}


def _random() -> dict[str, Tensor]:
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    return states
