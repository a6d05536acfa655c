"""The table of text tasks. A new task is a module like `embedding.py` and one entry here."""

from collections.abc import Mapping
from typing import Any

from triptych_serving.models.text.embedding import EMBEDDING_TASK
from triptych_serving.models.text.fill_mask import FILL_MASK_TASK
from triptych_serving.models.text.neighbors import NEIGHBORS_TASK
from triptych_serving.models.text.question_answering import QUESTION_ANSWERING_TASK
from triptych_serving.models.text.rerank import RERANK_TASK
from triptych_serving.models.text.task import TextInput, TextTask
from triptych_serving.models.text.text_classification import TEXT_CLASSIFICATION_TASK
from triptych_serving.models.text.token_classification import TOKEN_CLASSIFICATION_TASK

__all__ = [
    "EMBEDDING_TASK",
    "FILL_MASK_TASK",
    "NEIGHBORS_TASK",
    "QUESTION_ANSWERING_TASK",
    "RERANK_TASK",
    "TEXT_CLASSIFICATION_TASK",
    "TEXT_TASKS",
    "TOKEN_CLASSIFICATION_TASK",
    "TextInput",
    "TextTask",
]

TEXT_TASKS: Mapping[str, TextTask[Any]] = {
    task.name: task
    for task in (
        FILL_MASK_TASK,
        EMBEDDING_TASK,
        TEXT_CLASSIFICATION_TASK,
        TOKEN_CLASSIFICATION_TASK,
        QUESTION_ANSWERING_TASK,
        RERANK_TASK,
        NEIGHBORS_TASK,
    )
}
