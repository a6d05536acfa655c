"""Calls of TranslationService for the APIs of other translation servers.

Where no model translates between two languages, texts and documents are translated into a third language first, as
LibreTranslate does.
"""

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

import grpc
from langcodes import Language

from triptych.v1 import translation_pb2
from triptych_documents.errors import DocumentError
from triptych_documents.format import ReadOptions, find_format
from triptych_serving.gateway.call import HttpCall
from triptych_serving.gateway.language_detection import Detected, detect
from triptych_serving.rpc.direct_calls import RpcError
from triptych_serving.services.documents.codec import HTML
from triptych_serving.services.documents.work import unpacked_bytes
from triptych_serving.services.documents.workers import SMALL_BYTES
from triptych_serving.text.languages import SOURCE, find_language
from triptych_text.languages import is_language, primary_language, standard_tag

SERVICE = "/triptych.v1.TranslationService"
CHUNK_BYTES = 64 << 10
AUTO = "auto"
CERTAIN = 0.8  # confidence; 1 of 500 English texts of user interfaces, such as "OK" or names, is German with it
PIVOT = "en"  # the third language, if several can be it
LINES = ("text", "markdown", "html", "srt", "vtt", "csv", "tsv")  # formats that can be read up to any line
ZIP = b"PK\x03\x04"  # documents of office programs begin with it
Options = translation_pb2.DecodingOptions | None
SEVERAL_MODELS = "model: several models match"  # begins the error of a request that names too little
INDEX = re.compile(r"(?<=^contents)\[(\d+)]")  # of the text that an error names


@dataclass(frozen=True)
class TranslatedDocument:
    """A translated document."""

    content: bytes
    mime_type: str
    characters: int  # of the document, roughly; 0: unknown, as it is compressed


async def translate(
    call: HttpCall,
    texts: Sequence[str],
    source: str,
    target: str,
    options: Options = None,
    html: bool = False,
    glossary: Sequence[translation_pb2.GlossaryTerm] = (),
) -> tuple[list[translation_pb2.Translation], list[Detected]]:
    """Translate texts, or pieces of HTML whose tags stay; return the translations and the source language of each.

    A text without letters and digits is its own translation, and so is one whose detected language is the target, as in
    LibreTranslate. The options do not apply to HTML, and to texts with a glossary.

    Raises:
        RpcError: as TranslationService/Translate, and `source_languages`.
    """
    sources = await source_languages(call, texts, source, target, html)
    has_words = [any(map(str.isalnum, text)) for text in texts]  # otherwise models would make up something
    codes = {place: one.code for place, one in enumerate(sources) if has_words[place] and not one.is_target}
    found = {place: translation_pb2.Translation(translated_text=text) for place, text in enumerate(texts) if place not in codes}
    kind: dict[str, Any] = {"mime_type": HTML} if html else {}
    last = {"glossary": glossary} if html or glossary else {"options": options}
    for code in dict.fromkeys(codes.values()):
        places = [place for place, one in codes.items() if one == code]
        try:
            translations = await _translate_from(call, [texts[place] for place in places], code, target, kind, last)
        except RpcError as error:
            raise error.with_message(_of_text(error.message, places)) from None
        found.update(zip(places, translations, strict=True))
    return [found[place] for place in sorted(found)], sources


async def _translate_from(
    call: HttpCall, texts: Sequence[str], source: str, target: str, kind: Mapping[str, Any], last: Mapping[str, Any]
) -> Sequence[translation_pb2.Translation]:
    """Translate texts of one language; `last` are fields of the request for translations into the target."""

    async def ask(contents: Sequence[str], near: str, far: str, **more: Any) -> Sequence[translation_pb2.Translation]:
        more |= {"source_language_code": near, "target_language_code": far, **kind}
        request = translation_pb2.TranslateRequest(contents=contents, **more)
        translations: Sequence[translation_pb2.Translation] = (await call.ask(request)).translations
        return translations

    try:
        return await ask(texts, source, target, **last)
    except RpcError as error:
        if last.get("glossary"):  # its terms are not those of a third language
            raise
        pivot = await _pivot(call, error, source, target)
    between = [one.translated_text for one in await ask(texts, source, pivot)]
    places = [place for place, text in enumerate(between) if text.strip()]  # the others are empty, which no text may be
    try:
        found = await ask([between[place] for place in places], pivot, target, **last) if places else ()
    except RpcError as error:
        message = f"{_of_text(error.message, places)} (this is about its translation into {pivot})"
        raise error.with_message(message if INDEX.search(error.message) else error.message) from None
    translations = dict(zip(places, found, strict=True))
    return [translations.get(place, translation_pb2.Translation()) for place in range(len(texts))]


async def _pivot(call: HttpCall, error: RpcError, source: str, target: str) -> str:
    """Return a third language through which models translate; raise the `error` of the direct translation if there is none.

    UNAVAILABLE is an error of a direct translation too: models that load, or failed to, may be the ones for it.
    """
    if error.code not in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.UNAVAILABLE) or not source or not target:
        raise error
    models = await call.ready_models()
    first = [(model, _find(source, model.source_language_codes)) for model in models]
    second = [(model, _find(target, model.target_language_codes)) for model in models]
    pairs = [(one, other) for one, near in first for other, far in second if near and far and _tag(near) != _tag(far)]
    if any(one is other for one, other in pairs):  # it is the direct translation that failed
        raise error
    found = sorted(
        {code for one, other in pairs for code in one.target_language_codes if _find(code, other.source_language_codes)}
    )
    if not found:
        raise error
    return next((code for code in found if primary_language(code) == PIVOT), found[0])


