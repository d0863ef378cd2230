"""Laws of what is on the disk: the weights of a model are those of its file, and its tokenizer keeps its promises.

The file is read by itself here, header and bytes, without the library that loaded it.
"""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.errors import RegardError
from regard.files import read_json
from regard.inspection.laws.examined import Examined, needs_network
from regard.inspection.laws.law import Law, Trial
from regard.interop.huggingface import family_of, is_huggingface
from regard.interop.names import join, slot_of
from regard.interop.peft import is_adapter
from regard.interop.tensors import INDEX
from regard.models.checkpoint import WEIGHTS
from regard.models.config import transformer_config
from regard.models.families.family import TensorSlot
from regard.text.tokenizer import Tokenizer

TYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "U8": torch.uint8,
    "I8": torch.int8,
    "BOOL": torch.bool,
}
"""What safetensors calls types."""


class FileTensors:
    """The tensors of safetensors files, by name, each read when it is asked for."""

    def __init__(self, folder: Path) -> None:
        self.places: dict[str, tuple[Path, int, dict[str, Any]]] = {}
        for path in self._files(folder):
            with path.open("rb") as file:
                length = int.from_bytes(file.read(8), "little")
                header = json.loads(file.read(length))
            header.pop("__metadata__", None)
            self.places |= {name: (path, 8 + length, entry) for name, entry in header.items()}

    @staticmethod
    def _files(folder: Path) -> list[Path]:
        if (folder / WEIGHTS).is_file():
            return [folder / WEIGHTS]
        shards = read_json(folder / INDEX, "copy it again")["weight_map"]
        return [folder / name for name in sorted(set(shards.values()))]

    def read(self, name: str) -> Tensor:
        """One of them."""
        path, start, entry = self.places[name]
        first, last = entry["data_offsets"]
        numbers = np.fromfile(path, dtype=np.uint8, count=last - first, offset=start + first)
        return torch.from_numpy(numbers).view(TYPES[entry["dtype"]]).reshape(entry["shape"])


def _of_file(model: Examined) -> Iterator[Trial]:
    """Every tensor of the file and every tensor of the module."""
    assert model.folder is not None
    names = dict.fromkeys([*FileTensors(model.folder).places, *_written(model)])
    yield Trial("", part=" ".join(names))


def _weights(model: Examined, trial: Trial) -> float:
    """How many tensors are not the same, bit for bit, in the file and in the module."""
    assert model.folder is not None
    file, module = FileTensors(model.folder), _written(model)
    return float(sum(not _same(model, file, module, name) for name in trial.part.split(" ")))


def weights_that_differ(model: Examined, trial: Trial) -> list[str]:
    """Their names, as the file has them."""
    assert model.folder is not None
    file, module = FileTensors(model.folder), _written(model)
    return [name for name in trial.part.split(" ") if not _same(model, file, module, name)]


Slots = dict[str, list[tuple[TensorSlot, str]]]


def _written(model: Examined) -> Slots:
    """The module's parameters by the name that the file has for them."""
    assert model.folder is not None
    own = model.original.state_dict()
    if not is_huggingface(model.folder):
        return {name: [(TensorSlot(name), name)] for name in own}
    family = family_of(model.folder)
    names = family.names(transformer_config(model.config))
    found: Slots = {}
    for name in own:
        slot = slot_of(name, names)
        found.setdefault(name if slot is None else slot.name, []).append((slot or TensorSlot(name), name))
    bare = not any(_today(one).startswith(family.body) for one in FileTensors(model.folder).places)
    prefix = family.body if bare else ""
    return {name.removeprefix(prefix): sorted(parts, key=lambda one: one[0].part) for name, parts in found.items()}


def _same(model: Examined, file: FileTensors, module: Slots, name: str) -> bool:
    """Whether a tensor is in both, and equal; what the family knows to be no weight, or a copy, counts as its own."""
    assert model.folder is not None
    today = {_today(one): one for one in file.places}
    own = model.original.state_dict()
    family = family_of(model.folder) if is_huggingface(model.folder) else None
    parts = module.get(name) or module.get(_today(name))
    if parts is None:
        if family is None:
            return False
        ends = {one.removeprefix(family.body): other.removeprefix(family.body) for one, other in family.copies.items()}
        original = family.copies.get(name, ends.get(name.removeprefix(family.body), ""))
        original = original if original in module else original.removeprefix(family.body)
        if original not in module:
            return any(
                re.fullmatch(one.removeprefix(re.escape(family.body)), name) or re.fullmatch(one, name)
                for one in family.dropped
            )
        parts = module[original]
    slots = [slot for slot, _ in parts]
    made = join([own[one].detach().cpu() for _, one in parts], slots[0])
    kept = today.get(_today(name), "")
    if not kept and family is not None:
        copies = [one for one, other in family.copies.items() if name in (other, other.removeprefix(family.body))]
        kept = next((today[one] for one in copies if one in today), "")
        if not kept and (name in family.zero or f"{family.body}{name}" in family.zero):
            return not made.any()
    if not kept:
        return False
    stored = file.read(kept)
    if slots[0].skip_rows:
        stored, made = stored[slots[0].skip_rows :], made[slots[0].skip_rows :]
    stored = stored.to(made.dtype)
    if stored.shape != made.shape:
        return False
    return bool(((stored == made) | (stored.isnan() & made.isnan())).all())


