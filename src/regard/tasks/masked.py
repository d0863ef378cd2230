"""Masked language modelling: an encoder that fills what is hidden in a text."""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from regard.data.batching import IGNORED, Inputs, Padded
from regard.data.masking import Masking
from regard.data.splits import TextDocument
from regard.data.windows import in_order
from regard.decoding.beam import check_likely
from regard.decoding.strategies import Strategy
from regard.errors import InputError
from regard.tasks.data_table import DataTable
from regard.tasks.document_task import OfDocuments
from regard.tasks.language_modelling import MEASURED
from regard.tasks.task import USUAL, Answer, Loaded, Measuring, Needs, refuse_decoding
from regard.tasks.task_table import TaskTable
from regard.text.tokenizer import Tokenizer
from regard.training.trainable import cross_entropy

LIKELIEST = 5
"""Fills told of each hidden place."""


class MaskedTable(TaskTable):
    """A text with hidden places in, what may stand there out."""

    name: Literal["masked"] = Field("masked", description="hidden tokens of running text")

    parts = ("text",)
    files = '`data=["book.txt"]`'
    data_keys = frozenset({"window"})


class MaskedLanguageModelling(OfDocuments):
    """A text with hidden places in, what may stand there out."""

    Table = MaskedTable
    options: MaskedTable
    needs = Needs(decodes=False, outputs=("masked", "tokens"))
    example = TextDocument
    specials = (Tokenizer.mask,)

    def objective(self, tokenizer: Tokenizer, window: int) -> Masking:
        """Some tokens of every window are hidden."""
        return Masking(tokenizer, window)

    def metrics(self, data: DataTable | None) -> tuple[str, ...]:
        return ("loss", "accuracy")

    def answers(
        self, model: Loaded, texts: Sequence[str], strategy: Strategy | None, max_new_tokens: int | None
    ) -> list[Answer]:
        """The likeliest fills of each hidden place, and the text with the likeliest of all filled in."""
        refuse_decoding(self.name, strategy, max_new_tokens)
        return [self._filled(model, text) for text in texts]

    @torch.no_grad()
    def _filled(self, model: Loaded, text: str) -> Answer:
        token = model.tokenizer
        name = token.token_text(token.mask_id)
        if name not in text:
            raise InputError(f"the text hides nothing: it has no {name}", f"write {name} in place of a word")
        ids = token.encode_naming(text, [name])
        row, _ = token.apply_template(ids)
        device = model.module.device
        logits: Tensor = model.module(Inputs(Padded.of([row])).to(device))[0]
        hidden = [place for place, one in enumerate(row) if one == token.mask_id]
        found = [self._likeliest(token, logits[place]) for place in hidden]
        best = iter([next(iter(fills)) for fills in found])
        filled = token.decode([next(best)[0] if one == token.mask_id else one for one in row])
        fills = [[{"token": text, "probability": value} for (_, text), value in one.items()] for one in found]
        lines = ["  ".join(f"{text.strip()} {value:.3f}" for (_, text), value in one.items()) for one in found]
        value = [{text: value for (_, text), value in one.items()} for one in found]
        return Answer(value, "\n".join([filled, *lines]), {"output": filled, "fills": fills})

    def _likeliest(self, token: Tokenizer, logits: Float[Tensor, "vocab"]) -> dict[tuple[int, str], float]:
        """Ids with their texts and probabilities, best first; special tokens fill nothing."""
        special = torch.tensor(sorted(token.special_ids.values()), device=logits.device)
        check_likely(logits)
        likely = logits.double().index_fill(0, special, -torch.inf).softmax(dim=0).topk(min(LIKELIEST, len(logits)))
        pairs = zip(likely.indices.tolist(), likely.values.tolist(), strict=True)
        return {(one, token.token_text(one)): value for one, value in pairs}

    @torch.no_grad()
    def evaluate(self, model: Loaded, examples: Sequence[Any], how: Measuring = USUAL) -> dict[str, float]:
        """Loss per hidden token in nats, and the share of hidden tokens that are the likeliest."""
        how.refuse_windows(self.name)
        documents: Sequence[TextDocument] = examples
        stream, objective = self.windows(model, documents)
        device = model.module.device
        total, count, right = 0.0, 0, 0
        batches = in_order(stream, objective, MEASURED)
        for done, batch in enumerate(batches, start=1):
            placed = batch.to(device)
            logits: Tensor = model.module(placed.inputs)
            loss = cross_entropy(logits, placed.targets)
            asked = placed.targets != IGNORED
            total, count = total + float(loss.sum), count + loss.count
            right += int((logits.argmax(dim=-1)[asked] == placed.targets[asked]).sum())
            how.progress(done, len(batches))
        return {"loss": total / max(count, 1), "accuracy": right / max(count, 1)}