def _find(code: str, offered: Sequence[str]) -> str | None:
    """Return the offered code that the service takes for `code`."""
    return find_language(code, offered, SOURCE)


def _tag(code: str) -> str:
    return standard_tag(code) or code


def _of_text(message: str, places: Sequence[int]) -> str:
    """Put the place of a text among all in place of its place among those of one language."""
    return INDEX.sub(lambda match: f"[{places[int(match[1])]}]", message, count=1)


async def translate_document(call: HttpCall, content: bytes, config: translation_pb2.DocumentConfig) -> TranslatedDocument:
    """Translate a document. Raises RpcError: as TranslationService/TranslateDocument."""
    try:
        return await _translate_document(call, content, config)
    except RpcError as error:
        if config.model or config.glossary:  # whose terms are not those of a third language
            raise
        pivot = await _pivot(call, error, config.source_language_code, config.target_language_code)
    first, second = translation_pb2.DocumentConfig(), translation_pb2.DocumentConfig()
    first.CopyFrom(config)
    second.CopyFrom(config)
    first.target_language_code = second.source_language_code = pivot
    between = await _translate_document(call, content, first)
    return replace(await _translate_document(call, between.content, second), characters=between.characters)


async def document_language(call: HttpCall, content: bytes, config: translation_pb2.DocumentConfig) -> Detected:
    """Return the source language of a document, as `source_languages` for texts; "" if the document cannot be read here.

    Of a large one the beginning is read, or nothing if its format needs the whole: that would stop other requests.
    """
    text = await call.parts.threads.run_in_thread(_beginning, content, config.file_name)
    [found] = await source_languages(call, [text], "", config.target_language_code) if text else [Detected("", 0)]
    return found


def _beginning(content: bytes, name: str) -> str:
    try:
        kind = find_format(path=name)
        if unpacked_bytes(content) > SMALL_BYTES:
            content = content[:SMALL_BYTES].rpartition(b"\n")[0] if kind.name in LINES else b""
        units = kind.read(content, ReadOptions()).units
    except DocumentError:  # the service names the fault
        return ""
    return "\n".join(unit.text for unit in units)


async def _translate_document(call: HttpCall, content: bytes, config: translation_pb2.DocumentConfig) -> TranslatedDocument:
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
        message = error.message.removeprefix("config.")
        unnamed = message.startswith(SEVERAL_MODELS) and not (config.model or config.source_language_code)
        if unnamed and len(codes := await _candidates(call, config.target_language_code)) > 1:
            message = f"source_language_code: it is not detected in this document, name one of: {', '.join(codes)}"
        raise error.with_message(message) from None
    return TranslatedDocument(bytes(translated), mime_type, count_characters(content))


def count_characters(content: bytes) -> int:
    """Return roughly the number of characters of a document; 0 if it is compressed."""
    return 0 if content.startswith(ZIP) else len(content.decode(errors="replace"))


async def source_languages(
    call: HttpCall, texts: Sequence[str], source: str, target: str, html: bool = False
) -> list[Detected]:
    """Return the source language of each text: the given one, or for "auto" and "" the detected one.

    Raises:
        RpcError: as ModelService/ListModels and `detect`; not the latter if there is only one language to choose.
    """
    code = source_code(source)
    if not code:
        codes = await _candidates(call, target)
        try:
            if codes:
                return [_choose(ranked) for ranked in await detect(call, texts, codes, html, _own(target, codes))]
        except RpcError as error:
            if len(codes) > 1 or error.code is not grpc.StatusCode.UNIMPLEMENTED:
                raise
        code = codes[0] if codes else ""  # without a candidate the service names the reason
    return [Detected(code, 0)] * len(texts)


async def _candidates(call: HttpCall, target: str) -> list[str]:
    """Return the languages that can be translated into the target, also through a third one. Raises as `language_pairs`."""
    pairs = await language_pairs(call)
    targets = {one for found in pairs.values() for one in found if is_language(target) and _find(target, (one,))}
    return sorted(one for one, found in pairs.items() if found & targets)


def _own(target: str, codes: Sequence[str]) -> str:
    """Return the target's language, in which texts may be already; "" if it cannot be told from a source language."""
    own = primary_language(target)
    return "" if own in map(primary_language, codes) else own


def _choose(ranked: Sequence[Detected]) -> Detected:
    """Return the most probable language; the target's only if it is certain, as such texts are not translated."""
    return next(one for one in ranked if not one.is_target or one.confidence >= CERTAIN)


async def language_pairs(call: HttpCall) -> dict[str, set[str]]:
    """Return the target languages for each source language of the loaded models, also those through a third language.

    Raises:
        RpcError: as ModelService/ListModels.
    """
    direct: dict[str, set[str]] = {}
    for model in await call.ready_models():
        targets = {_tag(code) for code in model.target_language_codes}
        for source in map(_tag, model.source_language_codes):
            direct.setdefault(source, set()).update(targets - {source})
    further = {source: {far for near in targets for far in direct.get(near, ())} for source, targets in direct.items()}
    return {source: (targets | further[source]) - {source} for source, targets in direct.items()}


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


async def _parts(
    content: bytes, config: translation_pb2.DocumentConfig
) -> AsyncIterator[translation_pb2.TranslateDocumentRequest]:
    yield translation_pb2.TranslateDocumentRequest(config=config)
    for start in range(0, len(content), CHUNK_BYTES):
        yield translation_pb2.TranslateDocumentRequest(chunk=content[start : start + CHUNK_BYTES])
