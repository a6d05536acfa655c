"""A Triptych server without models: it answers from a script, on a real port, and keeps what it was asked."""

# ruff: noqa: N802 - a servicer's methods have the names of its RPCs.

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_status import rpc_status

from triptych.v1 import common_pb2, model_pb2, model_pb2_grpc, translation_pb2, translation_pb2_grpc

from .fake_encoders import FakeEncoders

Script = Callable[[grpc.ServicerContext], object]


def succeed(context: grpc.ServicerContext) -> None:
    """A step of a script: go on."""


def fail(code: grpc.StatusCode, message: str = "no", *details: Message) -> Script:
    """A step of a script: answer with this status."""

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


def translation(text: str) -> translation_pb2.Translation:
    """What this server makes of a text: it shouts."""
    hypothesis = translation_pb2.Hypothesis(
        text=text.upper(), finish_reason=translation_pb2.FINISH_REASON_STOP, token_count=len(text)
    )
    return translation_pb2.Translation(translated_text=text.upper(), hypotheses=[hypothesis], source_token_count=len(text) + 1)


def score(pair: translation_pb2.TranslationPair) -> translation_pb2.TranslationScore:
    """What this server thinks of a pair: a translation is to be as loud as the source."""
    tokens = [-float(a.upper() != b) for a, b in zip(pair.source, pair.target, strict=True)]
    return translation_pb2.TranslationScore(log_probability=sum(tokens), token_log_probabilities=tokens)


@dataclass
class FakeServer(FakeEncoders, translation_pb2_grpc.TranslationServiceServicer, model_pb2_grpc.ModelServiceServicer):
    """Each call takes the next step of `script`, a stream one more before its result; without a script calls succeed."""

    script: list[Script] = field(default_factory=list)
    receive_bytes: int = 4 * 1024 * 1024
    requests: list[Any] = field(default_factory=list)
    request_ids: list[str] = field(default_factory=list)
    stream_ended: threading.Event = field(default_factory=threading.Event)
    hang: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        self._lock = threading.Lock()
        self._server = grpc.server(ThreadPoolExecutor(16), options=[("grpc.max_receive_message_length", self.receive_bytes)])
        translation_pb2_grpc.add_TranslationServiceServicer_to_server(self, self._server)
        self.add_encoders(self._server)
        model_pb2_grpc.add_ModelServiceServicer_to_server(self, self._server)
        self.health = health.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self.health, self._server)
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.hang.set()
        self._server.stop(None).wait()

    def set_ready(self, ready: bool) -> None:
        statuses = health_pb2.HealthCheckResponse
        self.health.set("", statuses.SERVING if ready else statuses.NOT_SERVING)

    def _take(self, request: Message, context: grpc.ServicerContext) -> None:
        with self._lock:
            self.requests.append(request)
            self.request_ids.append(dict(context.invocation_metadata())["x-request-id"])
        self._step(context)

    def _step(self, context: grpc.ServicerContext) -> None:
        with self._lock:
            step = self.script.pop(0) if self.script else succeed
        step(context)

    def Translate(
        self, request: translation_pb2.TranslateRequest, context: grpc.ServicerContext
    ) -> translation_pb2.TranslateResponse:
        self._take(request, context)
        return translation_pb2.TranslateResponse(
            translations=[translation(text) for text in request.contents],
            model="shout",
            model_version="2",
            timing=common_pb2.Timing(inference_seconds=0.25),
        )

    def TranslateStream(
        self, request: translation_pb2.TranslateStreamRequest, context: grpc.ServicerContext
    ) -> Iterator[translation_pb2.TranslateStreamResponse]:
        """All but the last letter in pieces, then the result, which does not come before `hang` is set for the text "hang"."""
        context.add_callback(self.stream_ended.set)
        self._take(request, context)
        whole = translation(request.contents[0])
        for letter in whole.translated_text[:-1]:
            yield translation_pb2.TranslateStreamResponse(piece=translation_pb2.TranslationPiece(text=letter))
        if request.contents[0] == "hang":
            self.hang.wait()
        self._step(context)
        yield translation_pb2.TranslateStreamResponse(result=translation_pb2.TranslationResult(translation=whole))
        yield translation_pb2.TranslateStreamResponse(summary=translation_pb2.StreamSummary(model="shout", model_version="2"))

    def ScoreTranslations(
        self, request: translation_pb2.ScoreTranslationsRequest, context: grpc.ServicerContext
    ) -> translation_pb2.ScoreTranslationsResponse:
        """Every letter that differs costs 1."""
        self._take(request, context)
        return translation_pb2.ScoreTranslationsResponse(
            scores=[score(pair) for pair in request.pairs],
            model="shout",
            model_version="2",
            timing=common_pb2.Timing(inference_seconds=0.25),
        )

    def TranslateDocument(
        self, request_iterator: Iterator[translation_pb2.TranslateDocumentRequest], context: grpc.ServicerContext
    ) -> Iterator[translation_pb2.TranslateDocumentResponse]:
        """Every line is a segment. Takes a step of the script with the config, behind the document, and at the end."""
        context.add_callback(self.stream_ended.set)
        response = translation_pb2.TranslateDocumentResponse
        self._take(next(request_iterator), context)
        yield response(accepted=translation_pb2.DocumentAccepted(format="text", mime_type="text/plain"))
        chunks = [request.chunk for request in request_iterator]
        self.requests += chunks
        self._step(context)
        content = b"".join(chunks)
        lines = content.count(b"\n")
        for done in (0, lines):
            yield response(progress=translation_pb2.DocumentProgress(segments_done=done, segments=lines))
        if b"hang" in content:
            self.hang.wait()
        yield response(
            finding=translation_pb2.DocumentFinding(
                kind=translation_pb2.FINDING_KIND_TAG, severity=99, where="line 1", message="odd"
            )
        )
        for start in range(0, len(content), 1000):
            yield response(chunk=content[start : start + 1000].upper())
        self._step(context)
        summary = translation_pb2.DocumentSummary(
            model="shout",
            model_version="2",
            timing=common_pb2.Timing(inference_seconds=0.25),
            segments=lines,
            sentences=2 * lines,
            total_bytes=len(content),
        )
        yield response(summary=summary)

    def ListModels(self, request: model_pb2.ListModelsRequest, context: grpc.ServicerContext) -> model_pb2.ListModelsResponse:
        self._take(request, context)
        return model_pb2.ListModelsResponse(models=[model_pb2.Model(name="shout", version="2")])

    def GetModel(self, request: model_pb2.GetModelRequest, context: grpc.ServicerContext) -> model_pb2.GetModelResponse:
        self._take(request, context)
        return model_pb2.GetModelResponse(model=model_pb2.Model(name=request.name, version=request.version or "2"))

    def LoadModel(self, request: model_pb2.LoadModelRequest, context: grpc.ServicerContext) -> model_pb2.LoadModelResponse:
        self._take(request, context)
        state = model_pb2.MODEL_STATE_READY
        model = model_pb2.Model(name=request.name, version="3", state=state, version_labels=["canary"], default_version=True)
        return model_pb2.LoadModelResponse(model=model, models=[model_pb2.Model(name=request.name, version="2"), model])

    def UnloadModel(
        self, request: model_pb2.UnloadModelRequest, context: grpc.ServicerContext
    ) -> model_pb2.UnloadModelResponse:
        self._take(request, context)
        return model_pb2.UnloadModelResponse()
