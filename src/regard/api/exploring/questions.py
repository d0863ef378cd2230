"""The questions a page may ask of a text that a model has read, each with its fields; unknown fields are refused."""

from regard.api.exploring.decoding import OfBeam, OfPath, beam_record, path_record
from regard.api.exploring.grammar import grammar_of
from regard.api.exploring.lens import OfOther, flow_of, lens_of, patching_of
from regard.api.exploring.what_if import (
    OfAnswer,
    OfCuts,
    OfEdges,
    OfScore,
    edge_effects_of,
    head_effects_of,
    what_if_of,
    why_of,
)
from regard.api.exploring.words import OfWord, meaning_of, tokens_record
from regard.views.exploring.questions import OF_RECORDINGS, Answers
from regard.views.exploring.recorded import OfLayer, PageQuestion

QUESTIONS: Answers = {
    **OF_RECORDINGS,
    "path": (OfPath, path_record),
    "beam": (OfBeam, beam_record),
    "grammar": (PageQuestion, grammar_of),
    "tokens": (PageQuestion, tokens_record),
    "meaning": (OfWord, meaning_of),
    "head_effects": (OfAnswer, head_effects_of),
    "edge_effects": (OfEdges, edge_effects_of),
    "what_if": (OfCuts, what_if_of),
    "why": (OfScore, why_of),
    "lens": (PageQuestion, lens_of),
    "patching": (OfOther, patching_of),
    "flow": (OfLayer, flow_of),
}
