"""Adapters in peft's layout, both ways: adapter_config.json and adapter_model.safetensors.

    base_model.model.bert.encoder.layer.0.attention.self.query.lora_A.weight    rank × in
    base_model.model.bert.encoder.layer.0.attention.self.query.lora_B.weight    out × rank
    base_model.model.classifier.weight                                          a head that learnt as a whole

Modules have the names that Hugging Face gives those of the base; of a network that no family has, Regard's own. Where
several of Regard's maps are one matrix of Hugging Face's (GPT-2's c_attn), their adapters stand side by side in one of
as many times the rank, whose B is zero where one's inputs are not another's. Which base it is for stands in the
metadata as a digest of all its weights.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from regard.errors import FileError
from regard.files import read_json, write_json
from regard.interop.names import cut, slot_of
from regard.layers.linear import Linear
from regard.layers.low_rank import LowRank
from regard.models.adapter_table import AdapterTable
from regard.models.checkpoint import save_tensors
from regard.models.families import FAMILIES
from regard.models.families.family import Family, Names, TensorSlot
from regard.models.lora import maps
from regard.models.network import Head, Network, NetworkConfig

CONFIG, WEIGHTS, PICKLE = "adapter_config.json", "adapter_model.safetensors", "adapter_model.bin"
BASE = "base_sha256"
"""What the digest of the base's weights is called in the metadata."""
PREFIX = "base_model.model."
MATRICES = re.compile(r"(.*)\.lora_(A|B)\.weight")
KINDS: Mapping[Head, str] = {"labels": "SEQ_CLS", "spans": "QUESTION_ANS", "none": "FEATURE_EXTRACTION"}
PLAIN: Mapping[str, tuple[Any, ...]] = {
    "peft_type": ("LORA",),
    "bias": ("none",),
    "use_dora": (False, None),
    "lora_bias": (False, None),
    "use_qalora": (False, None),
    "layer_replication": (None,),
    "target_parameters": (None, []),
    "trainable_token_indices": (None, []),
    "megatron_config": (None,),
    "init_lora_weights": (True, False, None, "gaussian", "eva", "orthogonal"),
}
"""peft's options that say more than plain low-rank maps beside a base that stays, and the values that do not."""
REMEDY = "copy the adapter's folder again, or save it again"


@dataclass(frozen=True, eq=False)
class AdapterFile:
    """What an adapter's folder holds."""

    folder: Path
    values: dict[str, Any]
    """Of adapter_config.json."""
    tensors: dict[str, Tensor]
    """By peft's names without what all begin with."""
    base: str | None
    """The digest of its base's weights, where it says."""

    def scale(self, module: str, rank: int) -> float:
        """What the adapter of a module of that name is multiplied by; its rank must be what the config says."""
        said = _of_pattern(self.values.get("rank_pattern"), module, self.values.get("r"))
        alpha = _of_pattern(self.values.get("alpha_pattern"), module, self.values.get("lora_alpha"))
        if said != rank or not isinstance(alpha, int | float):
            raise FileError(
                f"{self.folder} has an adapter of rank {rank} at {module!r}, and its config says r = {said}", REMEDY
            )
        return float(alpha) / (rank**0.5 if self.values.get("use_rslora") else rank)


def is_adapter(folder: Path) -> bool:
    """Whether a folder holds an adapter and no model."""
    return (folder / CONFIG).is_file() and not (folder / "model.safetensors").exists()


