"""A scripted Triptych server without models, on a real port. It records the requests."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from operator import methodcaller
from types import TracebackType
from typing import Any, Self

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_status import rpc_status

from triptych.v1 import image_classification_pb2, translation_pb2
from triptych_client import generation, tasks, text_tasks
from triptych_client.connection import RpcMethod
from triptych_client.documents import TRANSLATE_DOCUMENT
from triptych_client.images import CLASSIFY_IMAGE_STREAM

Step = Callable[[grpc.ServicerContext], object]
Values = dict[str, Any]  # of a message

serialize = methodcaller("SerializeToString")

SERVED = {"model": "fake", "model_version": "2", "timing": {"inference_seconds": 0.25}}
YES = {"label": "yes", "score": 0.75, "index": 1}


def succeed(context: grpc.ServicerContext) -> None:
    """Script step: continue."""


def fail(code: grpc.StatusCode, message: str = "no", *details: Message) -> Step:
    """Script step: end the call with this status."""

    def step(context: grpc.ServicerContext) -> None:
        status = status_pb2.Status(code=code.value[0], message=message)
        for detail in details:
            status.details.add().Pack(detail)
        context.abort_with_status(rpc_status.to_status(status))

    return step


def retry_after(seconds: float) -> error_details_pb2.RetryInfo:
    delay = Duration()
    delay.FromTimedelta(timedelta(seconds=seconds))
    return error_details_pb2.RetryInfo(retry_delay=delay)


def bad_field(name: str, description: str = "is empty") -> error_details_pb2.BadRequest:
    violation = error_details_pb2.BadRequest.FieldViolation(field=name, description=description)
    return error_details_pb2.BadRequest(field_violations=[violation])


def translation(text: str) -> translation_pb2.Translation:
    """Translate a text into capitals, with a token per letter."""
    hypothesis = {"text": text.upper(), "finish_reason": "FINISH_REASON_STOP", "token_count": len(text)}
    values: Values = {"hypotheses": [hypothesis], "source_token_count": len(text) + 1}
    return translation_pb2.Translation(translated_text=text.upper(), **values)


def score(pair: translation_pb2.TranslationPair) -> Values:
    """Count -1 for each letter that is not the capital of the source's."""
    tokens = [-float(a.upper() != b) for a, b in zip(pair.source, pair.target, strict=True)]
    return {"log_probability": sum(tokens), "token_log_probabilities": tokens}


def filled(text: str) -> Values:
    """Fill each mask with x."""
    candidate = {"score": 0.5, "token": 7, "token_str": "x", "sequence": text.replace("[MASK]", "x", 1)}
    return {"masks": [{"candidates": [candidate]}] * text.count("[MASK]"), "token_count": len(text)}


def labelled(text: str) -> Values:
    """Label the whole text as a name."""
    entity = {"label": "PER", "score": 0.75, "text": text, "start": 0, "end": len(text)}
    return {"entities": [entity], "token_count": len(text)}


def answered(each: Any) -> Values:
    """Answer with the context from its third letter on."""
    end = len(each.context)
    return {"answers": [{"text": each.context[2:], "score": 0.75, "start": 2, "end": end}], "token_count": end}


def classified_image(image: bytes) -> Values:
    """Report the length of the file as width."""
    return {"labels": [YES], "width": len(image), "height": 2}


# The result of each input.
RESULTS: list[tuple[tasks.UnaryTask[Any], Callable[[Any], Values | Message]]] = [
    (tasks.TRANSLATE, translation),
    (tasks.SCORE_TRANSLATIONS, score),
    (text_tasks.FILL_MASK, filled),
    (text_tasks.EMBED, lambda text: {"values": [0.5, len(text)], "token_count": len(text)}),
    (text_tasks.CLASSIFY_TEXT, lambda each: {"labels": [YES], "token_count": len(each.text)}),
    (text_tasks.CLASSIFY_TOKENS, labelled),
    (text_tasks.ANSWER, answered),
    (text_tasks.RERANK, lambda text: {"index": len(text), "score": 0.75, "token_count": len(text), "truncated": True}),
    (text_tasks.NEIGHBORS, lambda query: {"neighbors": [{"score": 0.75, "token": 7, "token_str": query}], "token_count": 3}),
    (tasks.CLASSIFY_IMAGE, classified_image),
    (generation.GENERATE, lambda prompt: {"choices": [{"text": prompt.upper()}]}),
]
READY = {"version": "3", "state": "MODEL_STATE_READY", "version_labels": ["canary"], "default_version": True}
# The response to a request.
RESPONSES: list[tuple[RpcMethod[Any, Any], Callable[[Any], Values]]] = [
    (tasks.LIST_MODELS, lambda _: {"models": [{"name": "fake", "version": "2"}]}),
    (tasks.GET_MODEL, lambda request: {"model": {"name": request.name, "version": request.version or "2"}}),
    (tasks.LOAD_MODEL, lambda request: {"models": [{"name": request.name, "version": "2"}, {"name": request.name, **READY}]}),
    (tasks.UNLOAD_MODEL, lambda _: {}),
]


def results(task: tasks.UnaryTask[Any], result: Callable[[Any], Values | Message], request: Any) -> Values:
    """Return one result per input."""
    return {task.results: map(result, getattr(request, task.inputs)), **SERVED}


