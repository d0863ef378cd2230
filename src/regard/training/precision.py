"""In what numbers the forward pass is computed; `auto` is bfloat16 where the device has instructions for it.

Where it has none, bfloat16 is emulated and slower than float32. The choice is a function of the device alone and never
timed, so that a resumed run chooses as it did before.
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch

from regard.training.plan import TrainingPlan


@dataclass(frozen=True)
class Precision:
    """The numbers, and why these."""

    name: str
    why: str


def choose_precision(wish: str, device: torch.device) -> Precision:
    """What a plan's `precision` means on this device."""
    if wish != "auto":
        return Precision(wish, "the recipe says so")
    if device.type == "cuda":
        native = torch.cuda.get_device_capability(device) >= (8, 0)  # before Ampere it is emulated
        where = torch.cuda.get_device_name(device)
    else:
        native, where = device.type == "cpu" and _cpu_has_bfloat16(), f"this {device.type.upper()}"
    if native:
        return Precision("bfloat16", f"{where} multiplies it natively")
    return Precision("float32", f"{where} has no instructions for bfloat16")


def autocast(plan: TrainingPlan, device: torch.device) -> AbstractContextManager[object]:
    """bfloat16 where the plan says so."""
    if choose_precision(plan.precision, device).name == "float32":
        return nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)


def _cpu_has_bfloat16() -> bool:
    """AVX-512 BF16 or AMX, as torch reports them; False where a torch cannot say."""
    checks = [getattr(torch.cpu, name, None) for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported")]
    return any(check is not None and check() for check in checks)
