"""The table [model.adapter] of a recipe: how a checkpoint is trained by adapters in place of its own weights."""

from typing import Literal

from pydantic import Field

from regard.config import Config


class AdapterTable(Config):
    """Small maps beside those of the folder's network; they alone learn, with the head where it is new."""

    name: Literal["lora"] = Field("lora", description="low-rank matrices beside linear layers, Hu et al. 2021")
    rank: int = Field(8, ge=1, description="rank of the two matrices: the width between them")
    alpha: float = Field(16.0, gt=0, allow_inf_nan=False, description="what they add is scaled by alpha / rank")
    dropout: float = Field(0.0, ge=0.0, lt=1.0, description="on their input")
    targets: tuple[str, ...] = Field(
        ("query", "value"), min_length=1, description="the linear layers they are added to, by the ends of their names"
    )
