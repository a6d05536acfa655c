"""Documents, through a real server."""

import asyncio
import signal
import threading
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from triptych.v1.translation_pb2 import DecodingOptions as OptionsMessage
from triptych.v1.translation_pb2 import DocumentConfig, TranslateDocumentRequest
from triptych.v1.translation_pb2_grpc import TranslationServiceStub
from triptych_client import (
    AsyncClient,
    Client,
    DecodingOptions,
    DocumentProgress,
    FindingKind,
    InvalidArgumentError,
    NotFoundError,
    Severity,
    UnavailableError,
)
from triptych_serving.models.translation.translator import Translator
from triptych_serving.rpc.limits import LimitOptions

from ..fixtures.toy import MODELS, SOURCE, SOURCES, TARGET, TARGETS
from .conftest import MAX_MESSAGE_BYTES
from .support.documents import DOCUMENTS, text_of
from .support.in_process import Pace
from .support.processes import ENDLESS_SECONDS, STOPPING, ServerProcess, eventually
from .support.telemetry import Scrape

MANY = "\n\n".join(SOURCES[:40]).encode()
LARGE = "\n\n".join(SOURCES).encode()


def requests_of(content: bytes, **config: Any) -> list[TranslateDocumentRequest]:
    head = TranslateDocumentRequest(config=DocumentConfig(**{"format": "text", **config}))
    return [head, TranslateDocumentRequest(chunk=content)]


def half_sent(head: TranslateDocumentRequest, end: threading.Event) -> Iterator[TranslateDocumentRequest]:
    """Send the head of a document, and nothing more; the stream ends when `end` is set."""
    yield head
    end.wait()


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_format(client: Client, name: str) -> None:
    one, two = 3, 8
    make = DOCUMENTS[name]
    document = client.translate_document(make(SOURCES[one], SOURCES[two]), format=name, target_language="de")
    found = text_of(name, document.content)
    assert TARGETS[one] in found
    assert TARGETS[two] in found
    if name not in ("po", "xliff", "qt-ts", "xcstrings"):  # these have both languages
        assert SOURCES[one] not in found
    assert document.format == name
    assert document.segments >= 2
    assert not [finding for finding in document.findings if finding.severity is not Severity.NOTE]


def test_many_segments_with_progress(client: Client) -> None:
    progress: list[DocumentProgress] = []
    document = client.translate_document(MANY, format="text", progress=progress.append)
    assert document.content.decode() == "\n\n".join(TARGETS[:40])
    assert (progress[0], progress[-1]) == (DocumentProgress(0, 40), DocumentProgress(40, 40))
    assert [one.segments_done for one in progress] == sorted(one.segments_done for one in progress)


def test_a_large_document_travels_in_small_messages(server: ServerProcess) -> None:
    """Each way it is more than one message may have."""
    content = f"<p>{SOURCES[0]}</p><script>{'x' * 2 * MAX_MESSAGE_BYTES}</script>"
    with Client(server.address) as client:
        document = client.translate_document(content.encode(), format="html")
    assert document.content.decode() == content.replace(SOURCES[0], TARGETS[0])


@pytest.mark.parametrize(
    ("content", "arguments", "error", "field"),
    [
        (b"abc", {"format": "foo"}, InvalidArgumentError, "config.format"),
        (b"abc", {"format": "docx"}, InvalidArgumentError, "document"),
        (b"\xff\xfe\xfd", {"format": "text", "encoding": "utf-8"}, InvalidArgumentError, "document"),
        (b"a", {"format": "text", "target_language": "?"}, InvalidArgumentError, "config.target_language_code"),
        (b"a", {"format": "text", "model": "foo"}, NotFoundError, None),
    ],
)
def test_what_cannot_be_translated(
    client: Client, content: bytes, arguments: dict[str, Any], error: type[Exception], field: str | None
) -> None:
    with pytest.raises(error) as caught:
        client.translate_document(content, **arguments)
    assert [violation.field for violation in caught.value.violations] == ([field] if field else [])  # type: ignore[attr-defined]


def test_a_sentence_that_the_model_refuses_stays_and_is_reported(client: Client) -> None:
    """The sentence has a word that is too long and cannot be split."""
    content = f"{SOURCES[0]}\n\n{'ab' * 300}\n\n{SOURCES[1]}\n"
    document = client.translate_document(content.encode(), format="text")
    lines = document.content.decode().split("\n\n")
    assert (lines[0], lines[2]) == (TARGETS[0], f"{TARGETS[1]}\n")
    assert {finding.where for finding in document.findings} == {"line 3"}
    assert FindingKind.REFUSED in {finding.kind for finding in document.findings}


def test_options_are_checked_before_the_document_comes(server: ServerProcess) -> None:
    config = DocumentConfig(format="text", options=OptionsMessage(beam_size=10_000))
    with grpc.insecure_channel(server.address) as channel:
        never = threading.Event()
        requests = half_sent(TranslateDocumentRequest(config=config), never)
        with pytest.raises(grpc.RpcError) as error:
            list(TranslationServiceStub(channel).TranslateDocument(requests))
        never.set()
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def assert_free(address: str, translator: Translator, pace: Pace) -> None:
    eventually(lambda: translator.engine.count_rows() == (0, 0))
    pace.slow.clear()
    with Client(address) as client:
        assert client.translate(SOURCE).text == TARGET
        assert client.translate_document(SOURCE.encode(), format="text").content == TARGET.encode()


