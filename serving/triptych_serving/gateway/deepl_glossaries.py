"""Glossaries of the DeepL API: those of one pair of languages (v2), and of several (v3)."""

import csv
import re
from collections.abc import Callable, Mapping, Sequence
from io import StringIO
from itertools import product
from typing import Any, TypeVar

import grpc
from starlette.responses import Response

from triptych.v1 import translation_pb2
from triptych_documents.rules import Term
from triptych_serving.gateway.call import HttpCall, Json, as_object, invalid
from triptych_serving.gateway.glossaries import CODE, MOST_FILES, Dictionary, GlossaryFolder
from triptych_serving.gateway.messages import shortened
from triptych_serving.gateway.route import ApiRoute
from triptych_serving.rpc.direct_calls import RpcError
from triptych_serving.rpc.limits import DOCUMENT_ELEMENTS
from triptych_serving.services.documents.codec import MAX_TERM
from triptych_text.languages import is_language, primary_language

NO_FOLDER = "there are no glossaries here: start the server with --glossaries FOLDER"
CSV = "csv"
FORMATS = ("tsv", CSV)
MOST_CHARACTERS = 1_000  # of a name
TSV = "text/tab-separated-values; charset=utf-8"

UNSTORED = re.compile(r"[\0\t\n\v\f\r\x1c-\x1e\x85\u2028\u2029]")  # zero bytes, tabs and line breaks

Result = TypeVar("Result")


async def terms_for(call: HttpCall, given: Json, source: str, target: str) -> list[translation_pb2.GlossaryTerm]:
    """Return the terms of the glossary that a request names; empty if it names none. Raises RpcError: it cannot be used."""
    if not (id := given.take("glossary_id", str, "")):
        return []
    if not source:
        raise invalid("source_lang: missing, it is needed beside glossary_id")

    def read(folder: GlossaryFolder) -> list[translation_pb2.GlossaryTerm]:
        terms = folder.terms(id, source, target)
        return [translation_pb2.GlossaryTerm(source=term.source, target=term.target) for term in terms]

    return await _with(call, read)


async def pairs(call: HttpCall) -> dict[str, list[Any]]:
    """List the languages of glossaries that clients may write: those that are translated, if there is a folder."""
    models = await call.ready_models()  # which also checks the key
    found: set[tuple[str, str]] = set()
    for model in models if call.parts.glossaries is not None else ():
        sources, targets = (
            map(primary_language, model.source_language_codes),
            map(primary_language, model.target_language_codes),
        )
        found.update(pair for pair in product(sources, targets) if pair[0] != pair[1])
    return {"supported_languages": [{"source_lang": source, "target_lang": target} for source, target in sorted(found)]}


async def listed(call: HttpCall) -> dict[str, list[Any]]:
    """List the glossaries of one pair of languages."""
    found = await _all(call)
    return {"glossaries": [_single(*dictionaries) for dictionaries in found.values() if len(dictionaries) == 1]}


async def listed_several(call: HttpCall) -> dict[str, list[Any]]:
    return {"glossaries": [_several(dictionaries) for dictionaries in (await _all(call)).values()]}


async def one(call: HttpCall) -> Any:
    """Return, or delete, a glossary of one pair of languages."""
    return await _one(call, lambda found: _single(*_only(found)))


async def one_of_several(call: HttpCall) -> Any:
    return await _one(call, _several)


async def entries(call: HttpCall) -> Response:
    found = await _of_glossary(call, lambda found: _only(found)[0].entries)
    return Response(found, media_type=TSV)


async def entries_of_several(call: HttpCall) -> dict[str, Any]:
    given = call.request.query_params
    wanted = [given.get(name, "").lower() for name in ("source_lang", "target_lang")]

    def read(found: Sequence[Dictionary]) -> list[dict[str, str]]:
        alike = (one for one in found if all(map(_matches, (one.source, one.target), wanted)))
        return [{**_languages(one), "entries": one.entries, "entries_format": "tsv"} for one in alike]

    if not (dictionaries := await _of_glossary(call, read)):
        raise RpcError.of(grpc.StatusCode.NOT_FOUND, "the glossary has no such pair of languages")
    return {"dictionaries": dictionaries}


async def create(call: HttpCall) -> dict[str, Any]:
    given = await call.json()
    name, dictionary = _name(given), await _dictionary(call, given)
    return _single(*await _with(call, lambda folder: folder.add(name, dict([dictionary]))))


async def create_several(call: HttpCall) -> dict[str, Any]:
    given = await call.json()
    name, dictionaries = _name(given), {}
    listed = given.take("dictionaries", list)
    if not 0 < len(listed) <= MOST_FILES:
        raise invalid(f"dictionaries: {len(listed):,}, there must be 1 to {MOST_FILES:,}")
    for index, each in enumerate(listed):
        pair, terms = await _dictionary(call, as_object(each, f"dictionaries[{index}]"))
        if pair in dictionaries:
            raise invalid(f"dictionaries[{index}]: there is another one for these languages")
        dictionaries[pair] = terms
    return _several(await _with(call, lambda folder: folder.add(name, dictionaries)))


async def _with(call: HttpCall, work: Callable[[GlossaryFolder], Result]) -> Result:
    """Work with the glossaries, in a thread. Raises RpcError: there are none, the key is wrong, or the work fails."""
    await call.ready_models()  # checks the key
    if (folder := call.parts.glossaries) is None:
        raise RpcError.of(grpc.StatusCode.INVALID_ARGUMENT, NO_FOLDER)
    return await call.parts.threads.run_in_thread(work, folder)


