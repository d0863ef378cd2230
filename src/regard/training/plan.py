"""How to train, as one frozen, validated value: a recipe's [training] table."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field, PlainValidator, SerializeAsAny, model_validator

from regard.config import Config
from regard.errors import ConfigError
from regard.training.optimizer_table import OPTIMIZERS, AdamWTable, OptimizerTable, read_optimizer

OneOptimizer = Annotated[SerializeAsAny[OptimizerTable], PlainValidator(read_optimizer)]
Factor = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class TrainingPlan(Config):
    """Everything the loop needs to know besides what it trains and on what."""

    unions: ClassVar[Mapping[str, Mapping[str, type[Config]]]] = {"optimizer": OPTIMIZERS}

    steps: int = Field(2000, ge=1, description="optimizer steps")
    batch_tokens: int = Field(4096, ge=1, description="tokens in a batch with its padding: rows × the longest row")
    accumulate: int = Field(1, ge=1, description="batches added up before each step")
    learning_rate: float = Field(1e-3, gt=0, allow_inf_nan=False, description="at its peak")
    schedule: Literal["constant", "linear", "cosine", "inverse_sqrt"] = Field(
        "inverse_sqrt", description="after warm-up"
    )
    warmup: int = Field(400, ge=0, description="steps from 0 to the peak rate")
    min_rate_ratio: float = Field(0.0, ge=0, lt=1, description="share of the peak that linear and cosine end at")
    weight_decay: float = Field(0.01, ge=0, description="on matrices; not on biases, norms and embeddings")
    optimizer: OneOptimizer = Field(AdamWTable(), description="how a gradient becomes a step")
    layer_decay: float = Field(
        1.0, gt=0, le=1, description="factor of the learning rate for each layer below the head; 1: one rate for all"
    )
    rate_factors: dict[str, Factor] = Field(
        {}, description="parts by name, such as `output`, each with the factor of its learning rate"
    )
    freeze: tuple[str, ...] = Field(
        (), description="parts by name that stay as they are: `embedding`, `encoder.layers.0`"
    )
    clip: float = Field(1.0, gt=0, description="largest norm of the gradient")
    label_smoothing: float = Field(
        0.1, ge=0, lt=1, description="share of the probability that goes to all other tokens"
    )
    precision: Literal["float32", "bfloat16", "auto"] = Field(
        "float32", description="of the forward pass (autocast); auto: bfloat16 where the device computes in it"
    )
    compile: bool | Literal["auto"] = Field(
        "auto", description="torch.compile the model, minutes at the start; auto: where that pays on a GPU"
    )
    evaluate_every: int = Field(500, ge=1, description="steps between evaluations")
    save_every: int = Field(500, ge=1, description="steps between states to resume from")
    metric: str = Field(
        "loss", description="chooses the best model: the validation loss, or a metric of the task such as bleu"
    )
    metric_examples: int | None = Field(
        None, ge=1, description="validation examples the metric is measured on, the first; 200 if absent"
    )
    patience: int | None = Field(None, ge=1, description="evaluations in a row without a new best before it stops")
    keep: int = Field(2, ge=1, description="last states that are kept")
    snapshots: tuple[Annotated[int, Field(ge=0)], ...] = Field(
        (), description="steps whose weights alone are kept, in RUN/snapshots, to be looked at; 0 is before the first"
    )
    average: int | None = Field(None, ge=2, description="states whose mean the model is; the best one if absent")
    seed: int = Field(0, ge=0, lt=2**32, description="of weights, dropout and the order of the data")
    device: str = Field("auto", description="cpu, cuda, or auto: cuda where there is one")
    track: Literal["tensorboard"] | None = Field(
        None, description="tensorboard: event files of the figures in RUN/tensorboard; only metrics.jsonl if absent"
    )

    @model_validator(mode="after")
    def _min_rate_ratio_has_a_meaning(self) -> "TrainingPlan":
        if self.min_rate_ratio and self.schedule not in ("linear", "cosine"):
            raise ConfigError(
                f"min_rate_ratio has no effect with schedule {self.schedule!r}",
                "use linear or cosine, or leave min_rate_ratio out",
            )
        return self

    @model_validator(mode="after")
    def _metric_examples_have_a_meaning(self) -> "TrainingPlan":
        if self.metric_examples is not None and self.metric == "loss":
            raise ConfigError(
                "metric_examples has no effect with metric 'loss', which is measured on all",
                "choose another training.metric, or leave it out",
            )
        return self

    @model_validator(mode="after")
    def _snapshots_are_reached(self) -> "TrainingPlan":
        late = [step for step in self.snapshots if step > self.steps]
        if late:
            raise ConfigError(
                f"the snapshot of step {late[0]} is never taken, since training ends after step {self.steps}",
                "leave it out, or set training.steps higher",
            )
        return self

    @model_validator(mode="after")
    def _enough_is_kept(self) -> "TrainingPlan":
        if self.average is not None and self.keep < self.average:
            raise ConfigError(
                f"average = {self.average} states cannot be had where keep = {self.keep}",
                f"use training.keep={self.average} or more",
            )
        return self


CHANGEABLE = frozenset(
    f"training.{key}"
    for key in (
        *("steps", "learning_rate", "schedule", "warmup", "min_rate_ratio", "weight_decay", "clip", "label_smoothing"),
        *("precision", "compile", "evaluate_every", "save_every", "patience", "keep", "device", "track"),
        "snapshots",
    )
)
"""What `--resume` lets `--set` change: the weights, the optimizer and the place in the data keep their meaning."""
