"""A document that the user asked to have translated: what is sent for it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from triptych.v1 import translation_pb2
from triptych.v1.translation_pb2 import TranslateDocumentRequest
from triptych_client.call import Call
from triptych_client.codec import options_message
from triptych_client.options import DecodingOptions

Glossary: TypeAlias = Mapping[str, str] | Iterable[tuple[str, str]]

CHUNK_BYTES = 64 * 1024  # of a message
EVERYTHING = slice(None)


@dataclass(frozen=True, kw_only=True)
class DocumentJob:
    """What one call of `translate_document` asks for; the members are explained in `triptych_client.arguments`."""

    call: Call
    content: bytes
    max_message_bytes: int
    file_name: str = ""
    format: str = ""
    mime_type: str = ""
    target_language: str | None = None
    source_language: str | None = None
    model: str | None = None
    model_version: str | None = None
    options: DecodingOptions | None = None
    glossary: Glossary = ()
    keep: Sequence[str] = ()
    encoding: str = ""
    columns: Sequence[str | int] = ()
    header: bool | None = None
    keys: Sequence[str] = ()
    skip_keys: Sequence[str] = ()
    wrapped: bool | None = None
    retranslate: bool = False
    mark_fuzzy: bool = False

    def __post_init__(self) -> None:
        # A lone string would be read as a sequence of one-letter texts.
        for name in ("glossary", "keep", "columns", "keys", "skip_keys"):
            if isinstance(getattr(self, name), str):
                raise TypeError(f"{name} takes several, not one text")

    def config(self) -> TranslateDocumentRequest:
        """The first message."""
        config = translation_pb2.DocumentConfig(
            format=self.format,
            mime_type=self.mime_type,
            file_name=self.file_name,
            source_language_code=self.source_language or "",
            target_language_code=self.target_language or "",
            model=self.model or "",
            model_version=self.model_version or "",
            options=options_message(self.options, EVERYTHING) if self.options else None,
            read_options=self._read_options(),
            glossary=self._terms(),
            keep=self.keep,
            total_bytes=len(self.content),
        )
        return TranslateDocumentRequest(config=config)

    def chunks(self) -> Iterator[TranslateDocumentRequest]:
        """The messages behind it."""
        step = max(1, min(CHUNK_BYTES, self.max_message_bytes // 2))
        for start in range(0, len(self.content), step):
            yield TranslateDocumentRequest(chunk=self.content[start : start + step])

    def _read_options(self) -> translation_pb2.DocumentReadOptions:
        return translation_pb2.DocumentReadOptions(
            encoding=self.encoding,
            columns=map(str, self.columns),
            header=self.header,
            keys=self.keys,
            skip_keys=self.skip_keys,
            wrapped=self.wrapped,
            retranslate=self.retranslate,
            mark_fuzzy=self.mark_fuzzy,
        )

    def _terms(self) -> list[translation_pb2.GlossaryTerm]:
        pairs = self.glossary.items() if isinstance(self.glossary, Mapping) else self.glossary
        return [translation_pb2.GlossaryTerm(source=source, target=target) for source, target in pairs]
