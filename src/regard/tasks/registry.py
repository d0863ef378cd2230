"""The tasks that are shipped, made known: importing this fills `TASKS` and the union of a recipe's [task]."""

from regard.tasks.chat import Chat
from regard.tasks.classification import Classification
from regard.tasks.cloze import ClozeTask
from regard.tasks.denoising import Denoising
from regard.tasks.language_modelling import LanguageModelling
from regard.tasks.masked import MaskedLanguageModelling
from regard.tasks.question_answering import QuestionAnswering
from regard.tasks.sentence_embedding import SentenceEmbedding
from regard.tasks.summarisation import Summarisation
from regard.tasks.task import register_task
from regard.tasks.translation import Translation

SHIPPED = (
    *(Translation, Summarisation, LanguageModelling, MaskedLanguageModelling, Denoising),
    *(ClozeTask, Classification, QuestionAnswering, SentenceEmbedding, Chat),
)
for task in SHIPPED:
    register_task(task)