def read_adapter(folder: Path) -> AdapterFile:
    """What an adapter's folder holds; what is more than low-rank maps is refused by its name."""
    values = read_json(folder / CONFIG, f"give the folder of an adapter, with {CONFIG} and {WEIGHTS}")
    for key, plain in PLAIN.items():
        if key in values and values[key] not in plain:
            raise FileError(
                f"{folder / CONFIG} says {key} = {values[key]!r}, which is not known here",
                f"this version reads adapters with {key} = {plain[0]!r}",
            )
    if not (folder / WEIGHTS).is_file():
        if (folder / PICKLE).exists():
            raise FileError(
                f"{folder / PICKLE} is a pickle, which can run any program when it is opened",
                "save it again where you trust it: peft's save_pretrained(FOLDER) writes safetensors",
            )
        raise FileError(f"{folder} has no {WEIGHTS}", "train it to its first evaluation, or copy it again")
    try:
        with safe_open(folder / WEIGHTS, framework="pt") as handle:
            found = {name: handle.get_tensor(name) for name in handle.keys()}  # noqa: SIM118
            base = (handle.metadata() or {}).get(BASE)
    except (SafetensorError, OSError) as error:
        raise FileError(f"{folder / WEIGHTS} is damaged: {error}", REMEDY) from error
    return AdapterFile(folder, values, {name.removeprefix(PREFIX): one for name, one in found.items()}, base)


class Places:
    """Which of Hugging Face's modules each of a network's parameters is."""

    def __init__(self, config: NetworkConfig) -> None:
        kind = getattr(config, "family", None)
        self.family: Family | None = FAMILIES.get(str(kind))
        self.names: Names = {} if self.family is None else self.family.names(config)  # type: ignore[arg-type]
        self.bare = config.outputs == "none"

    def slot(self, parameter: str) -> TensorSlot:
        """Where a parameter is, with the whole name of its tensor; Regard's own name where there is no other."""
        if self.family is None:
            return TensorSlot(parameter)
        found = slot_of(parameter, self.names)
        if found is None:
            raise FileError(f"a {self.family.name} model has no slot for {parameter!r}", "leave it out of the targets")
        return found

    def plain(self, name: str) -> str:
        """A name without what the names of the body begin with."""
        return name if self.family is None else name.removeprefix(self.family.body)

    def written(self, name: str) -> str:
        """A name as a file has it: of a body alone without what its names begin with elsewhere."""
        return self.plain(name) if self.bare else name


# Reading


def head_of(adapter: AdapterFile, config: NetworkConfig) -> NetworkConfig:
    """The base's config with the head that peft's adapter was trained for."""
    heads = {kind: head for head, kind in KINDS.items() if head != "none"}
    head = heads.get(str(adapter.values.get("task_type")))
    if head is None:
        return config
    with_two = config.with_head(head, ("0", "1") if head == "labels" else ())
    if head != "labels":
        return with_two if head != config.outputs else config
    places = Places(with_two)
    output = places.plain(places.slot("output.weight").name)
    saved = next((one for name, one in adapter.tensors.items() if places.plain(name) == output), None)
    if saved is None or (config.outputs == head and len(saved) == len(config.labels)):
        return config if config.outputs == head else with_two
    return config.with_head(head, tuple(f"LABEL_{place}" for place in range(len(saved))))


def install(adapter: AdapterFile, network: Network, lacking: Collection[str], like: Tensor) -> None:
    """Put an adapter's maps and heads into a network that stands beside its base; numbers are as in `like`."""
    places, left = Places(network.config), {}
    low: dict[str, dict[str, Tensor]] = {}
    for name, tensor in adapter.tensors.items():
        matrix = MATRICES.fullmatch(name)
        if matrix:
            low.setdefault(places.plain(matrix[1]), {})[matrix[2]] = tensor
        else:
            left[places.plain(name)] = tensor
    _install_maps(adapter, network, places, low, like)
    _install_heads(adapter, network, places, left, like)
    modules = dict(network.named_modules())
    for name in lacking:
        owner, _, last = name.rpartition(".")
        if dict.__getitem__(modules[owner].__dict__["_parameters"], last).is_meta:
            raise FileError(f"{adapter.folder} lacks the tensor {places.slot(name).name!r}", REMEDY)