@pytest.mark.parametrize("seconds", [None, 0.5])
def test_a_document_that_is_cancelled_or_late(paced_server: tuple[str, Translator], pace: Pace, seconds: float | None) -> None:
    address, translator = paced_server
    pace.slow.set()
    with grpc.insecure_channel(address) as channel:
        events = TranslationServiceStub(channel).TranslateDocument(iter(requests_of(LARGE)), timeout=seconds)
        assert next(events).HasField("accepted")
        if seconds is None:
            eventually(lambda: sum(translator.engine.count_rows()) > 0)
            assert sum(translator.engine.count_rows()) < 100, "a document does not fill the queue"
            events.cancel()
        with pytest.raises(grpc.RpcError) as error:
            list(events)
        assert error.value.code() is (grpc.StatusCode.DEADLINE_EXCEEDED if seconds else grpc.StatusCode.CANCELLED)
        assert_free(address, translator, pace)


def is_accepted(stub: TranslationServiceStub) -> bool:
    """A document whose caller goes away before it is complete."""
    gone = threading.Event()
    events = stub.TranslateDocument(half_sent(requests_of(b"")[0], gone))
    try:
        return bool(next(events).HasField("accepted"))
    except grpc.RpcError:  # the one before has not been missed yet
        return False
    finally:
        events.cancel()
        gone.set()


def test_callers_who_leave_while_they_send_give_their_places_back(paced_server: tuple[str, Translator], pace: Pace) -> None:
    address, translator = paced_server
    with grpc.insecure_channel(address) as channel:
        stub = TranslationServiceStub(channel)
        for _ in range(2 * LimitOptions().documents):
            eventually(lambda: is_accepted(stub))
    assert_free(address, translator, pace)


def test_a_task_learns_why_its_document_is_refused(paced_server: tuple[str, Translator]) -> None:
    """Nothing is being sent while the server says so, which grpc.aio would not survive."""
    content = b"a" * (LimitOptions().document_bytes + 1)

    async def main() -> None:
        async with AsyncClient(paced_server[0]) as client:
            with pytest.raises(InvalidArgumentError, match="--max-document-bytes"):
                await client.translate_document(content, format="text")

    asyncio.run(main())


def test_small_calls_do_not_wait_for_a_document(paced_server: tuple[str, Translator], pace: Pace) -> None:
    address, translator = paced_server
    with grpc.insecure_channel(address) as channel, Client(address) as client:
        events = TranslationServiceStub(channel).TranslateDocument(iter(requests_of(LARGE)))
        assert [next(events).WhichOneof("event") for _ in range(2)] == ["accepted", "progress"]
        eventually(lambda: sum(translator.engine.count_rows()) > 0)
        before = pace.steps
        assert [client.translate(source).text for source in SOURCES[:3]] == TARGETS[:3]
        small = pace.steps - before
        rest = list(events)
        assert rest[-1].HasField("summary")
        assert small < (pace.steps - before) / 4
        assert b"".join(event.chunk for event in rest).decode() == "\n\n".join(TARGETS)


@pytest.mark.full
def test_a_model_that_is_unloaded_finishes_its_documents() -> None:
    flags = "--model-control", "explicit", "--allow-admin", "--load-model", "*"
    with ServerProcess(MODELS, *flags) as server, grpc.insecure_channel(server.address) as channel:
        events = TranslationServiceStub(channel).TranslateDocument(iter(requests_of(LARGE)))
        assert [next(events).WhichOneof("event") for _ in range(2)] == ["accepted", "progress"]
        with Client(server.address) as client:
            unloading = threading.Thread(target=client.unload_model, args=("toy",))
            unloading.start()
            rest = list(events)
            unloading.join()
            assert rest[-1].HasField("summary")
            assert b"".join(event.chunk for event in rest).decode() == "\n\n".join(TARGETS)
            with pytest.raises(NotFoundError):
                client.translate_document(b"a", format="text")


@pytest.mark.full
def test_a_server_that_stops_finishes_its_documents() -> None:
    with (
        ServerProcess(MODELS, "--exit-timeout-secs", ENDLESS_SECONDS) as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        stub = TranslationServiceStub(channel)
        events = stub.TranslateDocument(iter(requests_of(LARGE)))
        sending = threading.Event()
        half = stub.TranslateDocument(half_sent(requests_of(b"")[0], sending))
        assert next(half).HasField("accepted")
        assert next(events).HasField("accepted")
        assert next(events).progress.segments == len(SOURCES)
        server.signal(signal.SIGTERM)
        server.wait_for_log(STOPPING)
        with Client(server.address, retries=0) as client, pytest.raises(UnavailableError):
            client.translate_document(b"a", format="text")
        with pytest.raises(grpc.RpcError) as error:
            list(half)
        assert error.value.code() is grpc.StatusCode.UNAVAILABLE
        sending.set()
        assert b"".join(event.chunk for event in events).decode() == "\n\n".join(TARGETS)
        assert server.wait() == 0


def test_metrics_count_its_batches(server: ServerProcess, client: Client) -> None:
    labels = {"method": "triptych.v1.TranslationService/TranslateDocument", "model": "toy", "version": "1"}

    def counts() -> list[float]:
        scrape = Scrape(server.metrics_address)
        return [scrape.value("requests_total", **labels, code="OK") or 0.0, scrape.value("rows_total", **labels) or 0.0]

    before = counts()
    client.translate_document(f"{SOURCES[0]}\n\n{SOURCES[1]}\n".encode(), format="text")
    assert [after - first for first, after in zip(before, counts(), strict=True)] == [1, 2]


def test_options_are_the_decodings(client: Client) -> None:
    options = DecodingOptions(beam_size=3, length_penalty=0.5)
    document = client.translate_document("\n\n".join(SOURCES[:8]).encode(), format="text", options=options)
    expected = client.translate_many(SOURCES[:8], options=options).texts
    assert document.content.decode() == "\n\n".join(expected)