@dataclass
class FakeServer:
    """Each call, and each image of a stream, executes the next step of `script`; without one, calls succeed."""

    script: list[Step] = field(default_factory=list)
    receive_bytes: int = 4 * 1024 * 1024
    requests: list[Any] = field(default_factory=list)
    metadata: list[dict[str, Any]] = field(default_factory=list)
    stream_ended: threading.Event = field(default_factory=threading.Event)
    hang: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        self._lock = threading.Lock()
        self._server = grpc.server(ThreadPoolExecutor(16), options=[("grpc.max_receive_message_length", self.receive_bytes)])
        unary = [*RESPONSES, *((task, partial(results, task, result)) for task, result in RESULTS)]
        handlers = {method.path: self._unary(method, respond) for method, respond in unary}
        streams = [
            (tasks.TRANSLATE_STREAM, self._translate_stream, grpc.unary_stream_rpc_method_handler),
            (TRANSLATE_DOCUMENT, self._translate_document, grpc.stream_stream_rpc_method_handler),
            (CLASSIFY_IMAGE_STREAM, self._classify_images, grpc.stream_stream_rpc_method_handler),
        ]
        handlers |= {method.path: make(handle, method.request.FromString, serialize) for method, handle, make in streams}
        for path, handler in handlers.items():
            _, service, method = path.split("/")
            self._server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, {method: handler})])
        self.health = health.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self.health, self._server)
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.hang.set()
        self._server.stop(None).wait()

    @property
    def request_ids(self) -> list[str]:
        return [metadata["x-request-id"] for metadata in self.metadata]

    def set_ready(self, ready: bool) -> None:
        statuses = health_pb2.HealthCheckResponse
        self.health.set("", statuses.SERVING if ready else statuses.NOT_SERVING)

    def _unary(self, method: RpcMethod[Any, Any], respond: Callable[[Any], Values]) -> grpc.RpcMethodHandler:
        def handle(request: Any, context: grpc.ServicerContext) -> Message:
            self._take(request, context)
            response: Message = method.response(**respond(request))
            return response

        return grpc.unary_unary_rpc_method_handler(handle, method.request.FromString, serialize)

    def _take(self, request: Message, context: grpc.ServicerContext) -> None:
        with self._lock:
            self.requests.append(request)
            self.metadata.append(dict(context.invocation_metadata()))
        self._step(context)

    def _step(self, context: grpc.ServicerContext) -> None:
        with self._lock:
            step = self.script.pop(0) if self.script else succeed
        step(context)

    def _translate_stream(
        self, request: translation_pb2.TranslateStreamRequest, context: grpc.ServicerContext
    ) -> Iterator[translation_pb2.TranslateStreamResponse]:
        """Send all letters but the last as pieces, take another step (the text "hang": wait for `hang`), then the result."""
        context.add_callback(self.stream_ended.set)
        self._take(request, context)
        whole = translation(request.contents[0])
        response = translation_pb2.TranslateStreamResponse
        for letter in whole.translated_text[:-1]:
            yield response(piece={"text": letter})
        if request.contents[0] == "hang":
            self.hang.wait()
        self._step(context)
        yield response(result={"translation": whole})
        yield response(summary={"model": "fake", "model_version": "2"})

    def _translate_document(
        self, requests: Iterator[translation_pb2.TranslateDocumentRequest], context: grpc.ServicerContext
    ) -> Iterator[translation_pb2.TranslateDocumentResponse]:
        """Translate a document with one segment per line; take steps after the config, after the document, and at the end."""
        context.add_callback(self.stream_ended.set)
        response = translation_pb2.TranslateDocumentResponse
        self._take(next(requests), context)
        yield response(accepted={"format": "text", "mime_type": "text/plain"})
        chunks = [request.chunk for request in requests]
        self.requests += chunks
        self._step(context)
        content = b"".join(chunks)
        lines = content.count(b"\n")
        for done in (0, lines):
            yield response(progress={"segments_done": done, "segments": lines})
        if b"hang" in content:
            self.hang.wait()
        yield response(finding={"kind": "FINDING_KIND_TAG", "severity": 99, "where": "line 1", "message": "odd"})
        for start in range(0, len(content), 1000):
            yield response(chunk=content[start : start + 1000].upper())
        self._step(context)
        yield response(summary={"segments": lines, "sentences": 2 * lines, "total_bytes": len(content), **SERVED})

    def _classify_images(
        self, requests: Iterator[image_classification_pb2.ClassifyImageStreamRequest], context: grpc.ServicerContext
    ) -> Iterator[image_classification_pb2.ClassifyImageStreamResponse]:
        """Reject images that begin with "bad". Want "busy" again once; answer "late" after the next image."""
        context.add_callback(self.stream_ended.set)
        late: list[image_classification_pb2.ClassifyImageStreamResponse] = []
        busy = {b"busy"}
        for request in requests:
            self._take(request, context)
            response = image_classification_pb2.ClassifyImageStreamResponse(image_id=request.image_id, **SERVED)
            if request.image.startswith(b"bad"):
                response.error.CopyFrom(status_pb2.Status(code=grpc.StatusCode.INVALID_ARGUMENT.value[0], message="no image"))
            elif request.image in busy:
                busy.remove(request.image)
                response.error.code = grpc.StatusCode.UNAVAILABLE.value[0]
            else:
                response.result.CopyFrom(image_classification_pb2.ClassifiedImage(**classified_image(request.image)))
            if request.image == b"late":
                late.append(response)
                continue
            yield response
            yield from late
            late.clear()
