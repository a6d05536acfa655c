"""Documents: requests, results and retries."""

import io
import os
import threading
import time
from pathlib import Path
from typing import Any

import grpc
import pytest

from triptych.v1 import translation_pb2
from triptych_client import (
    DeadlineExceededError,
    DecodingOptions,
    DocumentFinding,
    DocumentProgress,
    FindingKind,
    InvalidArgumentError,
    ResourceExhaustedError,
    ServerError,
    Severity,
    UnavailableError,
)

from .conftest import Ask
from .fake_server import FakeServer, fail, retry_after, succeed

DOCUMENT = b"one\ntwo\n"
UNAVAILABLE = fail(grpc.StatusCode.UNAVAILABLE)


def test_a_document_is_returned_with_its_findings(server: FakeServer, ask: Ask, tmp_path: Path) -> None:
    path, target = tmp_path / "a.txt", tmp_path / "b.txt"
    path.write_bytes(DOCUMENT)
    progress: list[DocumentProgress] = []
    document = ask(
        server.address,
        lambda client: client.translate_document(path, target=target, progress=progress.append, request_id="mine"),
    )
    assert document.content == target.read_bytes() == DOCUMENT.upper()
    assert (document.format, document.mime_type, document.segments, document.sentences) == ("text", "text/plain", 2, 4)
    assert (document.model, document.model_version, document.request_id) == ("fake", "2", "mine")
    assert document.timing.inference_seconds == 0.25
    assert progress == [DocumentProgress(0, 2), DocumentProgress(2, 2)]
    assert document.findings == (DocumentFinding(FindingKind.TAG, Severity.UNKNOWN, "line 1", "odd"),)
    assert not [thread for thread in threading.enumerate() if thread.name == "triptych-watch"]


def test_all_arguments_are_sent(server: FakeServer, ask: Ask) -> None:
    arguments: dict[str, Any] = {
        **{"format": "csv", "mime_type": "text/csv", "file_name": "a.csv", "encoding": "latin-1", "columns": ("a", 2)},
        **{"header": False, "keys": ["b"], "skip_keys": ["c"], "wrapped": True, "retranslate": True, "mark_fuzzy": True},
        **{"glossary": {"Haus": "house"}, "keep": ["Triptych"], "options": DecodingOptions(beam_size=4)},
        **{"source_language": "de", "target_language": "en", "model": "fake", "model_version": "2"},
    }
    ask(server.address, lambda client: client.translate_document(DOCUMENT, **arguments))
    assert server.requests[0].config == translation_pb2.DocumentConfig(
        **{name: arguments[name] for name in ("format", "mime_type", "file_name", "keep", "model", "model_version")},
        source_language_code="de",
        target_language_code="en",
        options=translation_pb2.DecodingOptions(beam_size=4),
        glossary=[translation_pb2.GlossaryTerm(source="Haus", target="house")],
        total_bytes=len(DOCUMENT),
        read_options=translation_pb2.DocumentReadOptions(
            columns=["a", "2"],
            **{name: arguments[name] for name in ("encoding", "header", "keys", "skip_keys", "wrapped")},
            **{name: arguments[name] for name in ("retranslate", "mark_fuzzy")},
        ),
    )


def test_absent_arguments_are_absent_on_the_wire(server: FakeServer, ask: Ask) -> None:
    ask(server.address, lambda client: client.translate_document(DOCUMENT, glossary=[("a", "b")]))
    config = server.requests[0].config
    assert not config.HasField("options")
    assert not any(config.read_options.HasField(name) for name in ("header", "wrapped"))
    assert [(term.source, term.target) for term in config.glossary] == [("a", "b")]


@pytest.mark.parametrize("settings", [{}, {"max_message_bytes": 20_000}])
def test_a_large_document_is_sent_in_chunks(server: FakeServer, ask: Ask, settings: dict[str, int]) -> None:
    content = b"a line\n" * 50_000
    document = ask(server.address, lambda client: client.translate_document(content), **settings)
    assert document.content == content.upper()
    chunks = server.requests[1:]
    assert max(map(len, chunks)) <= settings.get("max_message_bytes", 1 << 20) // 2
    assert b"".join(chunks) == content
    assert ask(server.address, lambda client: client.translate_document(b"")).content == b""


