"""How to train, as one frozen, validated value: a recipe's [training] table."""

from typing import Annotated, Literal

from pydantic import Field

from regard.config import Config

Memory = Annotated[float, Field(ge=0, lt=1)]


class TrainingPlan(Config):
    """Everything the loop needs to know besides what it trains and on what."""

    steps: int = Field(2000, ge=1, description="optimizer steps")
    batch_tokens: int = Field(4096, ge=1, description="places in a batch: rows × longest")
    accumulate: int = Field(1, ge=1, description="batches added up before each step")
    learning_rate: float = Field(1e-3, gt=0, allow_inf_nan=False, description="at its peak")
    schedule: Literal["constant", "linear", "cosine", "inverse_sqrt"] = Field(
        "inverse_sqrt", description="after warm-up"
    )
    warmup: int = Field(400, ge=0, description="steps from 0 to the peak rate")
    weight_decay: float = Field(0.01, ge=0, description="on matrices; not on biases, norms and embeddings")
    betas: tuple[Memory, Memory] = Field((0.9, 0.98), description="AdamW's two memories")
    clip: float = Field(1.0, gt=0, description="largest norm of the gradient")
    label_smoothing: float = Field(0.1, ge=0, lt=1, description="probability given away by each target")
    precision: Literal["float32", "bfloat16"] = Field("float32", description="of the forward pass (autocast)")
    evaluate_every: int = Field(500, ge=1, description="steps between validations")
    save_every: int = Field(500, ge=1, description="steps between states to resume from")
    keep: int = Field(2, ge=1, description="states kept")
    seed: int = Field(0, ge=0, lt=2**32, description="of weights, dropout and the order of the data")
    device: str = Field("auto", description="cpu, cuda, or auto: cuda where there is one")
