"""One HTTP request: its body, its caller, and the gRPC methods that are called for it."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing
from contextvars import copy_context
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote_to_bytes

import grpc
from google.protobuf import json_format
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request

from triptych.v1 import model_pb2, translation_pb2
from triptych_serving.gateway.messages import JsonResponse, fault_in, mismatch, shortened, size_of
from triptych_serving.rpc.direct_calls import DirectContext, RpcError, call_stream, call_unary
from triptych_serving.rpc.dispatch import Router, request_id_of
from triptych_serving.rpc.event_loop import Offload
from triptych_serving.rpc.limits import MessageLimit
from triptych_serving.rpc.status import REQUEST_ID
from triptych_serving.text.tokenizers import is_unicode
from triptych_serving.text.validation import NOT_UNICODE

if TYPE_CHECKING:
    from triptych_serving.gateway.glossaries import GlossaryFolder
    from triptych_serving.gateway.stored_documents import StoredDocuments

logger = logging.getLogger(__name__)

ENCODINGS = {"content-encoding": "identity", "transfer-encoding": "chunked"}  # of bodies; others would be read as they are
BODY_SECONDS = 60.0  # in which a request's body must arrive
TIMEOUT_HEADER = "connect-timeout-ms"
FORM_PART = re.compile(rb"(?:%[0-9a-fA-F]{2}|.){1,4096}", re.DOTALL)  # with whole escapes
JSON_GROWTH = 4 / 3  # of bytes in base64
TEXT_GROWTH = 3  # of bytes with "%", or as "\\u" and four digits
# Strings and separators of JSON: the parser takes thirty times as much memory for them, and lets no other thread run meanwhile.
JSON_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[,\[{]', re.DOTALL)
ELEMENT_TOKENS = 8  # of an element of a list, at most: a pair of texts with names
TENSOR_TOKENS = 4 << 20  # of a request with tensors, whose numbers are elements too
VALUE_BYTES = 20  # of a value of JSON, roughly
SPARE_BYTES = 64 << 10  # of a body, for what is not text
MAX_FIELDS = 64  # of a form
MAX_INTEGER = 2**32 - 1  # integers of requests are uint32 in messages
WIDER = {"seed": 2**64 - 1}  # but for this one
TOKENS_AT_ONCE = 10_000  # counted without letting other threads run
NO_REMEDIES: Mapping[str, str] = MappingProxyType({})
PASSED_HEADERS = ("authorization", "traceparent", "tracestate", "user-agent")
DEEPL_SCHEME = "deepl-auth-key "  # of DeepL's clients, instead of "Bearer "

Result = TypeVar("Result")
Value = TypeVar("Value")


@dataclass(frozen=True)
class GatewayParts:
    """Parts of a gateway that all its requests share."""

    router: Router
    messages: MessageLimit
    document_bytes: int  # limit of a document
    documents: StoredDocuments  # keeps translated documents until they are fetched
    needs_key: bool  # callers need an API key
    threads: Offload  # for long work
    glossaries: GlossaryFolder | None = None  # of DeepL's clients

    @property
    def body_bytes(self) -> int:
        """Limit of a body."""
        return int(self.messages.limit * JSON_GROWTH) + SPARE_BYTES

    @property
    def form_bytes(self) -> int:
        """Limit of a form with texts."""
        return TEXT_GROWTH * min(self.messages.text_limit, self.messages.limit) + SPARE_BYTES

    @property
    def text_bytes(self) -> int:
        """Limit of another body with texts."""
        return min(self.form_bytes, self.body_bytes)

    def json_tokens(self, has_tensors: bool) -> int:
        """Return how many strings and separators the JSON of a request may have."""
        return TENSOR_TOKENS if has_tensors else ELEMENT_TOKENS * self.messages.elements


class Json(dict[str, Any]):
    """The members of a JSON object or a form, with errors that name the member."""

    path = ""  # in the request, before the names of members: "messages[0]."

    def take(self, name: str, kind: type[Value], default: Value | None = None) -> Value:
        """Return a member; `default` if it is missing or null.

        Raises:
            RpcError: it is missing without a default, has another type, or is out of range.
        """
        value = self.get(name)
        if value is None and default is not None:
            return default
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(max(-MAX_INTEGER, min(value, MAX_INTEGER)))
        infinite = isinstance(value, float) and not math.isfinite(value)  # or NaN, which Python's JSON has
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool) or infinite:
            place, wanted = f"{self.path}{name}", JSON_TYPES[kind]
            raise invalid(f"{place}: missing, must be {wanted}" if value is None else mismatch(place, value, wanted))
        most = WIDER.get(name, MAX_INTEGER)
        if isinstance(value, int) and not 0 <= value <= most:
            raise invalid(f"{self.path}{name}: {shortened(value, 40)} is out of range, must be from 0 to {most:,}")
        return value

    def take_texts(self, name: str) -> tuple[list[str], bool]:
        """Return the texts of a member that is a string or a list of strings, and whether it is a list.

        Raises:
            RpcError: it is neither.
        """
        value = self.get(name)
        if isinstance(value, str):
            return [value], False
        if isinstance(value, list) and value and all(isinstance(one, str) for one in value):
            return value, True
        raise invalid(f"{self.path}{name}: must be a string or a list of strings, and not empty")

    def take_given(self, fields: Mapping[str, tuple[str, type[Any]]]) -> dict[str, Any]:
        """Return the members that are given, by other names; `fields` has the name and type of each. Raises as `take`."""
        return {field: self.take(name, kind) for name, (field, kind) in fields.items() if self.get(name) is not None}

    def take_schema(self, name: str) -> str:
        """Return a member that is a JSON schema, as an object or as its text. Raises RpcError: it is neither."""
        value = self.get(name)
        return self.take_rules(name) if isinstance(value, str) else json.dumps(self.take(name, dict))

    def take_rules(self, name: str) -> str:
        """Return a member that is a text, and not empty. Raises RpcError: it is empty, or something else."""
        if not (text := self.take(name, str)):
            raise invalid(f"{self.path}{name}: is empty; leave it out")
        return text

    def refuse(self, values: Mapping[str, tuple[Any, ...]], remedies: Mapping[str, str] = NO_REMEDIES) -> None:
        """Reject options that would change the result and are not supported; `values` are those without effect.

        Args:
            remedies: what to use in place of an option.

        Raises:
            RpcError: names the option.
        """
        for name, neutral in values.items():
            if name in self and self[name] not in (None, *neutral):
                remedy = remedies.get(name, "leave it out")
                raise invalid(f"{self.path}{name:.60}: {shortened(self[name], 80)} is not supported; {remedy}")


JSON_TYPES: dict[type, str] = {
    str: "a string",
    int: "an integer",
    float: "a finite number",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}


class HttpCall:
    """One HTTP request."""

    def __init__(self, request: Request, parts: GatewayParts) -> None:
        self.request = request
        self.parts = parts
        self.request_id = request_id_of(request.headers)  # of all methods that are called for it
        self.key = ""  # an API key that was sent in another way than the header `Authorization`
        self.needs_key = True  # False: the response is for everybody
        self._arrived = time.monotonic()

    def _context(self) -> DirectContext:
        """Make the context of a method: the headers are metadata in gRPC. Raises RpcError: the timeout is malformed."""
        headers, scope = self.request.headers, self.request.scope
        metadata = {name: value for name in PASSED_HEADERS if (value := headers.get(name)) is not None}
        metadata[REQUEST_ID] = self.request_id
        authorization = metadata.get("authorization", "")
        deepl = authorization[len(DEEPL_SCHEME) :].strip() if authorization.lower().startswith(DEEPL_SCHEME) else ""
        if key := self.key or deepl:
            metadata["authorization"] = f"Bearer {key}"
        timeout = headers.get(TIMEOUT_HEADER)
        if timeout is not None and not (timeout.isascii() and timeout.isdigit() and len(timeout) <= 10):
            raise invalid(f"{TIMEOUT_HEADER}: {timeout[:40]!r} is not a number of milliseconds with at most 10 digits")
        deadline = None if timeout is None else self._arrived + int(timeout) / 1000
        identities = scope.get("state", {}).get("identities", ())
        return DirectContext(peer_of(scope.get("client")), metadata, identities, deadline, self.needs_key)

    @property
    def content_type(self) -> str:
        """The media type of the body, in lower case and without parameters; empty if it is not named."""
        return self.request.headers.get("content-type", "").partition(";")[0].strip().lower()

    async def ask(self, request: Message) -> Any:
        """Call the unary method that takes requests of this type; return its response. Cancelled if the client disconnects.

        Raises:
            RpcError: the call ended with another status than OK.
            ClientDisconnect: nobody waits for the response.
        """
        kind: Any = type(request)
        path, response = method_of(kind)
        found = response()
        await self.while_connected(call_unary(self.parts.router, path, request, found, self._context()))
        return found

    async def ready_models(self) -> list[model_pb2.Model]:
        """Return the version of each loaded model that requests without a version use. Raises as `ask`."""
        response = await self.ask(model_pb2.ListModelsRequest())
        return [one for one in response.models if one.default_version]

    def stream(self, path: str, requests: Message | AsyncIterator[Message], response: type[Any]) -> AsyncGenerator[Any]:
        """Call a method with a stream of responses. Raises RpcError as `ask`."""
        return call_stream(self.parts.router, path, requests, response, self._context())

    async def while_connected(self, work: Awaitable[Result]) -> Result:
        """Run `work`, and cancel it if the client disconnects. The request's body must have been read.

        Raises:
            ClientDisconnect: it was cancelled.
        """

        async def run() -> Result:
            return await work

        context = copy_context()
        task = asyncio.create_task(run(), context=context)
        watch = asyncio.ensure_future(self._disconnected())
        try:
            await asyncio.wait((task, watch), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise ClientDisconnect
            return task.result()
        finally:
            task.cancel()
            watch.cancel()
            await asyncio.gather(task, watch, return_exceptions=True)
            for variable, value in context.items():  # such as the ids for the logs: a stream that began goes on in this task
                variable.set(value)

    async def body(self, limit: int | None = None) -> bytes:
        """Read the body.

        Raises:
            RpcError: it is larger than the limit, or does not arrive in time.
            ClientDisconnect: the client is gone.
        """
        try:
            async with asyncio.timeout(BODY_SECONDS):
                return b"".join([piece async for piece in self._pieces(limit or self.parts.body_bytes)])
        except TimeoutError:
            raise RpcError.of(grpc.StatusCode.DEADLINE_EXCEEDED, f"body: not received within {BODY_SECONDS:g} s") from None

    async def _pieces(self, limit: int) -> AsyncGenerator[bytes]:
        """Yield the body as it arrives. Raises RpcError: it is larger than the limit."""
        self._check_head(limit)
        size = 0
        async for piece in self.request.stream():
            size += len(piece)
            if size > limit:
                raise too_large(limit)
            yield piece

    def _check_head(self, limit: int) -> None:
        declared = self.request.headers.get("content-length", "")
        if declared.isdigit() and int(declared) > limit:
            raise too_large(limit)
        for name, supported in ENCODINGS.items():
            given = ", ".join(self.request.headers.getlist(name)).strip().lower()
            if given not in ("", supported):
                raise RpcError.of(grpc.StatusCode.UNIMPLEMENTED, f"{name}: only {supported} is supported")

    async def json(self, has_images: bool = False) -> Json:
        """Read a JSON object, or a form with fields in its place.

        Args:
            has_images: it may be larger than texts may be.

        Raises:
            RpcError: it is neither, or as `body`.
        """
        kind = self.content_type
        if kind == "multipart/form-data":
            form, _ = await self.form()
            return form
        is_form = kind == "application/x-www-form-urlencoded"
        parts = self.parts
        data = await self.body(parts.form_bytes if is_form else parts.body_bytes if has_images else parts.text_bytes)
        if not data and (not kind or self.request.method == "GET"):
            return Json()
        parse = parse_form if is_form else partial(parse_object, tokens=parts.json_tokens(False))
        return await self.offload(len(data), parse, data)

    async def form(self) -> tuple[Json, UploadFile | None]:
        """Read a multipart form: its fields, and its file. Raises RpcError: it is malformed, or too large."""
        if (kind := self.content_type) != "multipart/form-data":
            raise invalid(f"content-type: {kind[:80]!r} is not multipart/form-data")
        most = {"max_files": 1, "max_fields": MAX_FIELDS, "max_part_size": SPARE_BYTES}
        pieces = self._pieces(self.parts.document_bytes + SPARE_BYTES)
        try:
            async with asyncio.timeout(BODY_SECONDS), aclosing(pieces):
                form = await MultiPartParser(self.request.headers, pieces, **most).parse()
        except (MultiPartException, TimeoutError, UnicodeError) as error:
            problem = "not in the character set that it names" if isinstance(error, UnicodeError) else "not received in time"
            raise invalid(f"body: {getattr(error, 'message', problem)}") from None
        except OSError as error:  # starlette keeps a file above 1 MB in a temporary one
            raise no_temporary_file("a file in a form", error) from None
        texts = [value if isinstance(value, str) else value.filename or "" for _, value in form.multi_items()]
        if not is_unicode("".join(texts)):  # in UTF-7, for instance
            raise invalid(f"body: {NOT_UNICODE}")
        fields = _fields((name, value) for name, value in form.multi_items() if isinstance(value, str))
        return fields, next((value for value in form.values() if isinstance(value, UploadFile)), None)

    async def offload(self, size: int, function: Callable[..., Result], *arguments: Any) -> Result:
        """Call a function: in a thread if it processes much. `size` in bytes."""
        return await self.parts.threads.run(size // 8, function, *arguments)

    async def convert(self, response: Any, function: Callable[[Any], Result]) -> list[Result]:
        """Call a function with each result of a response."""
        return await self.offload(response.ByteSize(), lambda: [function(one) for one in response.results])

    async def respond(self, value: Any) -> JsonResponse:
        """Make the response with a value of JSON."""
        return await self.offload(VALUE_BYTES * size_of(value), JsonResponse, value)

    async def _disconnected(self) -> None:
        while (await self.request.receive())["type"] != "http.disconnect":
            pass


@cache
def method_of(request: Any) -> tuple[str, Any]:
    """Return the path of the unary method with this request type, and its response type."""
    methods = (one for service in request.DESCRIPTOR.file.services_by_name.values() for one in service.methods)
    method = next(one for one in methods if one.input_type is request.DESCRIPTOR and not one.server_streaming)
    return f"/{method.containing_service.full_name}/{method.name}", GetMessageClass(method.output_type)


def options_of(fields: dict[str, Any], where: str = "options") -> translation_pb2.DecodingOptions:
    """Make options of fields that may be unknown, of another type or out of range.

    Raises:
        RpcError: one is; `where` names the member of the request that they come from.
    """
    options = translation_pb2.DecodingOptions()
    try:
        return json_format.ParseDict(fields, options)
    except (json_format.ParseError, OverflowError) as error:
        raise invalid(fault_in(fields, options.DESCRIPTOR, where) or f"{where}: {error}") from None


def invalid(message: str) -> RpcError:
    """Make the error of a malformed request."""
    return RpcError.of(grpc.StatusCode.INVALID_ARGUMENT, message)


def as_object(value: object, name: str) -> Json:
    """Return a JSON object, whose errors name it. Raises RpcError: it is something else."""
    if not isinstance(value, dict):
        raise invalid(f"{name}: must be an object")
    found = Json(value)
    found.path = f"{name}."
    return found


class TooLargeBodyError(RpcError):
    """A body exceeds its limit."""


def too_large(limit: int) -> RpcError:
    """Make the error of an oversized body."""
    return TooLargeBodyError.of(grpc.StatusCode.RESOURCE_EXHAUSTED, f"body: larger than {limit:,} bytes; send less per request")


def check_json(data: bytes, tokens: int) -> None:
    """Check that JSON has at most so many strings and separators, before it is parsed. Raises RpcError: it has more."""
    if sum(map(data.count, (b'"', b",", b"[", b"{"))) > tokens and _has_more(JSON_TOKEN.finditer(data), tokens):
        raise invalid(f"body: more than {tokens:,} strings, commas and brackets of JSON in one request; send less per request")


def _has_more(found: Iterator[Any], most: int) -> bool:
    """Tell whether an iterator has more than so many elements; other threads may run in between."""
    for _ in range(most // TOKENS_AT_ONCE):
        if next(islice(found, TOKENS_AT_ONCE - 1, None), None) is None:
            return False
    return next(islice(found, most % TOKENS_AT_ONCE, None), None) is not None


def parse_object(data: bytes, tokens: int) -> Json:
    """Parse a JSON object of at most so many strings and separators. Raises RpcError: it is something else, or has more."""
    check_json(data, tokens)
    try:
        value = json.loads(data.decode("utf-8-sig"))  # bytes could be UTF-16, or hold halves of surrogate pairs
        if rb"\ud" in data.lower():  # may be half of a surrogate pair, which no message can hold
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise invalid(f"body: not JSON: {error}") from None
    return Json(as_object(value, "body"))  # errors name its members alone


def no_temporary_file(what: str, error: OSError) -> RpcError:
    """Make the error of a server that cannot write a temporary file, and log it."""
    reason = f"{error.strerror or error}; {what} needs a folder for temporary files with room for it (TMPDIR)"
    logger.error("%s", reason)
    return RpcError.of(grpc.StatusCode.UNIMPLEMENTED, f"the server cannot write temporary files: {reason}")


def parse_form(data: bytes) -> Json:
    """Parse the fields of a form; one that occurs several times becomes a list.

    Raises:
        RpcError: it is malformed, or has many fields.
    """
    if data.lstrip().startswith(b"{"):  # curl's -d without a content type
        raise invalid("body: it is JSON, but content-type says that it is a form; send content-type: application/json")
    pairs = data.split(b"&", MAX_FIELDS)
    if len(pairs) > MAX_FIELDS:
        raise invalid(f"body: not a form of at most {MAX_FIELDS} fields")
    try:
        split = (pair.partition(b"=") for pair in pairs if pair)
        return _fields((_unquoted(name), _unquoted(value)) for name, _, value in split)
    except UnicodeDecodeError as error:
        raise invalid(f"body: not a form in UTF-8: {error}") from None


def _unquoted(data: bytes) -> str:
    parts = FORM_PART.findall(data.replace(b"+", b" "))  # all at once would take a hundred times as much memory
    return b"".join(map(unquote_to_bytes, parts)).decode()


def _fields(pairs: Iterable[tuple[str, Any]]) -> Json:
    fields: dict[str, list[Any]] = {}
    for name, value in pairs:
        fields.setdefault(name, []).append(value)
    return Json({name: values if len(values) > 1 else values[0] for name, values in fields.items()})


def peer_of(client: tuple[str, int] | None) -> str:
    """Return an address in gRPC's notation."""
    if client is None:
        return "unix:"
    host, port = client
    return f"ipv6:%5B{host}%5D:{port}" if ":" in host else f"ipv4:{host}:{port}"
