"""Translations that the user wants to be scored."""

from collections.abc import Sequence
from dataclasses import dataclass

from triptych.v1 import translation_pb2
from triptych_client.chunks import text_bytes
from triptych_client.codec import ServedFields, translation_score_from
from triptych_client.results import TranslationScore
from triptych_client.translate_job import LanguageJob


@dataclass(frozen=True, kw_only=True)
class ScoreJob(
    LanguageJob[translation_pb2.ScoreTranslationsRequest, translation_pb2.ScoreTranslationsResponse, TranslationScore]
):
    """What one call of `score_translations` asks for."""

    pairs: Sequence[tuple[str, str]]

    def __post_init__(self) -> None:
        if any(isinstance(pair, str) for pair in self.pairs):
            raise TypeError("score_translations takes a sequence of (source, translation) pairs")

    def sizes(self) -> list[int]:
        return [text_bytes(source) + text_bytes(target) for source, target in self.pairs]

    def request(self, part: slice) -> translation_pb2.ScoreTranslationsRequest:
        return translation_pb2.ScoreTranslationsRequest(
            pairs=[translation_pb2.TranslationPair(source=source, target=target) for source, target in self.pairs[part]],
            **self.language_fields(),
        )

    def read(self, response: translation_pb2.ScoreTranslationsResponse, served: ServedFields) -> list[TranslationScore]:
        return [translation_score_from(score, served) for score in response.scores]