def _install_maps(
    adapter: AdapterFile, network: Network, places: Places, low: dict[str, dict[str, Tensor]], like: Tensor
) -> None:
    used = set()
    for name, one in maps(network):
        slot = places.slot(f"{name}.weight") if _has_slot(places, name) else None
        module = "" if slot is None else places.plain(slot.name.removesuffix(".weight"))
        if slot is None or module not in low:
            continue
        used.add(module)
        found = low[module]
        for letter in "AB":
            if letter not in found:
                raise FileError(f"{adapter.folder} lacks the tensor {f'{module}.lora_{letter}.weight'!r}", REMEDY)
        down, up = found["A"], found["B"]
        wanted = (one.in_features, one.out_features * slot.of)
        if (down.shape[1], up.shape[0]) != wanted or down.shape[0] != up.shape[1]:
            raise FileError(
                f"{adapter.folder} has an adapter from {down.shape[1]} to {len(up)} numbers at {module!r}, "
                f"where this base has a map from {wanted[0]} to {wanted[1]}",
                "name the base it was trained on",
            )
        _attach(one, down, up.chunk(slot.of)[slot.part], adapter.scale(module, len(down)), like)
    strange = next((name for name in low if name not in used), None)
    if strange is not None or not low:
        what = "no low-rank maps" if strange is None else f"an adapter of {strange!r}, which this base does not have"
        raise FileError(f"{adapter.folder} has {what}", "name the base it was trained on")


def _attach(one: Linear, down: Tensor, up: Tensor, scale: float, like: Tensor) -> None:
    """The part of an adapter that adds anything to a map."""
    used = up.ne(0).any(dim=0)
    if bool(used.any()):
        down, up = down[used], up[:, used]
        low = LowRank(one.in_features, one.out_features, len(down), scale)
        low.down, low.up = (nn.Parameter(part.contiguous().to(like), requires_grad=False) for part in (down, up))
        one.adapter = low.eval()


def _has_slot(places: Places, name: str) -> bool:
    return places.family is None or slot_of(f"{name}.weight", places.names) is not None


def _install_heads(
    adapter: AdapterFile, network: Network, places: Places, left: dict[str, Tensor], like: Tensor
) -> None:
    """Modules that learnt as a whole get a table of parameters of their own."""
    tables: dict[str, dict[str, Tensor]] = {}
    for name, part in network.named_modules():
        for last in dict.keys(part.__dict__["_parameters"]):
            parameter = f"{name}.{last}"
            slot = slot_of(parameter, places.names) if places.family else TensorSlot(parameter)
            if slot is not None and places.plain(slot.name) in left:
                tables.setdefault(name, {})[last] = cut(left[places.plain(slot.name)], slot)
    taken = {places.plain(places.slot(f"{name}.{last}").name) for name, table in tables.items() for last in table}
    strange = next((name for name in left if name not in taken), None)
    if strange is not None:
        raise FileError(
            f"{adapter.folder} has a tensor {strange!r} this base does not know", "name the base it was trained on"
        )
    for name, table in tables.items():
        part = network.get_submodule(name)
        before = part.__dict__["_parameters"]
        for last, tensor in table.items():
            old = dict.__getitem__(before, last)
            if old is not None and old.shape != tensor.shape:
                shapes = f"{list(tensor.shape)}, where this base has {list(old.shape)}"
                raise FileError(f"{adapter.folder} has {f'{name}.{last}'!r} shaped {shapes}", REMEDY)
        kept = {key: value for key, value in dict.items(before) if key not in table}
        own = {key: nn.Parameter(value.to(like), requires_grad=False) for key, value in table.items()}
        part.__dict__["_parameters"] = {key: own.get(key, kept.get(key)) for key in dict.keys(before)}
        for layout in ("packed", "int8"):
            part.__dict__.pop(layout, None)


# Writing


