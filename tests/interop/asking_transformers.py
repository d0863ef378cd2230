"""What `transformers` itself says to the same texts, task by task, with its own tokenizers and classes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor
from torch.nn import functional as F

PLACES = 30
"""Tokens of an answer."""


class HuggingFace:
    """A folder as `transformers` loads it."""

    def __init__(self, folder: Path, auto: str) -> None:
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        model = getattr(transformers, auto).from_pretrained(folder, attn_implementation="eager")
        self.model = model.eval()

    def read(self, texts: Sequence[str], side: str = "right") -> Any:
        self.tokenizer.padding_side = side
        if self.tokenizer.pad_token is None:
            self.tokenizer.pad_token = self.tokenizer.eos_token
        return self.tokenizer(list(texts), padding=True, return_tensors="pt", return_token_type_ids=False)

    @torch.no_grad()
    def sentence_embedding(self, texts: Sequence[str]) -> Tensor:
        read = self.read(texts)
        kept = read["attention_mask"][..., None]
        hidden = self.model(**read).last_hidden_state
        return F.normalize((hidden * kept).sum(1) / kept.sum(1), dim=-1)

    @torch.no_grad()
    def masked(self, text: str) -> list[dict[str, float]]:
        """The five likeliest tokens at every hidden place, of those that are text."""
        read = self.read([text])
        logits = self.model(**read).logits[0].double()
        logits[:, self.tokenizer.all_special_ids] = -torch.inf
        found = []
        for place in (read["input_ids"][0] == self.tokenizer.mask_token_id).nonzero()[:, 0]:
            best = logits[place].softmax(-1).topk(5)
            pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
            found.append(dict(pairs))
        return found

    @torch.no_grad()
    def classification(self, texts: Sequence[str]) -> list[dict[str, float]]:
        shares = self.model(**self.read(texts)).logits.double().softmax(-1).tolist()
        return [{self.model.config.id2label[place]: share for place, share in enumerate(row)} for row in shares]

    @torch.no_grad()
    def question_answering(self, question: str, passage: str) -> tuple[str, float]:
        read = self.tokenizer(
            question, passage, return_tensors="pt", return_offsets_mapping=True, return_token_type_ids=True
        )
        offsets = read.pop("offset_mapping")[0].tolist()
        found = self.model(**read)
        begins, ends = (one[0].double().log_softmax(-1) for one in (found.start_logits, found.end_logits))
        here = [place for place, which in enumerate(read.sequence_ids(0)) if which == 1]
        spans = [(float(begins[a] + ends[b]), a, b) for a in here for b in here if a <= b < a + PLACES]
        score, first, last = max(spans, key=lambda one: one[0])
        return passage[offsets[first][0] : offsets[last][1]], score

    @torch.no_grad()
    def language_modelling(self, texts: Sequence[str], count: int) -> list[str]:
        read = self.read(texts, side="left")
        found = self.model.generate(**read, do_sample=False, max_new_tokens=count)
        width = read["input_ids"].shape[1]
        rows = [(row[:width], self.upto(row[width:])) for row in found.tolist()]
        return [self.text(before + after)[len(self.text(before)) :] for before, after in rows]

    @torch.no_grad()
    def translation(self, texts: Sequence[str], count: int) -> list[str]:
        cache = self.model.config.model_type != "t5"  # Hugging Face's is as deep as T5's encoder
        found = self.model.generate(**self.read(texts), do_sample=False, max_new_tokens=count, use_cache=cache)
        return [self.ended(row[1:]) for row in found.tolist()]

    def ended(self, ids: list[int]) -> str:
        return self.text(self.upto(ids))

    def upto(self, ids: list[int]) -> list[int]:
        end = self.model.config.eos_token_id
        return ids[: ids.index(end)] if end in ids else ids

    def text(self, ids: list[int]) -> str:
        return str(self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))
