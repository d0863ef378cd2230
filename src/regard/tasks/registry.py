"""What models can be for, by the name a recipe's [task] gives."""

from typing import Any

from regard.tasks.classification import Classification
from regard.tasks.denoising import Denoising
from regard.tasks.language_modelling import Language
from regard.tasks.masked import Masked
from regard.tasks.question_answering import Questions
from regard.tasks.sentence_embedding import Vectors
from regard.tasks.task import Task
from regard.tasks.translation import Translation

ALL: tuple[Task[Any], ...] = (
    *(Translation(), Language(), Masked(), Denoising()),
    *(Classification(), Questions(), Vectors()),
)
TASKS: dict[str, Task[Any]] = {task.name: task for task in ALL}
