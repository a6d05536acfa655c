"""The API of DeepL (https://developers.deepl.com/docs): text and documents, for its official clients with `server_url`."""

import asyncio
import re
import secrets
from dataclasses import dataclass
from itertools import count
from typing import Any

import grpc
from starlette.responses import Response

from triptych.v1 import translation_pb2
from triptych_serving.gateway.call import HttpCall, Json, invalid
from triptych_serving.gateway.deepl_glossaries import ROUTES as GLOSSARY_ROUTES
from triptych_serving.gateway.deepl_glossaries import terms_for
from triptych_serving.gateway.messages import shortened
from triptych_serving.gateway.route import Api, ApiRoute, renamed
from triptych_serving.gateway.stored_documents import StoredDocument
from triptych_serving.gateway.translation import language_names, language_pairs, translate
from triptych_serving.rpc.direct_calls import RpcError

REPORT_SECONDS = 0.05  # in which errors of a request, such as an unknown format, are reported at once
# Options that change the result and have no counterpart, with the values that are the same as none.
UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "formality": ("", "default", "prefer_more", "prefer_less"),
    **dict.fromkeys(("context", "style_id", "translation_memory_id", "output_format"), ("",)),
    **dict.fromkeys(("glossary_ids", "custom_instructions"), ("", [])),
}
ALWAYS_SPLIT: dict[str, tuple[Any, ...]] = {"split_sentences": ("", 1, "1", "nonewlines")}  # as documents are
TAGGED = ("html", "xml")
KEPT = 'translate="no"'  # the attribute of elements whose content stays
LINE = "data-line"  # the attribute of elements <br> that stand for line breaks
SEPARATOR = '<br data-tag="">'  # around tags that separate sentences
MOST_TAGS = 64  # in an option
TAG_OR_SPACE = re.compile(r"<title[^<>]*>[^<]*|<[^<>]*>|\s+", re.IGNORECASE)  # in titles there are no tags
SPLIT = {
    "0": translation_pb2.SPLIT_SENTENCES_OFF,
    "1": translation_pb2.SPLIT_SENTENCES_AUTO,
    "nonewlines": translation_pb2.SPLIT_SENTENCES_AUTO,
}


async def translate_texts(call: HttpCall) -> dict[str, object]:
    given = await call.json()
    given.refuse(UNSUPPORTED)
    texts, _ = given.take_texts("text")
    source, target = given.take("source_lang", str, ""), given.take("target_lang", str)
    options = translation_pb2.DecodingOptions(split_sentences=_split(given))
    markup, size = _markup(given), sum(map(len, texts))
    glossary = await terms_for(call, given, source, target)
    if glossary:
        given.refuse(ALWAYS_SPLIT)
    marked = await call.offload(size, lambda: [markup.mark(text) for text in texts]) if markup else texts
    found, sources = await translate(call, marked, source, target, options, html=markup is not None, glossary=glossary)
    translated = [one.translated_text for one in found]
    if markup:
        translated = await call.offload(size, lambda: list(map(markup.unmark, translated, texts)))
    return {
        "translations": [
            {"detected_source_language": code.code.upper(), "text": translation, "billed_characters": len(text)}
            for translation, text, code in zip(translated, texts, sources, strict=True)
        ]
    }


async def languages(call: HttpCall) -> list[dict[str, object]]:
    kind = call.request.query_params.get("type") or (await call.json()).get("type")  # clients send a body even with GET
    if kind not in (None, "source", "target"):
        raise invalid(f"type: {shortened(kind, 40)} is not source or target")
    pairs = await language_pairs(call)
    targets = {target for found in pairs.values() for target in found}
    codes = sorted(targets if kind == "target" else pairs)
    named = await language_names(call, codes)
    return [{"language": code.upper(), "name": name, "supports_formality": False} for code, name in named.items()]


async def usage(call: HttpCall) -> dict[str, int]:
    await call.ready_models()  # checks the key: clients ask for the usage to test theirs
    return {"character_count": 0, "character_limit": 1_000_000_000_000}


async def upload(call: HttpCall) -> dict[str, str]:
    given, file = await call.form()
    given.refuse(UNSUPPORTED)
    languages = given.take("source_lang", str, ""), given.take("target_lang", str)
    glossary = await terms_for(call, given, *languages)
    document = await call.parts.documents.upload(call, file, given.take("filename", str, ""), *languages, glossary=glossary)
    await asyncio.wait((document.work,), timeout=REPORT_SECONDS)
    if document.work.done() and document.work.exception() is not None:
        call.parts.documents.remove(document.id)
        document.work.result()
    return {"document_id": document.id, "document_key": document.key}


async def status(call: HttpCall) -> dict[str, object]:
    document = await _document(call)
    if not document.work.done():
        return {"document_id": document.id, "status": "translating", "seconds_remaining": 1}
    error = document.work.exception()
    if error is not None:
        message = renamed(error, API.names).message if isinstance(error, RpcError) else "internal error"
        return {"document_id": document.id, "status": "error", "error_message": message}
    return {"document_id": document.id, "status": "done", "billed_characters": document.work.result().characters}


