"""The API of LibreTranslate (https://docs.libretranslate.com): text, HTML and files, with alternatives."""

import asyncio

from starlette.responses import Response

from triptych.v1 import translation_pb2
from triptych_serving.gateway.call import HttpCall, Json, invalid
from triptych_serving.gateway.route import Api, ApiRoute
from triptych_serving.gateway.stored_documents import StoredDocuments
from triptych_serving.gateway.translation import (
    AUTO,
    detect_language,
    language_name,
    language_pairs,
    source_code,
    translate,
    translate_document,
    translate_html,
)
from triptych_serving.rpc.direct_calls import RpcError

MOST_ALTERNATIVES = 15
UNKNOWN = 0  # confidence of a language that was not detected but assumed


class LibreTranslate:
    """The routes.

    Args:
        documents: keeps translated files until they are fetched.
    """

    def __init__(self, documents: StoredDocuments) -> None:
        self._documents = documents
        self.api = Api(
            "LibreTranslate",
            (
                ApiRoute("/translate", self.translate, summary="Translate text or HTML."),
                ApiRoute("/languages", self.languages, ("GET", "POST"), "List the languages."),
                ApiRoute("/detect", self.detect, summary="Detect the language of a text."),
                ApiRoute("/translate_file", self.translate_file, summary="Translate a document."),
                ApiRoute("/download_file/{id}", self.download_file, ("GET",), "Fetch a translated document."),
                ApiRoute("/frontend/settings", self.settings, ("GET",), "Settings for front ends."),
            ),
            statuses={401: 403},
        )

    async def translate(self, call: HttpCall) -> dict[str, object]:
        given = _with_key(call, await call.json())
        texts, several = given.take_texts("q")
        source, target = given.take("source", str), given.take("target", str)
        count, format = _count(given), given.take("format", str, "text")
        if format not in ("text", "html"):
            raise invalid(f"format: {format[:40]!r} is not text or html")
        if format == "html" and count:
            raise invalid("alternatives: not supported for format html; leave it out")
        if format == "html":
            found: list[tuple[str, list[str]]] = [(text, []) for text in await translate_html(call, texts, source, target)]
        else:
            options = translation_pb2.DecodingOptions(beam_size=max(4, count + 1), num_hypotheses=count + 1) if count else None
            translations = await translate(call, texts, source, target, options)
            found = [(one.translated_text, [other.text for other in one.hypotheses[1:]]) for one in translations]
        response: dict[str, object] = {"translatedText": [text for text, _ in found] if several else found[0][0]}
        if count:
            response["alternatives"] = [others for _, others in found] if several else found[0][1]
        if source == AUTO:
            detected = {"confidence": UNKNOWN, "language": await _assumed(call)}
            response["detectedLanguage"] = [detected] * len(found) if several else detected
        return response

    async def languages(self, call: HttpCall) -> list[dict[str, object]]:
        pairs = await language_pairs(call)
        codes = sorted(pairs.keys() | {target for targets in pairs.values() for target in targets})
        return [{"code": code, "name": language_name(code), "targets": sorted(pairs.get(code, ()))} for code in codes]

    async def detect(self, call: HttpCall) -> list[dict[str, object]]:
        given = _with_key(call, await call.json())
        given.take("q", str)
        return [{"confidence": UNKNOWN, "language": await detect_language(call)}]

    async def translate_file(self, call: HttpCall) -> dict[str, str]:
        fields, file = await call.form()
        given = _with_key(call, fields)
        if file is None:
            raise invalid("file: missing")
        config = translation_pb2.DocumentConfig(
            file_name=file.filename or "",
            source_language_code=source_code(given.take("source", str)),
            target_language_code=given.take("target", str),
        )
        document = self._documents.add(config.file_name, translate_document(call, await file.read(), config))
        try:
            await call.while_connected(asyncio.wait((document.work,)))
            document.response()  # or the error
        except BaseException:
            self._documents.remove(document.id)
            raise
        return {"translatedFileUrl": str(call.request.base_url.replace(path=f"/download_file/{document.id}"))}

    async def download_file(self, call: HttpCall) -> Response:
        return self._documents.get(call.request.path_params["id"]).response()

    async def settings(self, call: HttpCall) -> dict[str, object]:
        return {
            "apiKeys": True,
            "keyRequired": False,
            "suggestions": False,
            "filesTranslation": True,
            "charLimit": -1,
            "supportedFilesFormat": [".docx", ".html", ".md", ".odt", ".po", ".srt", ".txt", ".xliff"],
            "language": {"source": {"code": AUTO, "name": "Auto Detect"}, "target": {"code": "", "name": ""}},
        }


def _with_key(call: HttpCall, given: Json) -> Json:
    """Take the API key out of a request's fields."""
    if key := given.take("api_key", str, ""):
        call.use_key(key)
    return given


def _count(given: Json) -> int:
    """Return the number of alternatives, which forms send as text."""
    value = given.get("alternatives") or 0
    try:
        count = int(value)
    except (TypeError, ValueError):
        count = -1
    if not 0 <= count <= MOST_ALTERNATIVES:
        raise invalid(f"alternatives: {value!r:.40} is not an integer from 0 to {MOST_ALTERNATIVES}")
    return count


async def _assumed(call: HttpCall) -> str:
    """Return the language that "auto" stood for."""
    try:
        return await detect_language(call)
    except RpcError:  # several models; the request was unambiguous because of its target
        return ""
