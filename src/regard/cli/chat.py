"""`regard chat`: a conversation in the terminal, or line by line through a pipe."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli import decoding_options as options
from regard.cli.answering import complain_of_line, with_seed
from regard.cli.options import Adapters, Device, Plugin, Precision, adapters, where
from regard.cli.output import to_json
from regard.cli.stdin import stdin_lines, text_of
from regard.errors import InputError

if TYPE_CHECKING:
    from regard.api import Model

RESET, QUIT = "/reset", "/quit"
PROMPT = "> "


@dataclass
class Talk:
    """What was said so far, and with whom."""

    model: "Model"
    system: str | None
    as_json: bool
    messages: list[dict[str, str]] = field(default_factory=list)
    turn: int = 0
    """Of sampling: each answer draws numbers of its own."""

    def reset(self) -> None:
        """Begin anew."""
        self.messages = [] if self.system is None else [{"role": "system", "content": self.system}]

    def say(self, text: str) -> None:
        """Print the answer, and remember both; a turn that fails, or to which nothing is said, is forgotten."""
        asked = [*self.messages, {"role": "user", "content": text}]
        answer = self._answer(asked)
        self.turn += 1
        if self.as_json:
            print(to_json({"input": text, "output": answer, **where(self.model)}), flush=True)
        if answer.strip():
            self.messages = [*asked, {"role": "assistant", "content": answer}]

    def _answer(self, asked: list[dict[str, str]]) -> str:
        """What the model says, printed as it comes where it can: on one line, unless a person reads it."""
        from regard.decoding.strategies import Greedy, Sample

        usual = self.model.decoding.chosen()
        strategy = replace(usual, first=self.turn) if isinstance(usual, Sample) else usual
        if self.as_json or not isinstance(usual, Greedy | Sample):
            whole = str(self.model.chat(asked, strategy=strategy))
            if not self.as_json:
                print(_shown(whole), flush=True)
            return whole
        pieces = []
        for piece in self.model.chat(asked, strategy=strategy, stream=True):
            pieces.append(piece)
            print(_shown(piece), end="", flush=True)
        print(flush=True)
        return "".join(pieces)


def _shown(text: str) -> str:
    """As it stands for a person; for a program a line stays a line."""
    return text if sys.stdin is not None and sys.stdin.isatty() else text.replace("\n", "\\n")


def _typed() -> Iterator[bytes]:
    """What a person types, each line after a prompt on stderr."""
    while True:
        print(PROMPT, end="", file=sys.stderr, flush=True)
        line = sys.stdin.buffer.readline()
        if not line:
            print(file=sys.stderr)
            return
        yield line.rstrip(b"\r\n")


def chat(
    model: Annotated[Path, typer.Argument(help="A model folder.")],
    system: Annotated[str | None, typer.Option(help="What the system says first, if anything.")] = None,
    strategy: options.Strategy = None,
    beams: options.Beams = None,
    length_penalty: options.LengthPenalty = None,
    temperature: options.Temperature = None,
    top_k: options.TopK = None,
    top_p: options.TopP = None,
    min_p: options.MinP = None,
    penalty_alpha: options.PenaltyAlpha = None,
    repetition_penalty: options.RepetitionPenalty = None,
    no_repeat_ngram: options.NoRepeatNgram = None,
    max_new_tokens: options.MaxNewTokens = None,
    stop: options.Stop = None,
    seed: options.Seed = None,
    adapter: Adapters = None,
    device: Device = "auto",
    precision: Precision = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per answer.")] = False,
    plugin: Plugin = None,
) -> None:
    """Talk with a model, as its chat template writes a conversation down.

    Type a line, read the answer; /reset begins anew, /quit or Ctrl-D ends. From a pipe a line comes in and a line goes
    out, line ends in an answer written as \\\\n. A conversation that the model cannot read at once loses its oldest
    turns, which is said. What you type is text, whatever it spells: no special token is read in it.

    Example: `regard chat runs/chat --system "You answer in one sentence." --temperature 0.7`
    """
    given: dict[str, Any] = {"strategy": strategy, "beams": beams, "length_penalty": length_penalty, "seed": seed}
    given |= {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
    given |= {"max_new_tokens": max_new_tokens, "no_repeat_ngram_size": no_repeat_ngram, "stop": stop}
    given |= {"repetition_penalty": repetition_penalty, "penalty_alpha": penalty_alpha}
    from regard import api
    from regard.tasks.chat import as_chat

    loaded = api.load(model, device, precision, adapters=adapters(adapter))
    if len(loaded.adapters) > 1:
        raise InputError(f"{len(loaded.adapters)} adapters cannot share one conversation", "name one")
    loaded = as_chat(next(iter(loaded.adapters.values()), loaded))
    loaded = with_seed(replace(loaded, decoding=options.decoding(loaded.decoding, given)))
    if system is not None and not system.strip():
        raise InputError("--system is empty", "say something in it, or leave it out")
    talk = Talk(loaded, system, as_json)
    talk.reset()
    try:
        good = _converse(talk)
    except KeyboardInterrupt:
        print(flush=True)
        return
    if not good:
        raise typer.Exit(1)


def _converse(talk: Talk) -> bool:
    """Answer line after line until there is none; whether every one was answered."""
    person, good = sys.stdin is not None and sys.stdin.isatty(), True
    for number, line in enumerate(_typed() if person else stdin_lines(), start=1):
        try:
            text = text_of(line)
            if text.strip() == QUIT:
                break
            if text.strip() == RESET:
                talk.reset()
            elif text.strip() or not person:
                talk.say(text)
        except InputError as error:
            good = person and good
            complain_of_line(number, error, talk.as_json)
    return good
