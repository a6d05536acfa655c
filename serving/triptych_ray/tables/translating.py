"""Sentences asked of a translator in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from triptych_documents.asking import Alignment, Answer, Ask, Refusal
from triptych_ray.tables.options import EngineChoice
from triptych_serving.assembling import Output
from triptych_serving.errors import InvalidInputError
from triptych_serving.options import DecodingOptions
from triptych_serving.row import Finish
from triptych_serving.translator import Translator

FIELDS = ("contents", "options.target_prefix")


class Translating:
    """Answers asks. Thread-safe.

    Args:
        translator: the model.
        choice: languages, and how to decode.
    """

    def __init__(self, translator: Translator, choice: EngineChoice) -> None:
        self._translator = translator
        self._languages = (choice.source_language, choice.target_language)
        self._decoding: Mapping[str, Any] = choice.decoding

    def __call__(self, asks: Sequence[Ask]) -> list[Answer | Refusal]:
        """In order.

        Raises:
            ServingError: the model failed, or cannot do what the options ask for.
        """
        found: dict[int, Answer | Refusal] = {}
        for aligned in (False, True):
            wanted = [index for index, ask in enumerate(asks) if ask.aligned == aligned]
            found |= zip(wanted, self._answer([asks[index] for index in wanted], aligned), strict=True)
        return [found[index] for index in range(len(asks))]

    def _answer(self, asks: Sequence[Ask], aligned: bool) -> list[Answer | Refusal]:
        """What the model does not take is found one by one, and the others are asked without it."""
        refused: dict[int, Refusal] = {}
        while left := [index for index in range(len(asks)) if index not in refused]:
            try:
                outputs = self._translate([asks[index] for index in left], aligned)
            except InvalidInputError as error:
                refused[left[_index(error)]] = Refusal(error.problem)
                continue
            found = {index: _answer(output) for index, output in zip(left, outputs, strict=True)}
            return [refused[index] if index in refused else found[index] for index in range(len(asks))]
        return [refused[index] for index in range(len(asks))]

    def _translate(self, asks: Sequence[Ask], aligned: bool) -> list[Output]:
        prefixes = tuple(ask.prefix for ask in asks) if any(ask.prefix for ask in asks) else ()
        options = DecodingOptions(
            **self._decoding, target_prefix=prefixes, return_alignment=aligned or None, split_sentences=False
        )
        return self._translator.translate([ask.text for ask in asks], options, *self._languages)


def _index(error: InvalidInputError) -> int:
    """Of the text that is to blame. Raises the error: it is no text's fault."""
    name, _, rest = error.field.partition("[")
    if name not in FIELDS or not rest:
        raise error
    return int(rest.partition("]")[0])


def _answer(output: Output) -> Answer:
    best = output.hypotheses[0]
    alignment = None
    if best.alignment is not None:
        alignment = Alignment(output.source_spans, best.spans, best.alignment.tolist())
    return Answer(best.text, alignment, best.finish is Finish.LENGTH)
