"""Calls of TranslationService for the APIs of other translation servers."""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from langcodes import Language

from triptych.v1 import translation_pb2
from triptych_serving.gateway.call import HttpCall
from triptych_serving.gateway.language_detection import Detected, detect
from triptych_serving.rpc.direct_calls import RpcError
from triptych_text.languages import primary_language, standard_tag

SERVICE = "/triptych.v1.TranslationService"
CHUNK_BYTES = 64 << 10
AUTO = "auto"
ZIP = b"PK\x03\x04"  # documents of office programs begin with it
WAITING_PIECES = 4  # of HTML of one request that run or wait for a place: those of other requests get their turn
Options = translation_pb2.DecodingOptions | None
INDEX = re.compile(r"(?<=^contents)\[(\d+)]")  # of the text that an error names


@dataclass(frozen=True)
class TranslatedDocument:
    """A translated document."""

    content: bytes
    mime_type: str
    characters: int  # of the document, roughly; 0: unknown, as it is compressed


async def translate(
    call: HttpCall, texts: Sequence[str], source: str, target: str, options: Options = None, html: bool = False
) -> tuple[list[translation_pb2.Translation], list[Detected]]:
    """Translate texts, or pieces of HTML whose tags stay; return the translations and the source language of each.

    Raises:
        RpcError: as TranslationService/Translate, TranslateDocument for HTML, and `source_languages`.
    """
    sources = await source_languages(call, texts, source, target, html)
    if html:
        return await call.while_connected(_translate_html(call, texts, [one.code for one in sources], target)), sources
    found: dict[int, translation_pb2.Translation] = {}
    for code in dict.fromkeys(one.code for one in sources):
        places = [place for place, one in enumerate(sources) if one.code == code]
        request = translation_pb2.TranslateRequest(
            contents=[texts[place] for place in places], source_language_code=code, target_language_code=target, options=options
        )
        try:
            found.update(zip(places, (await call.ask(request)).translations, strict=True))
        except RpcError as error:
            raise error.with_message(_of_text(error.message, places)) from None
    return [found[place] for place in sorted(found)], sources


def _of_text(message: str, places: Sequence[int]) -> str:
    """Put the place of a text among all in place of its place among those of one language."""
    return INDEX.sub(lambda match: f"[{places[int(match[1])]}]", message, count=1)


async def translate_document(call: HttpCall, content: bytes, config: translation_pb2.DocumentConfig) -> TranslatedDocument:
    """Translate a document. Raises RpcError: as TranslationService/TranslateDocument."""
    config.total_bytes = len(content)
    translated, mime_type = bytearray(), ""
    stream = call.stream(f"{SERVICE}/TranslateDocument", _parts(content, config), translation_pb2.TranslateDocumentResponse)
    try:
        async with aclosing(stream) as events:
            async for event in events:
                if event.HasField("accepted"):
                    mime_type = event.accepted.mime_type
                translated += event.chunk
    except RpcError as error:  # its fields are those of the request here
        raise error.with_message(error.message.removeprefix("config.")) from None
    characters = 0 if content.startswith(ZIP) else len(content.decode(errors="replace"))
    return TranslatedDocument(bytes(translated), mime_type, characters)


async def source_languages(
    call: HttpCall, texts: Sequence[str], source: str, target: str, html: bool = False
) -> list[Detected]:
    """Return the source language of each text: the given one, for "auto" and "" the models' only one or the detected one.

    Raises:
        RpcError: as ModelService/ListModels and `detect`.
    """
    code = source_code(source)
    if not code:
        pairs = await language_pairs(call)
        wanted = primary_language(target)
        targets = {one for found in pairs.values() for one in found if primary_language(one) == wanted}
        candidates = sorted(one for one, found in pairs.items() if found & targets)
        if len(candidates) > 1:
            return [ranked[0] for ranked in await detect(call, texts, candidates, html)]
        code = candidates[0] if candidates else ""  # without a candidate the service names the reason
    return [Detected(code, 0)] * len(texts)


async def language_pairs(call: HttpCall) -> dict[str, set[str]]:
    """Return the target languages for each source language that a loaded model translates.

    Raises:
        RpcError: as ModelService/ListModels.
    """
    pairs: dict[str, set[str]] = {}
    for model in await call.ready_models():
        targets = {standard_tag(code) or code for code in model.target_language_codes}
        for code in model.source_language_codes:
            source = standard_tag(code) or code
            pairs.setdefault(source, set()).update(targets - {source})
    return pairs


def source_code(code: str) -> str:
    """Return a source language code, "" for "auto"."""
    return "" if code.lower() == AUTO else code


async def language_names(call: HttpCall, codes: Sequence[str]) -> dict[str, str]:
    """Map languages to English names, such as "German"; the code where it is unknown or the names are not installed."""
    # The first name takes seconds.
    return await call.parts.threads.run_in_thread(lambda: {code: _name(code) for code in codes})


def _name(code: str) -> str:
    try:
        return str(Language.get(code).display_name())
    except (ImportError, LookupError, ValueError):
        return primary_language(code)


async def _translate_html(
    call: HttpCall, texts: Sequence[str], sources: Sequence[str], target: str
) -> list[translation_pb2.Translation]:
    """Translate pieces of HTML as documents, several at a time."""
    turns = asyncio.Semaphore(WAITING_PIECES)

    async def translate_piece(text: str, source: str) -> translation_pb2.Translation:
        config = translation_pb2.DocumentConfig(format="html", source_language_code=source, target_language_code=target)
        async with turns, call.parts.html_places:
            document = await translate_document(call, text.encode(), config)
        return translation_pb2.Translation(translated_text=document.content.decode())

    pieces = [asyncio.ensure_future(translate_piece(*one)) for one in zip(texts, sources, strict=True)]
    try:
        return await asyncio.gather(*pieces)
    finally:  # after an error, or when the caller is gone
        for piece in pieces:
            piece.cancel()


async def _parts(
    content: bytes, config: translation_pb2.DocumentConfig
) -> AsyncIterator[translation_pb2.TranslateDocumentRequest]:
    yield translation_pb2.TranslateDocumentRequest(config=config)
    for start in range(0, len(content), CHUNK_BYTES):
        yield translation_pb2.TranslateDocumentRequest(chunk=content[start : start + CHUNK_BYTES])
