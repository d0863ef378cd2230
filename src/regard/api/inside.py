"""What a model does inside: what `Model` can be asked of its heads, each answer a plain record that views draw."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from regard.data.grammar import sentences
from regard.errors import InputError
from regard.inspection.arcs import find_arcs
from regard.inspection.capture import Recording
from regard.inspection.corpus_heads import CorpusReport, heads_on_corpus, texts_of
from regard.inspection.decisions import Decisions, decisions_of
from regard.inspection.flow import Flow, attention_flow
from regard.inspection.head_report import HeadReport, joined, report_heads
from regard.inspection.intervention import Intervention, change_of, intervene
from regard.inspection.lens import LogitLens, Patching, logit_lens, patching
from regard.inspection.score_parts import ScoreParts, score_parts
from regard.inspection.what_if import Ablation, EdgeEffects, HeadEffects, WhatIf, edge_effects, head_effects, what_if
from regard.tasks.task import Loaded

SENTENCES = 40
"""Of the small grammar."""


WINDOW = 128
"""Tokens of a corpus that are read at once."""


class Looked(Loaded, Protocol):
    """A model that can be looked at while it reads."""

    def look(self, text: str) -> Recording:
        """What it attends to."""
        ...


class Inside:
    """What `Model` is asked of its inside.

    What is switched off or cut is measured on an answer: the target where one is given, else the model's own. A
    language model decides for the next token alone, unless `generate` or `max_new_tokens` lets it go on.
    """

    def heads(self: Looked, texts: Sequence[str] | None = None) -> HeadReport:
        """What kind of head each head is, measured on texts, or on a small English grammar where none are given."""
        if texts is not None:
            if isinstance(texts, str) or not texts:
                raise InputError("heads are measured on texts", "give a list of one or more")
            seen = joined([self.look(text) for text in texts])
            read = "1 text" if len(texts) == 1 else f"{len(texts)} texts"
            return report_heads(seen, self.module, self.tokenizer, None, read)
        parsed = sentences(SENTENCES)
        seen = joined([self.look(one.text) for one in parsed])
        grammar = find_arcs(seen, self.tokenizer, parsed)
        return report_heads(seen, self.module, self.tokenizer, grammar, f"{SENTENCES} sentences of a small grammar")

    def decisions(
        self: Loaded,
        text: str,
        *,
        target: str | None = None,
        generate: bool = False,
        max_new_tokens: int | None = None,
    ) -> Decisions:
        """What the model reads and what it decides, ready to be asked again with something changed."""
        return decisions_of(self, text, target, generate, max_new_tokens)

    def without(self: Loaded, *changes: str | Intervention) -> AbstractContextManager[object]:
        """Whatever the model does inside the block, it does with these heads switched off and these edges cut."""
        return intervene(self.module, _changes(changes))

    def what_if(
        self: Loaded,
        text: str,
        without: str | Intervention | Sequence[str | Intervention],
        *,
        target: str | None = None,
        generate: bool = False,
        max_new_tokens: int | None = None,
        ablation: Ablation = "zero",
        renormalise: bool = True,
    ) -> WhatIf:
        """The answer with these heads switched off and these edges cut, beside the one without.

        `"encoder.1.self:3"` is a head, `"encoder.1.self:3:5:2"` the edge from token 5 to token 2 in it; `all` in place
        of the head cuts it in every one. A head gives zeros in place of its own output, or its mean over the text.
        """
        changes = _changes([without] if isinstance(without, str | Intervention) else without, renormalise)
        decided = decisions_of(self, text, target, generate, max_new_tokens)
        anew = target is None and (generate or max_new_tokens is not None or not self.task.continues)

        def answer() -> str:
            return self.task.answers(self, [text], None, max_new_tokens)[0].text

        return what_if(self.module, decided, changes, ablation, answer if anew else None)

    def head_effects(
        self: Loaded,
        text: str,
        *,
        target: str | None = None,
        generate: bool = False,
        max_new_tokens: int | None = None,
        ablation: Ablation = "zero",
    ) -> HeadEffects:
        """What switching off each head does to the answer, one at a time."""
        decided = decisions_of(self, text, target, generate, max_new_tokens)
        return head_effects(self.module, decided, ablation)

    def edge_effects(
        self: Loaded,
        text: str,
        layer: str,
        query: int,
        *,
        head: int | None = None,
        target: str | None = None,
        max_new_tokens: int | None = None,
        renormalise: bool = True,
    ) -> EdgeEffects:
        """What cutting each edge of one row does to the answer, one at a time; in all heads where none is named."""
        decided = decisions_of(self, text, target, False, max_new_tokens)
        return edge_effects(self.module, decided, layer, query, head, renormalise)

    def why(
        self: Loaded,
        text: str,
        layer: str,
        head: int,
        query: int,
        key: int,
        *,
        target: str | None = None,
        max_new_tokens: int | None = None,
    ) -> ScoreParts:
        """Why a token attends to another: the score q·k, split exactly by where its parts came from."""
        decided = decisions_of(self, text, target, False, max_new_tokens)
        return score_parts(self.module, decided.inputs, layer, head, query, key)

    def on_corpus(
        self: Looked, path: str | Path, *, layer: str | None = None, head: int | None = None, window: int = WINDOW
    ) -> CorpusReport:
        """What heads do on a file of text: their strongest edges, and rows drawn from every tenth of theirs."""
        return heads_on_corpus(texts_of(Path(path), self.tokenizer, window), self.look, self.tokenizer, layer, head)

    def logit_lens(
        self: Loaded, text: str, *, target: str | None = None, generate: bool = False, max_new_tokens: int | None = None
    ) -> LogitLens:
        """What each layer would decide if the model ended there."""
        return logit_lens(self.module, decisions_of(self, text, target, generate, max_new_tokens))

    def patching(self: Loaded, text: str, other: str, *, target: str | None = None) -> Patching:
        """Which vectors of a text bring its answer back when another one, of as many tokens, is read."""
        read = decisions_of(self, other, target).inputs
        return patching(self.module, decisions_of(self, text, target), read)

    def attention_flow(
        self: Loaded, text: str, layer: str, *, target: str | None = None, max_new_tokens: int | None = None
    ) -> Flow:
        """The raw weights of a layer beside attention rollout and gradient × attention."""
        return attention_flow(self.module, decisions_of(self, text, target, False, max_new_tokens), layer)


def _changes(given: Sequence[str | Intervention], renormalise: bool = True) -> list[Intervention]:
    return [change_of(one, renormalise) if isinstance(one, str) else one for one in given]
