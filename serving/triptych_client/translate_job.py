"""A translation that the user asked for."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

from triptych.v1 import translation_pb2
from triptych_client.chunks import text_bytes
from triptych_client.codec import ServedFields, options_message, translation_from
from triptych_client.job import Job, Request, Response, Result, check_sequence
from triptych_client.options import DecodingOptions
from triptych_client.results import Translation


class LanguageFields(TypedDict):
    """The fields that the requests of all of TranslationService have in common."""

    source_language_code: str
    target_language_code: str
    model: str
    model_version: str


class RequestFields(LanguageFields):
    """Those that the requests of Translate and TranslateStream have in common."""

    contents: Sequence[str]
    options: translation_pb2.DecodingOptions | None


@dataclass(frozen=True, kw_only=True)
class LanguageJob(Job[Request, Response, Result]):
    """What one call asks of a translation model."""

    target_language: str | None = None
    source_language: str | None = None

    def language_fields(self) -> LanguageFields:
        """The members of a request that say which model is meant."""
        return LanguageFields(
            source_language_code=self.source_language or "",
            target_language_code=self.target_language or "",
            model=self.model or "",
            model_version=self.model_version or "",
        )


@dataclass(frozen=True, kw_only=True)
class TranslateJob(LanguageJob[translation_pb2.TranslateRequest, translation_pb2.TranslateResponse, Translation]):
    """What one call of `translate`, `translate_many` or `translate_stream` asks for."""

    texts: Sequence[str]
    options: DecodingOptions | None = None

    def __post_init__(self) -> None:
        check_sequence(self.texts, "translate", "text")
        # Checked before the texts are cut into requests, which could leave some with prefixes and some without.
        prefixes = len(self.options.target_prefix) if self.options else 0
        if prefixes not in (0, len(self.texts)):
            raise ValueError(f"target_prefix has {prefixes} prefixes for {len(self.texts)} texts, must be none or one for each")

    def sizes(self) -> list[int]:
        return [text_bytes(text) for text in self.texts]

    def request(self, part: slice) -> translation_pb2.TranslateRequest:
        return translation_pb2.TranslateRequest(**self._fields(part))

    def stream_request(self) -> translation_pb2.TranslateStreamRequest:
        return translation_pb2.TranslateStreamRequest(**self._fields(slice(None)))

    def read(self, response: translation_pb2.TranslateResponse, served: ServedFields) -> list[Translation]:
        return [translation_from(translation, served) for translation in response.translations]

    def _fields(self, part: slice) -> RequestFields:
        return RequestFields(
            contents=self.texts[part],
            options=options_message(self.options, part) if self.options else None,
            **self.language_fields(),
        )