async def _all(call: HttpCall) -> Mapping[str, Sequence[Dictionary]]:
    if call.parts.glossaries is None:
        await call.ready_models()
        return {}
    return await _with(call, GlossaryFolder.all)


async def _of_glossary(call: HttpCall, read: Callable[[Sequence[Dictionary]], Result]) -> Result:
    """Read the glossary that the path names, in a thread. Raises RpcError: there is none."""
    id = call.request.path_params["id"]
    return await _with(call, lambda folder: read(folder.get(id)))


async def _one(call: HttpCall, show: Callable[[Sequence[Dictionary]], dict[str, Any]]) -> Any:
    if call.request.method != "DELETE":
        return await _of_glossary(call, show)
    await _with(call, lambda folder: folder.remove(call.request.path_params["id"]))
    return Response(status_code=204)


def _only(found: Sequence[Dictionary]) -> Sequence[Dictionary]:
    if len(found) > 1:
        raise invalid(f"glossary {found[0].id!r} has several pairs of languages; use /v3/glossaries")
    return found


def _matches(language: str, wanted: str) -> bool:
    return not wanted or language.lower() == wanted


def _name(given: Json) -> str:
    name = " ".join(given.take("name", str).split())
    if not 0 < len(name) <= MOST_CHARACTERS or "\0" in name:
        raise invalid(f"name: {len(name):,} characters, it must have 1 to {MOST_CHARACTERS:,}, and no zero bytes")
    return name


async def _dictionary(call: HttpCall, given: Json) -> tuple[tuple[str, str], Sequence[Term]]:
    """Return the languages of a dictionary, and its terms."""
    source, target = (_language(given, name) for name in ("source_lang", "target_lang"))
    text, kind = given.take("entries", str), given.take("entries_format", str, "tsv")
    if kind not in FORMATS:
        raise invalid(f"{given.path}entries_format: {kind[:40]!r} is not {' or '.join(FORMATS)}")
    terms = await call.offload(len(text), _terms, text, kind, f"{given.path}entries")
    return (source, target), terms


def _language(given: Json, name: str) -> str:
    code: str = given.take(name, str).lower()
    if not re.fullmatch(CODE, code) or not is_language(code):
        raise invalid(f"{given.path}{name}: {shortened(code, 40)} is not a language code, such as en or pt-br")
    return code


def _terms(text: str, kind: str, name: str) -> list[Term]:
    """Read entries. Raises RpcError: a line has another form, or there are too many; names `name`."""
    terms: dict[str, Term] = {}
    try:
        rows = csv.reader(StringIO(text)) if kind == CSV else (line.split("\t") for line in StringIO(text))
        for number, row in enumerate(rows, 1):
            parts = [part.strip() for part in row]
            if not any(parts):
                continue
            if problem := _problem(parts):
                raise invalid(f"{name}: line {number} {problem}")
            source, target = parts[:2]
            if source in terms:
                raise invalid(f"{name}: line {number} has {shortened(source, 40)}, which occurs before")
            terms[source] = Term(source, target)
            if len(terms) > DOCUMENT_ELEMENTS:
                raise invalid(f"{name}: more than {DOCUMENT_ELEMENTS:,} terms, the limit")
    except csv.Error as error:
        raise invalid(f"{name}: {error}") from None
    if not terms:
        raise invalid(f"{name}: no terms, there must be 1 to {DOCUMENT_ELEMENTS:,}")
    return list(terms.values())


def _problem(parts: Sequence[str]) -> str:
    """Describe what is wrong with a line; empty if it is a term. In a comma-separated list the languages may follow."""
    if not 2 <= len(parts) <= 4 or not all(parts[:2]):
        return "does not have a source and a target"
    if max(map(len, parts[:2])) > MAX_TERM:
        return f"has a term of more than {MAX_TERM:,} characters"
    if parts[0].startswith("#") or any(map(UNSTORED.search, parts[:2])):
        return "has a term with a tab, a zero byte, a line break, or a # at its beginning, which cannot be stored"
    return ""


def _languages(one: Dictionary) -> dict[str, str]:
    return {"source_lang": one.source.lower(), "target_lang": one.target.lower()}


def _single(one: Dictionary) -> dict[str, Any]:
    shared = {"glossary_id": one.id, "name": one.name, "ready": True, "creation_time": one.time}
    return {**shared, **_languages(one), "entry_count": len(one.terms)}


def _several(found: Sequence[Dictionary]) -> dict[str, Any]:
    dictionaries = [{**_languages(one), "entry_count": len(one.terms)} for one in found]
    created = min(found, key=lambda one: one.changed).time
    return {"glossary_id": found[0].id, "name": found[0].name, "creation_time": created, "dictionaries": dictionaries}


ROUTES = (
    ApiRoute("/v2/glossary-language-pairs", pairs, ("GET",), "List languages of glossaries."),
    ApiRoute("/v2/glossaries", listed, ("GET",), "List glossaries of one pair of languages."),
    ApiRoute("/v2/glossaries", create, summary="Create a glossary."),
    ApiRoute("/v2/glossaries/{id}", one, ("GET", "DELETE"), "Show or delete a glossary."),
    ApiRoute("/v2/glossaries/{id}/entries", entries, ("GET",), "List the terms of a glossary."),
    ApiRoute("/v3/glossaries", listed_several, ("GET",), "List glossaries."),
    ApiRoute("/v3/glossaries", create_several, summary="Create a glossary of several pairs of languages."),
    ApiRoute("/v3/glossaries/{id}", one_of_several, ("GET", "DELETE"), "Show or delete a glossary."),
    ApiRoute("/v3/glossaries/{id}/entries", entries_of_several, ("GET",), "List the terms of a glossary."),
)