def write_config(folder: Path, base: str, table: AdapterTable, network: Network, learnt: Collection[str]) -> None:
    """adapter_config.json of a network with adapters; `learnt` are the names of its parameters that learn."""
    places = Places(network.config)
    targets: dict[str, TensorSlot] = {}
    fused: dict[str, int] = {}
    for name, one in maps(network):
        if one.adapter is not None:
            slot = places.slot(f"{name}.weight")
            module = slot.name.removesuffix(".weight")
            targets[module] = slot
            fused[module] = fused.get(module, 0) + (slot.of > 1)
    whole = {places.plain(places.slot(name).name).split(".")[0] for name in learnt if ".adapter." not in name}
    alpha: float = int(table.alpha) if table.alpha.is_integer() else table.alpha
    kind = KINDS.get(network.config.outputs)
    if network.config.decodes and network.config.outputs == "tokens":
        kind = "SEQ_2_SEQ_LM" if network.config.reads_source else "CAUSAL_LM"
    values = {
        "peft_type": "LORA",
        "task_type": kind,
        "base_model_name_or_path": base,
        "inference_mode": True,
        "r": table.rank,
        "lora_alpha": alpha,
        "lora_dropout": table.dropout,
        "target_modules": _short(places, network, targets),
        "modules_to_save": sorted(whole) or None,
        "bias": "none",
        "fan_in_fan_out": any(slot.transposed for slot in targets.values()),
        "rank_pattern": {places.plain(name): count * table.rank for name, count in fused.items() if count},
        "alpha_pattern": {places.plain(name): count * alpha for name, count in fused.items() if count},
    }
    write_json(folder / CONFIG, values)


def write_tensors(path: Path, tensors: Mapping[str, Tensor], network: Network, base: str) -> None:
    """adapter_model.safetensors of what learnt, under Regard's names; `base` is the digest of the base."""
    places = Places(network.config)
    found: dict[str, Tensor] = {}
    fused: dict[str, dict[int, tuple[Tensor, Tensor]]] = {}
    for name, tensor in tensors.items():
        owner, beside, last = name.partition(".adapter.")
        if not beside:
            found[places.written(places.slot(name).name)] = tensor
        elif last == "up":
            slot = places.slot(f"{owner}.weight")
            module = places.written(slot.name.removesuffix(".weight"))
            fused.setdefault(module, {})[slot.part] = (tensors[f"{owner}.adapter.down"], tensor)
            if slot.of == 1:
                (found[f"{module}.lora_A.weight"], found[f"{module}.lora_B.weight"]) = fused.pop(module)[0]
            else:
                pair = _side_by_side(fused[module], slot.of)
                found[f"{module}.lora_A.weight"], found[f"{module}.lora_B.weight"] = pair
    save_tensors(path, {f"{PREFIX}{name}": one for name, one in found.items()}, {"format": "pt", BASE: base})


def _side_by_side(parts: Mapping[int, tuple[Tensor, Tensor]], of: int) -> tuple[Tensor, Tensor]:
    """Adapters of the parts of one matrix as one adapter: all A's below each other, every B at its own rows."""
    downs = [down for _, (down, _) in sorted(parts.items())]
    rows, rank = next(iter(parts.values()))[1].shape
    up = downs[0].new_zeros(of * rows, len(parts) * rank)
    for place, (part, (_, own)) in enumerate(sorted(parts.items())):
        up[part * rows : (part + 1) * rows, place * rank : (place + 1) * rank] = own
    return torch.cat(downs), up


def _short(places: Places, network: Network, targets: Collection[str]) -> list[str]:
    """The last words of the modules' names where these name them and no other, else whole names."""
    every = [places.slot(f"{name}.weight").name for name, _ in maps(network) if _has_slot(places, name)]
    last = {name.rpartition(".")[2] for name in targets}
    meant = {name for one in every if (name := one.removesuffix(".weight")).rpartition(".")[2] in last}
    return sorted(last) if meant == set(targets) else sorted(places.written(name) for name in targets)


def _of_pattern(patterns: Any, module: str, usual: Any) -> Any:
    """What peft's table for the ends of names says of a module; its regular expressions are not run."""
    for ending, value in (patterns or {}).items():
        if f".{module}".endswith(f".{ending}"):
            return value
    return usual