@pytest.mark.parametrize("script", [[UNAVAILABLE, UNAVAILABLE], [succeed, UNAVAILABLE]], ids=["config", "document"])
def test_a_document_is_sent_again_until_work_has_begun(server: FakeServer, ask: Ask, script: list[Any]) -> None:
    server.script += script
    document = ask(server.address, lambda client: client.translate_document(DOCUMENT))
    assert document.content == DOCUMENT.upper()
    assert document.findings == (DocumentFinding(FindingKind.TAG, Severity.UNKNOWN, "line 1", "odd"),)


def test_a_full_server_is_retried(server: FakeServer, ask: Ask) -> None:
    server.script.append(fail(grpc.StatusCode.RESOURCE_EXHAUSTED, "full", retry_after(0.01)))
    assert ask(server.address, lambda client: client.translate_document(DOCUMENT)).content == DOCUMENT.upper()
    server.script.append(fail(grpc.StatusCode.RESOURCE_EXHAUSTED, "full", retry_after(0.01)))
    with pytest.raises(ResourceExhaustedError):
        ask(server.address, lambda client: client.translate_document(DOCUMENT), retries=0)


def test_a_document_is_not_sent_again_once_work_has_begun(server: FakeServer, ask: Ask) -> None:
    server.script += [succeed, succeed, UNAVAILABLE]
    with pytest.raises(UnavailableError):
        ask(server.address, lambda client: client.translate_document(DOCUMENT))
    assert len(server.request_ids) == 1


@pytest.mark.parametrize("script", [[], [succeed]], ids=["config", "document"])
def test_a_rejected_document_is_not_sent_again(server: FakeServer, ask: Ask, script: list[Any]) -> None:
    server.script += [*script, fail(grpc.StatusCode.INVALID_ARGUMENT, "damaged")]
    with pytest.raises(InvalidArgumentError, match="damaged"):
        ask(server.address, lambda client: client.translate_document(b"a line\n" * 100_000))
    assert len(server.request_ids) == 1
    assert script or len(server.requests) == 1  # after the config is rejected, the document is not sent


def test_a_document_without_progress_times_out(server: FakeServer, ask: Ask) -> None:
    with pytest.raises(DeadlineExceededError, match=r"no progress for 0\.2 s"):
        ask(server.address, lambda client: client.translate_document(b"hang\n", timeout_seconds=0.2))
    assert server.stream_ended.wait(30)


def test_a_stream_that_ends_early_is_an_error(server: FakeServer, ask: Ask) -> None:
    def cut(context: grpc.ServicerContext) -> None:
        context.abort(grpc.StatusCode.OK, "")

    server.script += [succeed, succeed, cut]
    with pytest.raises(ServerError):
        ask(server.address, lambda client: client.translate_document(DOCUMENT))


def test_the_time_of_the_users_function_is_not_the_servers(server: FakeServer, ask: Ask) -> None:
    thoughts = iter([1.5])

    def think(_: DocumentProgress) -> None:
        time.sleep(next(thoughts, 0))

    document = ask(server.address, lambda client: client.translate_document(DOCUMENT, progress=think, timeout_seconds=1.0))
    assert document.content


@pytest.mark.parametrize("target", ["missing/x.txt", ".", io.StringIO(), 5])
def test_a_target_that_cannot_be_written_is_found_first(
    server: FakeServer, ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises((OSError, TypeError), match=r"cannot be written: .*missing/x\.txt|cannot be written: Is a|target is"):
        ask(server.address, lambda client: client.translate_document(DOCUMENT, target=target))
    assert server.requests == []


def test_a_name_of_another_encoding_is_sent(server: FakeServer, ask: Ask, tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"caf\xe9.txt")
    path.write_bytes(DOCUMENT)
    assert ask(server.address, lambda client: client.translate_document(path)).content


def test_an_exception_of_progress_cancels_the_call(server: FakeServer, ask: Ask) -> None:
    def stop(progress: DocumentProgress) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ask(server.address, lambda client: client.translate_document(b"hang\n", progress=stop))
    assert server.stream_ended.wait(30)


@pytest.mark.parametrize("name", ["glossary", "keep", "columns", "keys", "skip_keys"])
def test_a_single_text_is_rejected_where_several_belong(server: FakeServer, ask: Ask, name: str) -> None:
    with pytest.raises(TypeError, match=f"{name} takes several"):
        ask(server.address, lambda client: client.translate_document(DOCUMENT, **{name: "abc"}))