def _today(name: str) -> str:
    """Norms had a gamma and a beta."""
    return re.sub(r"\.beta$", ".bias", re.sub(r"\.gamma$", ".weight", name))


def _no_file(model: Examined) -> str | None:
    if (reason := needs_network(model)) is not None:
        return reason
    if model.folder is None or not model.folder.is_dir():
        return "there is no folder with safetensors to compare it with"
    if is_adapter(model.folder):
        return "its folder holds an adapter, whose base is elsewhere"
    whole = (model.folder / WEIGHTS).is_file() or (model.folder / INDEX).is_file()
    return None if whole else "its folder has no safetensors"


TEXTS = (
    "He left the roses by the bank.",
    "The 3rd of March, 2021: 1,024 things (and more)!",
    "naïve café — Größe, señor; 日本語 и русский",
    "  two  spaces\tand a\nline  ",
    "a 👩‍👩‍👧 family, e\u0301 in two pieces",
)
COMES_BACK, SPELLED, PLACED, STREAMED = "comes back", "special tokens spelled", "offsets", "streamed"


def _spoken(model: Examined) -> Iterator[Trial]:
    assert model.tokenizer is not None
    for text in TEXTS:
        yield Trial(COMES_BACK, text=text)
    for name in model.tokenizer.special_ids:
        yield Trial(SPELLED, text=f"a {name} b")
    for how in (PLACED, STREAMED):
        yield from (Trial(how, text=text) for text in TEXTS)


def _tokenizer(model: Examined, trial: Trial) -> float:
    """1 where a text breaks the promise that is tried, else 0."""
    tokenizer, text = model.tokenizer, trial.text
    assert tokenizer is not None
    try:
        ids = tokenizer.encode(text)
    except RegardError:
        return 0.0  # it says that it cannot cut this text, and does not
    lossless = Tokenizer.problem_of(tokenizer.engine) is None
    if trial.how == COMES_BACK:
        again = tokenizer.decode(ids)
        if lossless:
            return float(again != text)
        return float(tokenizer.decode(tokenizer.encode(again)).split() != again.split())  # it says which text it reads
    if trial.how == SPELLED:
        unknown: set[int] = set()
        with suppress(RegardError):
            unknown = set() if lossless else {tokenizer.unk_id}  # bytes never need it
        return float(bool((set(tokenizer.special_ids.values()) - unknown) & set(ids)))
    if trial.how == PLACED:
        spans = tokenizer.offsets(text)
        inside = all(0 <= first <= last <= len(text) for first, last in spans)
        ordered = all(one[0] <= other[0] for one, other in pairwise(spans))
        return float(len(spans) != len(ids) or not inside or not ordered)
    stream = tokenizer.stream()
    return float("".join([*map(stream.push, ids), stream.end()]) != tokenizer.decode(ids))


FILES = (
    Law(
        "weights",
        "Every tensor of the file is in the module and every tensor of the module is in the file, bit for bit.",
        _of_file,
        _weights,
        {
            "": "a tensor was not loaded, or was changed after: it is left at its initial value, its name fits no "
            "slot, or a tied one was replaced"
        },
        tolerance=0.0,
        unit="tensors that differ",
        unfit=_no_file,
    ),
    Law(
        "tokenizer",
        "Texts come back (normalised ones as they were read), no text spells a special token, offsets lie in order, "
        "and pieces add up.",
        _spoken,
        _tokenizer,
        {
            COMES_BACK: "decoding is not encoding backwards: a normalizer, a prefix space or a missing byte",
            SPELLED: "special tokens are recognised in a user's text, who can so end or begin a turn",
            PLACED: "offsets are counted in bytes, or in the normalised text and not in the one that was given",
            STREAMED: "characters of several tokens are not held back until they are whole",
        },
        tolerance=0.0,
        unit="texts",
        unfit=lambda model: None if model.tokenizer else "it was given without a tokenizer",
    ),
)
