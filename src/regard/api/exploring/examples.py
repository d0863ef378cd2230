"""What a page says of a model before anything is read: what it is, what it is for, and a text to begin with."""

from collections.abc import Sequence
from typing import Any

from regard.api import Model
from regard.api.exploring.reading import attends
from regard.data.conversations import Conversation
from regard.data.questions import Question
from regard.data.sentinels import SENTINELS
from regard.data.splits import TextDocument
from regard.errors import InputError
from regard.inspection.intervention import stream_places
from regard.models.recurrent import RecurrentNetwork
from regard.tasks.generation import Generation
from regard.tasks.task import held_out

SENTENCE = "The cup did not fit in the bag because it was too big."
SHOWN = 200
"""Characters of a document."""
BY_TASK = {
    "masked": "The capital of France is {mask}.",
    "question_answering": f"What was too big?\t{SENTENCE}",
    "cloze": "The cup did not fit in the {mask}.",
    "denoising": f"The cup did not fit in the {SENTINELS[0]} because it was too big.",
}


def model_record(name: str, model: Model, snapshots: Sequence[int] = ()) -> dict[str, Any]:
    """For the page's list of models; `snapshots` are the steps whose weights its training kept."""
    return {
        "name": name,
        "facts": model.facts,
        "task": model.task.name,
        "continues": model.task.continues,
        "writes": isinstance(model.task, Generation),
        "attends": attends(model),
        "decides": model.module.config.outputs != "none",
        "streams": _has_streams(model),
        "recurrent": isinstance(model.module, RecurrentNetwork),
        "reads_source": model.module.config.reads_source,
        "free": model.data is None or model.data.corpus is None,
        "snapshots": list(snapshots),
        "example": example(model),
    }


def _has_streams(model: Model) -> bool:
    """Whether there is a token vector that goes from layer to layer, to be read or replaced."""
    try:
        stream_places(model.module)
    except InputError:
        return False
    return True


def example(model: Model) -> str:
    """A text that the model can read: of the corpus it was trained on, if that is a built-in one."""
    usual = BY_TASK.get(model.task.name, SENTENCE).replace("{mask}", model.tokenizer.mask)
    if model.recipe is None or model.recipe.given.corpus is None:
        return usual
    match held_out(model.task.open(model.recipe), "test", 1)[0]:
        case Question(question, context):
            return f"{question}\t{context}"
        case Conversation(messages):
            return next(one.content for one in messages if one.role == "user")
        case TextDocument(text):
            return text[:SHOWN] if model.task.continues else usual
        case other:
            return str(other[0])
