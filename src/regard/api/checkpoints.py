"""Training that begins with a checkpoint: the network, the weights and the tokenizer of a folder, Regard's or others'.

What the task needs and the folder's network does not end with is drawn anew: BERT gets a head for its labels. What was
kept, what is new and what was left out is said. With an adapter the folder's weights stay as they are, and the run
keeps what learns beside them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.api.loading import read_model
from regard.errors import ConfigError
from regard.interop import peft
from regard.models.adapter_table import AdapterTable
from regard.models.lora import adapted, attach, identity, learnt, merge, new_beside
from regard.models.network import Checkpoint, Network, NetworkConfig
from regard.tasks.task import Task
from regard.text.tokenizer import Tokenizer
from regard.training.filing import Filing


@dataclass(frozen=True)
class Begun:
    """A network with a folder's weights, its tokenizer, and sentences on what became of them."""

    module: Network
    tokenizer: Tokenizer
    said: list[str]
    base: str | None
    """A digest of the folder's weights, where they stay as they are."""


class AdapterFiling(Filing):
    """Of a network with adapters what learns, as the file that peft reads."""

    name = peft.WEIGHTS

    def __init__(self, network: Network, base: str) -> None:
        self.network, self.base = network, base
        self.learnt = frozenset(learnt(network))

    def kept(self, module: nn.Module) -> dict[str, Tensor]:
        found: dict[str, Tensor] = module.state_dict()
        return {name: one for name, one in found.items() if name in self.learnt}

    def restore(self, module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
        module.load_state_dict(tensors, strict=False)

    def write(self, path: Path, tensors: dict[str, Tensor]) -> None:
        peft.write_tensors(path, tensors, self.network, self.base)


def begin_from(shape: Checkpoint, task: Task[Any], labels: tuple[str, ...]) -> Begun:
    """The folder's network with the head that the task needs."""
    found = read_model(Path(shape.folder))
    base, tokenizer = merge(found.module), task.adopt(found.tokenizer, shape.folder)
    config = _config(base.config, shape, task, labels)
    digest = None if shape.adapter is None else identity(base)
    fresh = config.build()
    old, new = base.float().state_dict(), fresh.state_dict()
    anew = new_beside(fresh, base)
    kept = {name: tensor for name, tensor in old.items() if name in new and name not in anew}
    fresh.load_state_dict({**new, **kept})
    said = [_told(shape.folder, kept, [*new], [*old])]
    if shape.adapter is not None:
        attach(fresh, shape.adapter, anew)
        said.append(_beside(fresh, shape.adapter))
    return Begun(fresh, tokenizer, said, digest)


def _config(config: NetworkConfig, shape: Checkpoint, task: Task[Any], labels: tuple[str, ...]) -> NetworkConfig:
    """The folder's config with another head, if need be, and the dropout that was asked for."""
    outputs = config.outputs if config.outputs in task.needs.outputs else task.needs.outputs[0]
    try:
        changed = config.with_head(outputs, labels)
        task.check_shape(changed)
    except ConfigError as error:
        problem = f"[model] from: task {task.name!r} cannot begin in {shape.folder}: {error.problem}"
        raise ConfigError(problem.replace(": [model] ", ": "), "begin with another model") from error
    if shape.dropout is None:
        return changed
    if "dropout" not in type(changed).model_fields:
        raise ConfigError(f"[model] dropout has no effect on {changed.words}", "leave it out")
    return type(changed).model_validate(changed.model_dump() | {"dropout": shape.dropout})


def _told(folder: str, kept: dict[str, torch.Tensor], new: list[str], old: list[str]) -> str:
    """What was kept, what is new and what was left out, in a sentence."""
    count = sum(tensor.numel() for tensor in kept.values())
    sentence = f"{count:,} parameters begin as in {folder}"
    for what, names in (
        ("new", [name for name in new if name not in kept]),
        ("left out", [name for name in old if name not in kept]),
    ):
        if names:
            more = ", …" if len(names) > 4 else ""
            sentence += f"; {what}: {', '.join(names[:4])}{more}"
    return sentence


def _beside(network: Network, table: AdapterTable) -> str:
    """How many adapters there are, and where."""
    found = adapted(network)
    endings = dict.fromkeys(name.rpartition(".")[2] for name, _, _ in found)
    return f"{len(found)} adapters of rank {table.rank} beside {', '.join(endings)}; all else stays as it is"
