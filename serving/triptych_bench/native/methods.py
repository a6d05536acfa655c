"""The tasks of the client as the load generator uses them: serialized requests, and what it reads of responses."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from triptych_bench.target import Sample, Wanted
from triptych_client import tasks
from triptych_client.options import DecodingOptions

LANGUAGES = ("source_language", "target_language")


def best_tokens(translation: Any) -> int:
    """Count the tokens of the first hypothesis, which is the one that is streamed."""
    return sum(each.token_count for each in translation.hypotheses[:1])


@dataclass(frozen=True)
class Method:
    """A task of the client."""

    task: tasks.Task[Any]
    read: Callable[[Any], str]
    """Converts the message of one result to text, as references are written."""
    tokens: Callable[[Any], int] | None = None
    """Counts the generated tokens of one result."""

    def request(self, samples: Sequence[Sample], wanted: Wanted) -> bytes:
        """Serialize one request. Raises TypeError and ValueError if the samples or options do not fit the task."""
        return _serialized(self.task, samples, wanted)

    def outputs(self, message: Any) -> list[str]:
        """Return the output for each input of a response."""
        return [self.read(result) for result in getattr(message, self.task.results)]

    def count_tokens(self, message: Any) -> int:
        """Count the generated tokens of a response."""
        return sum(map(self.tokens, getattr(message, self.task.results))) if self.tokens else 0


def stream_request(samples: Sequence[Sample], wanted: Wanted) -> bytes:
    """Serialize one request for TranslateStream. Raises as `Method.request`."""
    return _serialized(tasks.TRANSLATE_STREAM, samples, wanted)


def _serialized(task: tasks.Task[Any], samples: Sequence[Sample], wanted: Wanted) -> bytes:
    arguments = {"model": wanted.model or None, "model_version": wanted.version or None, **wanted.options}
    if "source_language" in task.arguments.__optional_keys__:
        arguments |= {name: arguments.get(name) or None for name in LANGUAGES}
    if "options" in task.arguments.__optional_keys__:
        decoding = {name: arguments.pop(name) for name in wanted.options if name not in LANGUAGES}
        if "target_prefix" in decoding:
            prefix = decoding.pop("target_prefix")
            decoding["target_prefix"] = (prefix,) * len(samples) if prefix else ()
        arguments["options"] = DecodingOptions(**decoding)
    request: bytes = task.request_with([sample.data for sample in samples], arguments).SerializeToString()
    return request


def _label(result: Any) -> str:
    return result.labels[0].label if result.labels else ""


METHODS: Mapping[str, Method] = {
    "translate": Method(tasks.TRANSLATE, lambda result: result.translated_text, best_tokens),
    "score": Method(tasks.SCORE_TRANSLATIONS, lambda result: f"{result.log_probability:.4f}"),
    "fill": Method(tasks.FILL_MASK, lambda result: result.masks[0].candidates[0].token_str if result.masks else ""),
    "embed": Method(tasks.EMBED, lambda result: str(len(result.values))),
    "classify-text": Method(tasks.CLASSIFY_TEXT, _label),
    "classify-tokens": Method(
        tasks.CLASSIFY_TOKENS, lambda result: " ".join(f"{entity.label}:{entity.text}" for entity in result.entities)
    ),
    "answer": Method(tasks.ANSWER, lambda result: result.answers[0].text if result.answers else ""),
    "classify": Method(tasks.CLASSIFY_IMAGE, _label),
}
