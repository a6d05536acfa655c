"""Calls of TranslationService for the APIs of other translation servers."""

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

import grpc
from langcodes import Language

from triptych.v1 import model_pb2, translation_pb2
from triptych_serving.gateway.call import HttpCall
from triptych_serving.rpc.direct_calls import RpcError
from triptych_text.languages import primary_language, standard_tag

SERVICE = "/triptych.v1.TranslationService"
CHUNK_BYTES = 64 << 10
AUTO = "auto"


@dataclass(frozen=True)
class TranslatedDocument:
    """A translated document."""

    content: bytes
    mime_type: str
    characters: int  # of the text that was translated, roughly; 0: unknown


async def translate(
    call: HttpCall,
    texts: Sequence[str],
    source: str,
    target: str,
    options: translation_pb2.DecodingOptions | None = None,
) -> list[translation_pb2.Translation]:
    """Translate texts; a source language of "auto" or "" is the model's only one.

    Raises:
        RpcError: as TranslationService/Translate.
    """
    request = translation_pb2.TranslateRequest(
        contents=texts, source_language_code=source_code(source), target_language_code=target, options=options
    )
    response = await call.unary(f"{SERVICE}/Translate", request, translation_pb2.TranslateResponse())
    return list(response.translations)


async def translate_document(call: HttpCall, content: bytes, config: translation_pb2.DocumentConfig) -> TranslatedDocument:
    """Translate a document.

    Raises:
        RpcError: as TranslationService/TranslateDocument.
    """
    config.total_bytes = len(content)
    translated, mime_type = bytearray(), ""
    stream = call.stream(f"{SERVICE}/TranslateDocument", _parts(content, config), translation_pb2.TranslateDocumentResponse)
    async with aclosing(stream) as events:
        async for event in events:
            if event.HasField("accepted"):
                mime_type = event.accepted.mime_type
            translated += event.chunk
    return TranslatedDocument(bytes(translated), mime_type, len(content))


async def translate_html(call: HttpCall, texts: Sequence[str], source: str, target: str) -> list[str]:
    """Translate pieces of HTML; tags stay.

    Raises:
        RpcError: as TranslationService/TranslateDocument.
    """
    found = []
    for text in texts:
        config = translation_pb2.DocumentConfig(
            format="html", source_language_code=source_code(source), target_language_code=target
        )
        work = translate_document(call, text.encode(), config)
        found.append((await call.while_connected(work)).content.decode())
    return found


async def language_pairs(call: HttpCall) -> dict[str, set[str]]:
    """Return the target languages for each source language that a loaded model translates.

    Raises:
        RpcError: as ModelService/ListModels.
    """
    response = await call.unary(
        "/triptych.v1.ModelService/ListModels", model_pb2.ListModelsRequest(), model_pb2.ListModelsResponse()
    )
    pairs: dict[str, set[str]] = {}
    for model in response.models:
        if model.state == model_pb2.MODEL_STATE_READY:
            targets = {standard_tag(code) or code for code in model.target_language_codes}
            for code in model.source_language_codes:
                source = standard_tag(code) or code
                pairs.setdefault(source, set()).update(targets - {source})
    return pairs


async def detect_language(call: HttpCall) -> str:
    """Return the only source language of all loaded models.

    Raises:
        RpcError: there are several: this server does not detect languages.
    """
    sources = sorted(await language_pairs(call))
    if len(sources) != 1:
        known = ", ".join(sources) or "none"
        message = f"languages are detected only where all models translate from the same one; there are: {known}"
        raise RpcError.of(grpc.StatusCode.UNIMPLEMENTED, message)
    return sources[0]


def source_code(code: str) -> str:
    """Return a source language code, "" for "auto"."""
    return "" if code.lower() == AUTO else code


def language_name(code: str) -> str:
    """Return the English name of a language, such as "German"; the code if it is unknown or the names are not installed."""
    try:
        return str(Language.get(code).display_name())
    except (ImportError, LookupError, ValueError):
        return primary_language(code)


async def _parts(
    content: bytes, config: translation_pb2.DocumentConfig
) -> AsyncIterator[translation_pb2.TranslateDocumentRequest]:
    yield translation_pb2.TranslateDocumentRequest(config=config)
    for start in range(0, len(content), CHUNK_BYTES):
        yield translation_pb2.TranslateDocumentRequest(chunk=content[start : start + CHUNK_BYTES])
