"""Which of Hugging Face's tensors is which of Regard's, in both directions."""

import re
from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from regard.errors import FileError
from regard.interop.tensors import Tensors
from regard.models.families.family import Family, Names, TensorSlot

PLAIN = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
"""Numbers that are what they say, without a scale beside them."""
REMEDY = "the config and the weights must come from the same model"


def slot_of(name: str, names: Names) -> TensorSlot | None:
    """Where Regard's parameter is in Hugging Face's files; by its own name, or by its module's."""
    module, _, last = name.rpartition(".")
    number = re.search(r"\.layers\.(\d+)\.", name)
    for asked, ending in ((name, ""), (module, f".{last}")):
        found = names.get(re.sub(r"\.layers\.\d+\.", ".layers.*.", asked))
        if found is not None:
            slot = TensorSlot(found) if isinstance(found, str) else found
            whole = slot.name + ending
            whole = whole.replace("*", number.group(1)) if number else whole
            return TensorSlot(whole, slot.part, slot.of, slot.transposed, slot.skip_rows, slot.squeeze)
    return None


def cut(tensor: Tensor, slot: TensorSlot) -> Tensor:
    """Regard's tensor of Hugging Face's."""
    if slot.transposed and tensor.dim() == 2:
        tensor = tensor.T
    if slot.of > 1:
        tensor = tensor.chunk(slot.of)[slot.part]
    if slot.squeeze:
        tensor = tensor[0]
    return tensor[slot.skip_rows :].contiguous()


def join(parts: list[Tensor], slot: TensorSlot) -> Tensor:
    """Hugging Face's tensor of all its parts, in order."""
    tensor = torch.cat(parts) if len(parts) > 1 else parts[0]
    if slot.skip_rows:
        tensor = torch.cat((tensor.new_zeros(slot.skip_rows, *tensor.shape[1:]), tensor))
    if slot.squeeze:
        tensor = tensor[None]
    return tensor.T.contiguous() if slot.transposed and tensor.dim() == 2 else tensor.contiguous()


class WeightReader:
    """Hugging Face's tensors under Regard's names, one after the other; what is missing or left over is named."""

    def __init__(self, family: Family, names: Names, source: Tensors, where: str) -> None:
        self.family, self.names, self.source, self.where = family, names, source, where
        self.given = {_today(name): name for name in source.places}
        """The file's tensors by the name of today, with what the file calls them."""
        body = family.body
        self.needed: set[str] = set()
        """What the model has a slot for, by Hugging Face's names; what is needed stands in for nothing else."""
        self.bare = bool(body) and not any(name.startswith(body) for name in self.given)

    def tensors(self, shapes: dict[str, torch.Size]) -> Iterator[tuple[str, Tensor]]:
        """Every tensor of the model."""
        used = set()
        self.needed = {self._own(slot.name) for name in shapes if (slot := slot_of(name, self.names)) is not None}
        for name, shape in shapes.items():
            slot = slot_of(name, self.names)
            if slot is None:
                raise FileError(f"a {self.family.name} model has no slot for {name!r}", REMEDY)
            if slot.name in self.family.zero and slot.name not in self.given:
                yield name, torch.zeros(shape)
                continue
            given = self._present(self._own(slot.name))
            used.add(given)
            tensor = self.source.read(self.given[given])
            if tensor.dtype not in PLAIN:
                raise FileError(f"{self.where} has {given!r} in {tensor.dtype}", "use weights that are not quantised")
            try:
                transposed = slot.transposed and tensor.dim() == 2
                part = self.source.copy(self.given[given], partial(cut, slot=slot)) if transposed else cut(tensor, slot)
            except (IndexError, RuntimeError):
                part = tensor
            if part.shape != shape:
                problem = f"{self.where} has {given!r} shaped {list(tensor.shape)}, which does not fit {name!r}"
                raise FileError(f"{problem}, {list(shape)}", REMEDY)
            yield name, part
        self._check_rest(used, tied="output.weight" not in shapes)

    def _copies(self) -> dict[str, str]:
        """Names in the file of what is there twice, and of what it is a copy of."""
        return {self._own(copy): self._own(original) for copy, original in self.family.copies.items()}

    def _present(self, name: str) -> str:
        """This name if the file has it, or that of a copy: of weights that are one, some keep the other."""
        others = (one for one, original in self._copies().items() if original == name and one not in self.needed)
        found = next((one for one in (name, *others) if one in self.given), None)
        if found is None:
            raise FileError(f"{self.where} lacks the tensor {name!r}", REMEDY)
        return found

    def _check_rest(self, used: set[str], *, tied: bool) -> None:
        """What is left over is a copy or no weight, or it is named."""
        copies = self._copies()
        for given, kept in self.given.items():
            if given in used or any(re.fullmatch(self._own(one), given) for one in self.family.dropped):
                continue
            if given not in copies:
                raise FileError(f"{self.where} has a tensor {given!r} this model does not know", REMEDY)
            original = self._present(copies[given])
            if not self.source.equal(kept, self.given[original]):
                problem = f"{self.where} has {given!r} and {original!r}, which differ"
                if not tied:
                    remedy = f"this version reads {self.family.name} models in which they are one"
                    raise FileError(f"{problem}, and only the output may have a table of its own here", remedy)
                raise FileError(
                    f"{problem}, and the config says they are one",
                    "set tie_word_embeddings to false in its config.json",
                )

    def _own(self, name: str) -> str:
        """Hugging Face's name as this file has it: without the body's prefix in a file of the body alone."""
        for prefix in (self.family.body, re.escape(self.family.body)):
            if self.bare and name.startswith(prefix):
                return name.removeprefix(prefix)
        return name


def _today(name: str) -> str:
    """A name as it is written today: norms had a gamma and a beta."""
    return re.sub(r"\.beta$", ".bias", re.sub(r"\.gamma$", ".weight", name))


def hf_tensors(names: Names, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Regard's tensors under Hugging Face's names."""
    parts: dict[str, tuple[TensorSlot, dict[int, Tensor]]] = {}
    for name, tensor in tensors.items():
        slot = slot_of(name, names)
        if slot is None:
            raise FileError(f"there is no slot for {name!r} in this family", "convert to another one")
        parts.setdefault(slot.name, (slot, {}))[1][slot.part] = tensor.detach()
    return {name: join([found[part] for part in sorted(found)], slot) for name, (slot, found) in parts.items()}