async def result(call: HttpCall) -> Response:
    document = await _document(call)
    response = document.response()
    call.parts.documents.remove(document.id)  # as at DeepL, a document is fetched once
    return response


async def _document(call: HttpCall) -> StoredDocument:
    given = await call.json()
    document = await call.parts.documents.get(call.request.path_params["id"])
    if not secrets.compare_digest(given.take("document_key", str).encode(), document.key.encode()):
        raise RpcError.of(grpc.StatusCode.PERMISSION_DENIED, "document_key: not that of this document")
    return document


@dataclass(frozen=True)
class _Markup:
    """Keep tags apart from text. What HTML has no other way to say is marked in texts before their translation."""

    ignored: str  # pattern of the beginnings of tags whose content stays
    splitting: str  # of tags that separate sentences
    keeps_lines: bool  # line breaks separate sentences; otherwise they are white space as any other

    def mark(self, text: str) -> str:
        numbers = count()

        def mark_line(found: re.Match[str]) -> str:
            return f'<br {LINE}="{next(numbers)}">' if _breaks_line(found[0]) else found[0]

        lines = TAG_OR_SPACE.sub(mark_line, text) if self.keeps_lines and "\n" in text else text
        tags = re.sub(rf"{self.splitting}(?=[\s/>])[^<>]*>", rf"{SEPARATOR}\g<0>{SEPARATOR}", lines)
        return re.sub(rf"{self.ignored}(?=[\s/>])", rf"\g<0> {KEPT}", tags)

    def unmark(self, translation: str, text: str) -> str:
        """Return the translation of a marked text without the marks; `text` is the source without them."""
        translation = re.sub(f"({self.ignored}) {KEPT}", r"\1", translation).replace(SEPARATOR, "")
        breaks = dict(enumerate(filter(_breaks_line, TAG_OR_SPACE.findall(text)))) if self.keeps_lines else {}
        return re.sub(f'<br {LINE}="([0-9]{{1,9}})">', lambda found: breaks.get(int(found[1]), found[0]), translation)


def _breaks_line(tag_or_space: str) -> bool:
    return "\n" in tag_or_space and not tag_or_space.startswith("<")


def _markup(given: Json) -> _Markup | None:
    """Return how tags are handled; None if they are text. Raises RpcError: an option is not supported."""
    handling = given.get("tag_handling") or None
    if handling not in (None, *TAGGED):
        raise invalid(f"tag_handling: {shortened(handling, 40)} is not supported; {' and '.join(TAGGED)} are")
    names = {option: _tags(given, option) for option in ("ignore_tags", "splitting_tags")}
    if not handling:
        for option in filter(names.get, names):
            raise invalid(f"{option}: needs tag_handling, {' or '.join(TAGGED)}")
        return None
    given.refuse(ALWAYS_SPLIT)
    ignored, splitting = (f"(?:{'|'.join(map(re.escape, one))})" if one else "(?!)" for one in names.values())  # (?!): none
    default = "nonewlines" if handling == "html" else "1"
    return _Markup(f"<{ignored}", f"</?{splitting}", str(given.get("split_sentences") or default) == "1")


def _tags(given: Json, option: str) -> list[str]:
    """Return the names of tags in an option: a list, or separated by commas as in forms."""
    texts = given.take_texts(option)[0] if given.get(option) else []
    names = [one.strip() for text in texts for one in text.split(",") if one.strip()]
    if len(names) > MOST_TAGS:
        raise invalid(f"{option}: {len(names):,} tags are too many, at most {MOST_TAGS} are allowed")
    return names


def _split(given: Json) -> translation_pb2.SplitSentences.ValueType:
    value = given.get("split_sentences")
    value = "1" if value in (None, "") else str(value)
    if value not in SPLIT:
        raise invalid(f"split_sentences: {value[:40]!r} is not one of {', '.join(SPLIT)}")
    return SPLIT[value]


API = Api(
    "DeepL",
    (
        ApiRoute("/v2/translate", translate_texts, summary="Translate texts."),
        ApiRoute("/v2/languages", languages, ("GET", "POST"), "List source or target languages."),
        ApiRoute("/v2/usage", usage, ("GET", "POST"), "Report usage, which is not limited."),
        *GLOSSARY_ROUTES,
        ApiRoute("/v2/document", upload, summary="Translate a document."),
        ApiRoute("/v2/document/{id}", status, summary="Ask whether a document is translated."),
        ApiRoute("/v2/document/{id}/result", result, ("GET", "POST"), "Fetch a translated document."),
    ),
    error=lambda error, _: {"message": error.message},
    statuses={401: 403},
    names={
        "contents": "text",
        "source_language_code": "source_lang",
        "target_language_code": "target_lang",
        "file_name": "file",
        "glossary": "glossary_id",
    },
)
