"""A translation that the user asked for: from arguments to requests, from responses to results."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, TypedDict

from triptych.v1 import translation_pb2
from triptych_client.call import Call
from triptych_client.chunks import chunks
from triptych_client.codec import options_message, timing_from, translation_from
from triptych_client.errors import ServerError
from triptych_client.options import DecodingOptions
from triptych_client.results import Translations

# Below gRPC's own default limit of 4 MiB with room for an answer that is longer than the request.
BYTES_PER_REQUEST = 1024 * 1024

TranslateCall: TypeAlias = tuple[translation_pb2.TranslateRequest, Call]


class RequestFields(TypedDict):
    """The fields that the requests of Translate and TranslateStream have in common."""

    contents: Sequence[str]
    source_language_code: str
    target_language_code: str
    model: str
    model_version: str
    options: translation_pb2.DecodingOptions | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslateJob:
    """What one call of `translate`, `translate_many` or `translate_stream` asks for."""

    call: Call
    texts: Sequence[str]
    target_language: str | None = None
    source_language: str | None = None
    model: str | None = None
    model_version: str | None = None
    options: DecodingOptions | None = None

    def __post_init__(self) -> None:
        if isinstance(self.texts, str):
            raise TypeError("translate_many takes a sequence of texts; translate takes one text")
        # Checked before the texts are cut into requests, which could leave some with prefixes and some without.
        prefixes = len(self.options.target_prefix) if self.options else 0
        if prefixes not in (0, len(self.texts)):
            raise ValueError(f"target_prefix has {prefixes} prefixes for {len(self.texts)} texts, must be none or one for each")

    def requests(self, most_texts: int, most_bytes: int) -> list[TranslateCall]:
        """The requests to send, in the texts' order; none for no texts."""
        parts = chunks(self.texts, most_texts, min(most_bytes // 2, BYTES_PER_REQUEST))
        return [
            (translation_pb2.TranslateRequest(**self._fields(part)), replace(self.call, first_text=part.start))
            for part in parts
        ]

    def stream_request(self) -> translation_pb2.TranslateStreamRequest:
        return translation_pb2.TranslateStreamRequest(**self._fields(slice(None)))

    def result(self, requests: Sequence[TranslateCall], responses: Sequence[translation_pb2.TranslateResponse]) -> Translations:
        """All translations, in the texts' order. Raises ServerError: a response does not fit its request."""
        request_id = self.call.request_id
        for (request, _), response in zip(requests, responses, strict=True):
            if len(response.translations) != len(request.contents):
                message = f"the server sent {len(response.translations)} translations for {len(request.contents)} texts"
                raise ServerError(message, code="INTERNAL", request_id=request_id)
        return Translations(
            translations=tuple(
                translation_from(translation, response, request_id)
                for response in responses
                for translation in response.translations
            ),
            timings=tuple(timing_from(response.timing) for response in responses),
            request_id=request_id,
        )

    def _fields(self, part: slice) -> RequestFields:
        return RequestFields(
            contents=self.texts[part],
            source_language_code=self.source_language or "",
            target_language_code=self.target_language or "",
            model=self.model or "",
            model_version=self.model_version or "",
            options=options_message(self.options, part) if self.options else None,
        )
