"""The law of recordings: what `regard.watch` tells of attention adds up to what attention gave."""

from typing import Any

import torch
from torch import Tensor, nn

from regard.attention.exact import ExactAttention
from regard.attention.multihead import Attend, MultiHeadAttention
from regard.inspection.capture import Recording, layer_name, record_into
from regard.inspection.laws.examined import Examined, difference, needs_attention
from regard.inspection.laws.law import Law, Trial
from regard.inspection.laws.reading import batch_of

ADDED, JOINED = "weights × values", "heads added up"


def _outputs(model: Examined, trial: Trial, seen: Recording) -> tuple[dict[str, list[Tensor]], dict[str, list[Tensor]]]:
    """What every layer's attention gave of its heads, and what its output projection made of them."""
    heads: dict[str, list[Tensor]] = {}
    joined: dict[str, list[Tensor]] = {}
    handles = []

    def keep(place: dict[str, list[Tensor]], layer: str) -> Any:
        def hook(_: nn.Module, args: Any, output: Tensor) -> None:
            place.setdefault(layer, []).append(output.detach())

        return hook

    for path, part in model.module.named_modules():
        if isinstance(part, Attend):
            layer = layer_name(path) if part.site is None else str(part.site)
            handles.append(part.register_forward_hook(keep(heads, layer)))
        elif isinstance(part, ExactAttention | MultiHeadAttention):
            layer = layer_name(f"{path}.attend") if part.attend.site is None else str(part.attend.site)
            handles.append(part.output.register_forward_hook(keep(joined, layer)))
    try:
        with torch.no_grad(), record_into(seen, model.module):
            model.module(model.together(trial.texts, trial.sources))
    finally:
        for handle in handles:
            handle.remove()
    return heads, joined


def _adds_up(model: Examined, trial: Trial) -> float:
    """Between recorded weights times recorded values and a layer's output, of heads or of all of them projected."""
    seen = Recording(values=True)
    heads, joined = _outputs(model, trial, seen)
    projections = {
        str(part.attend.site) if part.attend.site is not None else layer_name(f"{path}.attend"): part
        for path, part in model.module.named_modules()
        if isinstance(part, ExactAttention | MultiHeadAttention)
    }
    worst = 0.0
    with torch.no_grad():
        for layer, gave in heads.items():
            weights = seen.weights(layer, batch=0)
            values = seen.trace(layer, batch=0).joined("new_values")[0]
            read = weights.to(values) @ values.repeat_interleave(len(weights) // len(values), dim=0)
            if trial.how == ADDED:
                worst = max(worst, difference(read, torch.cat(gave, dim=2)[0].to(read)))
            elif layer in joined and layer in projections:
                output = projections[layer].output
                parts = torch.split(output.whole_weight(), values.shape[-1], dim=1)
                together = torch.stack([one @ part.T for one, part in zip(read, parts, strict=True)]).sum(0)
                together = together if output.bias is None else together + output.bias
                worst = max(worst, difference(together, torch.cat(joined[layer], dim=1)[0]))
    return worst


RECORDED = (
    Law(
        "capture",
        "Recorded weights times recorded values are what each head gave, and the heads add up to the layer's output.",
        lambda model: [batch_of(model, how, (5,)) for how in (ADDED, JOINED)],
        _adds_up,
        {
            ADDED: "the recording is not of what was multiplied: a hook stands on another tensor, such as queries "
            "before they are turned, or misses the mask or the bias",
            JOINED: "the heads are joined in another order than they are told apart, or something is added besides",
        },
        unfit=needs_attention,
    ),
)
