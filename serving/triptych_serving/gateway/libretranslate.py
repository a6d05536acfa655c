"""The API of LibreTranslate (https://docs.libretranslate.com): text, HTML and files, with alternatives."""

import asyncio
from collections.abc import Mapping
from typing import Any

import grpc
from starlette.responses import Response

from triptych.v1 import translation_pb2
from triptych_documents.format import FORMATS
from triptych_serving.gateway.call import HttpCall, Json, invalid
from triptych_serving.gateway.language_detection import Detected, detect
from triptych_serving.gateway.messages import shortened
from triptych_serving.gateway.route import Api, ApiRoute
from triptych_serving.gateway.translation import AUTO, language_names, language_pairs, source_code, translate
from triptych_serving.rpc.direct_calls import RpcError
from triptych_text.languages import ARGOS_CODES

MOST_ALTERNATIVES = 15
FRONTEND_MILLISECONDS = 500  # for which a page waits for more typing, as LibreTranslate's own does
LEAST_CONFIDENCE = 0.01  # of the languages that /detect returns


async def translate_texts(call: HttpCall) -> dict[str, object]:
    given = _with_key(call, await call.json())
    texts, several = given.take_texts("q")
    source, target = _language(given, "source"), _language(given, "target")
    count, format = _count(given), given.take("format", str, "") or "text"
    if format not in ("text", "html"):
        raise invalid(f"format: {format[:40]!r} is not text or html")
    # Without effect on HTML, which has no alternatives, as in LibreTranslate.
    options = translation_pb2.DecodingOptions(beam_size=max(4, count + 1), num_hypotheses=count + 1) if count else None
    found, sources = await translate(call, texts, source, target, options, html=format == "html")
    response: dict[str, list[Any]] = {"translatedText": [one.translated_text for one in found]}
    if count:
        response["alternatives"] = [[other.text for other in one.hypotheses[1:]] for one in found]
    if source.lower() == AUTO:
        response["detectedLanguage"] = [_as_json(one) for one in sources]
    return {name: values if several else values[0] for name, values in response.items()}


async def languages(call: HttpCall) -> list[dict[str, object]]:
    await call.json()  # clients send a body even with GET
    call.needs_key = False  # most of them, such as Mastodon and Weblate, send none here, as LibreTranslate asks for none
    pairs = await language_pairs(call)
    named = await language_names(call, _codes(pairs))
    return [{"code": code, "name": name, "targets": sorted(pairs.get(code, ()))} for code, name in named.items()]


async def detect_language(call: HttpCall) -> list[dict[str, object]]:
    given = _with_key(call, await call.json())
    text, pairs = given.take("q", str), await language_pairs(call)
    if not pairs:
        raise RpcError.of(grpc.StatusCode.NOT_FOUND, "no translation model is loaded: there are no languages to choose from")
    [ranked] = await detect(call, [text], _codes(pairs))
    return [_as_json(one) for one in ranked if one.confidence >= LEAST_CONFIDENCE]


async def translate_file(call: HttpCall) -> dict[str, str]:
    fields, file = await call.form()
    given = _with_key(call, fields)
    languages = source_code(_language(given, "source")), _language(given, "target")
    model = given.take("model", str, "")  # not in LibreTranslate; the playground names it
    document = await call.parts.documents.upload(call, file, "", *languages, model)
    try:
        await call.while_connected(asyncio.wait((document.work,)))
        document.response()  # or the error
    except BaseException:
        call.parts.documents.remove(document.id)
        raise
    base = call.request.base_url
    scheme = "https" if call.request.headers.get("x-forwarded-proto") == "https" else base.scheme  # a proxy has ended TLS
    return {"translatedFileUrl": str(base.replace(scheme=scheme, path=f"/download_file/{document.id}"))}


async def download_file(call: HttpCall) -> Response:
    return (await call.parts.documents.get(call.request.path_params["id"])).response()


async def settings(call: HttpCall) -> dict[str, object]:
    return {
        "apiKeys": call.parts.needs_key,
        "keyRequired": call.parts.needs_key,
        "suggestions": False,
        "filesTranslation": True,
        "charLimit": -1,
        "frontendTimeout": FRONTEND_MILLISECONDS,
        "supportedFilesFormat": [suffix for one in FORMATS for suffix in one.suffixes],
        "language": {"source": {"code": AUTO, "name": "Auto Detect"}, "target": {"code": "", "name": ""}},
    }


def _with_key(call: HttpCall, given: Json) -> Json:
    """Return a request's fields, of which some may be parameters of the URL; take the API key out of them."""
    found = Json({**call.request.query_params, **given})
    call.key = found.take("api_key", str, "")
    return found


def _language(given: Json, name: str) -> str:
    code: str = given.take(name, str)
    return ARGOS_CODES.get(code.lower(), code)


def _count(given: Json) -> int:
    """Return the number of alternatives, which forms send as text."""
    value = given.get("alternatives") or 0
    try:
        count = int(str(value))
    except (TypeError, ValueError, OverflowError):
        count = -1
    if not 0 <= count <= MOST_ALTERNATIVES:
        raise invalid(f"alternatives: {shortened(value, 40)} is not an integer from 0 to {MOST_ALTERNATIVES}")
    return count


def _as_json(detected: Detected) -> dict[str, object]:
    return {"confidence": round(100 * detected.confidence, 1), "language": detected.code}


def _codes(pairs: Mapping[str, set[str]]) -> list[str]:
    return sorted({*pairs, *(target for targets in pairs.values() for target in targets)})


API = Api(
    "LibreTranslate",
    (
        ApiRoute("/translate", translate_texts, summary="Translate text or HTML."),
        ApiRoute("/languages", languages, ("GET", "POST"), "List the languages."),
        ApiRoute("/detect", detect_language, summary="Detect the language of a text."),
        ApiRoute("/translate_file", translate_file, summary="Translate a document."),
        ApiRoute("/download_file/{id}", download_file, ("GET",), "Fetch a translated document."),
        ApiRoute("/frontend/settings", settings, ("GET",), "Settings for front ends."),
    ),
    statuses={401: 403},
    names={"contents": "q", "source_language_code": "source", "target_language_code": "target", "file_name": "file"},
)
