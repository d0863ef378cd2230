"""The states a run can be resumed from: `state/step-N/`, each complete or absent.

A state holds the weights, the optimizer's memory, the random number generators, the place in the data and what was
best so far: everything the next step depends on, so that a resumed run equals an undisturbed one bit for bit.
`progress.json` holds a checksum of every file, so that a byte that changed on the disk is noticed.
"""

import json
import os
import shutil
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.data.stream import Position
from regard.errors import FileError
from regard.files import PARTIAL, read_json, write_json, writing
from regard.models.checkpoint import WEIGHTS, check_names, load_tensors, save_tensors
from regard.training.filing import WHOLE, Filing

START = Position()
PROGRESS, OPTIMIZER, RANDOM = "progress.json", "optimizer.safetensors", "random.safetensors"
REMEDY = "use the state before it"


@dataclass(frozen=True)
class Progress:
    """Where a run stands."""

    step: int = 0
    position: Position = START
    best: float | None = None
    """The best value of the metric so far."""
    worse: int = 0
    """Evaluations in a row that did not improve it."""
    metric: str = "loss"
    """What it is the best of."""


def save_state(
    folder: Path, progress: Progress, module: nn.Module, optimizer: torch.optim.Optimizer, filing: Filing = WHOLE
) -> None:
    """Write `state/step-N/` whole."""
    with writing(_path(folder, progress.step)) as partial:
        partial.mkdir()
        save_tensors(partial / WEIGHTS, filing.kept(module))
        save_tensors(partial / OPTIMIZER, _memory(optimizer))
        save_tensors(partial / RANDOM, random_state())
        checksums = {name: checksum(partial / name) for name in (WEIGHTS, OPTIMIZER, RANDOM)}
        write_json(partial / PROGRESS, _sealed(asdict(progress) | {"checksums": checksums}))


def drop_old_states(folder: Path, step: int, keep: int, regular: Callable[[int], bool]) -> None:
    """Of the states up to a step, keep the newest `keep` regular ones, and that step's own whatever it is.

    A later one is damaged and does not count. One that a signal caused is of no use once there is a later one.
    """
    past = [one for one in available(folder) if one[0] <= step]
    kept = {number for number, _ in [one for one in past if regular(one[0])][:keep]} | {step}
    for number, path in past:
        if number not in kept:
            gone = path.with_name(f"{PARTIAL}{os.getpid()}-{path.name}")
            os.replace(path, gone)  # so that a crash half-way leaves nothing that looks like a state
            shutil.rmtree(gone)


def load_state(path: Path, module: nn.Module, optimizer: torch.optim.Optimizer, filing: Filing = WHOLE) -> Progress:
    """Put a state back where it was taken from; of a damaged one, nothing."""
    progress = read_progress(path)
    tensors = load_tensors(path / WEIGHTS)
    memory = load_tensors(path / OPTIMIZER)
    random = load_tensors(path / RANDOM)
    check_names(filing.kept(module), tensors, path / WEIGHTS)
    state: dict[int, dict[str, Tensor]] = {}
    try:
        generator = random["cpu"]
        for name, tensor in memory.items():
            index, part = name.split(".")
            state.setdefault(int(index), {})[part] = tensor
    except (KeyError, ValueError) as error:
        raise FileError(f"{path} is not complete: {error}", REMEDY) from error
    filing.restore(module, tensors)
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
    set_random_state(random | {"cpu": generator})
    return progress


def load_weights(path: Path) -> dict[str, Tensor]:
    """The weights of a state, if all of it is as it was written."""
    read_progress(path)
    return load_tensors(path / WEIGHTS)


def read_progress(path: Path) -> Progress:
    """Where the run stood at a state, once every file in it is found to be as it was written."""
    values = read_json(path / PROGRESS, REMEDY)
    if values != _sealed({key: value for key, value in values.items() if key != "seal"}):
        raise FileError(f"{path / PROGRESS} is not as it was written", REMEDY)
    try:
        said = {key: values[key] for key in ("step", "best", "worse", "metric")}
        progress = Progress(position=Position(**values["position"]), **said)
        if f"step-{progress.step}" != path.name:
            raise ValueError(f"it says step {progress.step}")
        for name in (WEIGHTS, OPTIMIZER, RANDOM):
            if checksum(path / name) != values["checksums"][name]:
                raise FileError(f"{path / name} is not as it was written", REMEDY)
    except (KeyError, TypeError, ValueError) as error:
        raise FileError(f"{path} is not complete: {error}", REMEDY) from error
    except FileError:
        raise
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror}", REMEDY) from error
    return progress


def latest(folder: Path) -> Progress:
    """Where the run in a folder stands: the newest state that is whole."""
    for _, path in available(folder):
        try:
            return read_progress(path)
        except FileError:
            continue
    return Progress()


def available(folder: Path) -> list[tuple[int, Path]]:
    """The states of a run, newest first."""
    found = [(path.name.removeprefix("step-"), path) for path in (folder / "state").glob("step-*")]
    return sorted(((int(step), path) for step, path in found if step.isdecimal()), reverse=True)


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Keep other processes from training in the folder; the system ends it with the process, however that ends.

    The folder itself is locked, so nothing is left behind. Where there are no locks, nobody is kept out.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        import fcntl
    except ImportError:  # not on this system
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(handle)
        raise FileError(
            f"another process is training in {folder}", "wait for its end, or choose another `out`"
        ) from error
    except OSError:  # not on this file system
        pass
    try:
        yield
    finally:
        os.close(handle)


def clean(folder: Path) -> None:
    """Remove what a killed run left half-written; nothing reads it, but it takes room."""
    for partial in [*folder.glob(f"{PARTIAL}*"), *(folder / "state").glob(f"{PARTIAL}*")]:
        shutil.rmtree(partial) if partial.is_dir() else partial.unlink(missing_ok=True)


def checksum(path: Path) -> str:
    """CRC-32 of a file: it finds what a disk does by accident, at 2.3 GB a second here."""
    value = 0
    with path.open("rb", buffering=0) as file:
        while piece := file.read(1 << 20):
            value = zlib.crc32(piece, value)
    return f"{value:08x}"


def _sealed(values: dict[str, Any]) -> dict[str, Any]:
    """The values with a checksum of themselves."""
    return values | {"seal": f"{zlib.crc32(json.dumps(values, sort_keys=True).encode()):08x}"}


def _path(folder: Path, step: int) -> Path:
    return folder / "state" / f"step-{step}"


def _memory(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    state = optimizer.state_dict()["state"]
    return {f"{index}.{part}": tensor for index, parts in state.items() for part, tensor in parts.items()}


def random_state() -> dict[str, Tensor]:
    """Where the generators of random numbers stand, of the CPU and of a GPU where there is one."""
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def set_random_state(states: dict[str, Tensor]) -> None:
    """Put the generators back where they stood."""
    torch.set_rng_state(states["cpu"])
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])
