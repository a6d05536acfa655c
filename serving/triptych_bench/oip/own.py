"""Triptych's models behind the protocol: the tensors of each task, which metadata show for a model's own task alone."""

from collections.abc import Mapping
from dataclasses import dataclass

from triptych_bench.oip.model import ModelFacts
from triptych_bench.target import TargetError, Wanted
from triptych_bench.tasks import TASKS

RENAMED = {"source_language": "source_language_code", "target_language": "target_language_code"}


@dataclass(frozen=True)
class Tensors:
    """Of a task."""

    inputs: tuple[str, ...]
    answer: str = ""  # the output with what came back
    outputs: tuple[str, ...] = ()  # to ask for; none: what the server gives
    streamed: tuple[str, ...] = ()  # of streams


OWN: Mapping[str, Tensors] = {
    "translation": Tensors(
        ("text",),
        "translated_text",
        ("translated_text", "token_count"),
        ("piece", "piece_index", "translated_text", "token_count"),
    ),
    "fill-mask": Tensors(("text",), "token_str"),
    "embedding": Tensors(("text",), "embedding"),
    "text-classification": Tensors(("text", "text_pair"), "label"),
    "token-classification": Tensors(("text",), "entities"),
    "question-answering": Tensors(("question", "context"), "answer"),
    "image-classification": Tensors(("image",), "label"),
}
TOKEN_COUNT, PIECE = "token_count", "piece"


def own_tensors(facts: ModelFacts, wanted: Wanted) -> Tensors | None:
    """None: the model is not Triptych's, or is asked for tensors.

    Raises:
        TargetError: it is, and cannot do the task.
    """
    capability = TASKS[wanted.task].capability
    tasks = facts.parameters.get("tasks")
    if not capability or tasks is None:
        return None
    if capability not in tasks.split(",") or wanted.task == "score":
        raise TargetError(
            f"the model {facts.name} does {tasks}; over the Open Inference Protocol it cannot be asked to {wanted.task}"
        )
    return OWN[capability]


def parameters(facts: ModelFacts, wanted: Wanted) -> dict[str, object]:
    """Of a request: the task, where it is not the model's own, and the options by the names that the protocol has for them."""
    values = {RENAMED.get(name, name): value for name, value in wanted.options.items() if value is not None and value != ""}
    capability = TASKS[wanted.task].capability
    if capability and facts.parameters.get("task", capability) != capability:
        values["task"] = capability
    return values
