"""The tasks that are shipped, made known: importing this fills `TASKS` and the union of a recipe's [task]."""

from regard.tasks.classification import Classification
from regard.tasks.denoising import Denoising
from regard.tasks.language_modelling import Language
from regard.tasks.masked import Masked
from regard.tasks.question_answering import Questions
from regard.tasks.sentence_embedding import Vectors
from regard.tasks.task import register_task
from regard.tasks.translation import Translation

for task in (Translation, Language, Masked, Denoising, Classification, Questions, Vectors):
    register_task(task)
