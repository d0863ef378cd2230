"""LoRA (Hu et al. 2021): a trained network stays as it is, and small maps beside some of its own learn the new task.

attach       put them beside the maps that a pattern names; only they and what is new learn
beside       the same network once more around the same weights, so that several adapters share one base
merge        add them to the weights, which then are those of a plain network (§4.1)
identity     a digest of a base's weights: an adapter belongs to one base and to no other
"""

import hashlib
from collections.abc import Collection, Iterator

import torch
from torch import Tensor, nn

from regard.errors import ConfigError
from regard.layers.linear import Linear
from regard.layers.low_rank import LowRank
from regard.models.adapter_table import AdapterTable
from regard.models.network import Network, NetworkConfig
from regard.models.patterns import ends, unknown

BLOCK = 2**24
"""Bytes that are digested at a time."""


def maps(network: nn.Module) -> Iterator[tuple[str, Linear]]:
    """Every map that an adapter may stand beside, by name."""
    return ((name, one) for name, one in network.named_modules() if isinstance(one, Linear))


def adapted(network: nn.Module) -> list[tuple[str, Linear, LowRank]]:
    """Those that one stands beside."""
    return [(name, one, one.adapter) for name, one in maps(network) if one.adapter is not None]


def attach(network: Network, table: AdapterTable, new: Collection[str] = ()) -> None:
    """Put adapters beside the maps that the table names; of the rest, only the parameters in `new` go on learning."""
    known = {name: one for name, one in maps(network) if f"{name}.weight" not in new}
    for pattern in table.targets:
        if not any(ends(name, pattern) for name in known):
            named = {name.rpartition(".")[2] for name in known}
            raise unknown("[model.adapter] targets", pattern, "no map of this network", named)
    for name, parameter in network.named_parameters():
        parameter.requires_grad_(name in new)
    for name, one in known.items():
        if any(ends(name, pattern) for pattern in table.targets):
            smaller = min(one.in_features, one.out_features)
            if table.rank > smaller:
                raise ConfigError(
                    f"[model.adapter] rank = {table.rank} is more than {name} has, a map from {one.in_features} "
                    f"to {one.out_features}",
                    f"use a rank of {smaller} or less",
                )
            scale = table.alpha / table.rank
            one.adapter = LowRank(one.in_features, one.out_features, table.rank, scale, table.dropout).to(one.weight)


def beside(network: Network, config: NetworkConfig) -> tuple[Network, set[str]]:
    """A network of this config around the weights of another, where both have them; and which are lacking.

    The tables of parameters are one and the same, so that a packed layout is shared too. Heads of other answers share
    nothing: of these, the parameters are on the device `meta` until they are given.
    """
    anew = heads_differ(config, network.config)
    with torch.device("meta"):
        twin = config.build()
    known, lacking = dict(network.named_modules()), set()
    for name, part in twin.named_modules():
        other = known.get(name)
        if type(other) is not type(part) or (anew and name.split(".")[0] in ("output", "ngrams")):
            table = part.__dict__["_parameters"]
            lacking |= {f"{name}.{key}" for key, value in table.items() if value is not None}
            continue
        kept = [name for name in ("packed", "int8") if name in other.__dict__]
        for table in ("_parameters", "_buffers", *kept):
            part.__dict__[table] = other.__dict__[table]
    return twin.eval(), lacking


def new_beside(network: Network, base: Network) -> set[str]:
    """The parameters that a network does not take from a base: heads of other answers, and what the base has not."""
    known = {name: one.shape for name, one in base.named_parameters()}
    anew = heads_differ(network.config, base.config)
    named = network.named_parameters()
    return {name for name, one in named if known.get(name) != one.shape or (anew and name.startswith("output."))}


def heads_differ(config: NetworkConfig, other: NetworkConfig) -> bool:
    """Whether one gives other answers than the other."""
    return config.outputs != other.outputs or config.labels != other.labels


def merged_state(network: nn.Module) -> dict[str, Tensor]:
    """The state of the plain network that computes the same: every adapter added to its weight."""
    tensors = network.state_dict()
    for name, one, adapter in adapted(network):
        for part in adapter.state_dict():
            del tensors[f"{name}.adapter.{part}"]
        tensors[f"{name}.weight"] = _sum(one, adapter)
    return tensors


@torch.no_grad()
def merge(network: Network) -> Network:
    """The same network, made plain in its place."""
    for _, one, adapter in adapted(network):
        one.weight = nn.Parameter(_sum(one, adapter), requires_grad=one.weight.requires_grad)
        one.adapter = None
    return network


def _sum(one: Linear, adapter: LowRank) -> Tensor:
    """In float32 at least, rounded once."""
    with torch.no_grad():
        wide = torch.promote_types(one.weight.dtype, torch.float32)
        change = adapter.up.to(wide) @ adapter.down.to(wide) * adapter.scale
        return (one.weight.to(wide) + change).to(one.weight.dtype)


def identity(network: Network) -> str:
    """A digest of all weights of a plain network: names, types, shapes and bytes."""
    digest = hashlib.sha256()
    for name, tensor in sorted(network.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        whole = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        for first in range(0, len(whole), BLOCK):
            digest.update(whole[first : first + BLOCK].numpy())
    return digest.hexdigest()


def learnt(network: nn.Module) -> list[str]:
    """The names of the parameters that learn."""
    return [name for name, one in network.named_parameters() if one.requires_grad]
