"""What the messages of a TranslateDocument call say, one after the other; how they travel is told elsewhere."""

from collections.abc import Callable

from triptych.v1 import translation_pb2
from triptych_client.codec import served_from
from triptych_client.document_job import DocumentJob
from triptych_client.document_results import DocumentFinding, DocumentProgress, FindingKind, Severity, TranslatedDocument
from triptych_client.errors import DeadlineExceededError, ServerError, TriptychClientError

Response = translation_pb2.TranslateDocumentResponse
OnProgress = Callable[[DocumentProgress], object]

KINDS = {
    translation_pb2.FindingKind.Value(f"FINDING_KIND_{kind.name}"): kind
    for kind in FindingKind
    if kind is not FindingKind.UNKNOWN
}
SEVERITIES = {
    translation_pb2.FindingSeverity.Value(f"FINDING_SEVERITY_{severity.name}"): severity
    for severity in Severity
    if severity is not Severity.UNKNOWN
}


class DocumentFlow:
    """One document.

    Args:
        job: what is asked for.
        progress: is told how far it is.
    """

    def __init__(self, job: DocumentJob, progress: OnProgress | None) -> None:
        self.job = job
        self._progress = progress
        self._attempts = job.call.attempts()
        self._started = False
        self._accepted: translation_pb2.DocumentAccepted | None = None
        self._findings: list[DocumentFinding] = []
        self._chunks: list[bytes] = []
        self._summary: translation_pb2.DocumentSummary | None = None

    @property
    def accepted(self) -> bool:
        """The server wants the document."""
        return self._accepted is not None

    def connect(self) -> None:
        """The document is sent, for the first time or once more."""
        self._accepted = None

    def take(self, message: Response) -> None:
        """One message. What `progress` raises goes through."""
        event = message.WhichOneof("event")
        if event == "accepted":
            self._accepted = message.accepted
            return
        self._started = True
        if event == "progress" and self._progress is not None:
            self._progress(DocumentProgress(message.progress.segments_done, message.progress.segments))
        elif event == "finding":
            self._findings.append(_finding_from(message.finding))
        elif event == "chunk":
            self._chunks.append(message.chunk)
        elif event == "summary":
            self._summary = message.summary

    def result(self) -> TranslatedDocument:
        """When the stream has ended. Raises ServerError: something is missing."""
        content, summary, accepted = b"".join(self._chunks), self._summary, self._accepted
        if summary is None or accepted is None or len(content) != summary.total_bytes:
            message = "the stream ended before its document was complete"
            raise ServerError(message, code="INTERNAL", request_id=self.job.call.request_id)
        return TranslatedDocument(
            content=content,
            findings=tuple(self._findings),
            format=accepted.format,
            mime_type=accepted.mime_type,
            segments=summary.segments,
            sentences=summary.sentences,
            **served_from(summary, self.job.call.request_id),
        )

    def pause_after(self, error: TriptychClientError) -> float:
        """Seconds to wait before the document is sent once more.

        Raises:
            TriptychClientError: It cannot be, or work on it had begun.
        """
        if self._started:
            raise error
        return self._attempts.pause_after(error)

    def stood_still(self) -> DeadlineExceededError:
        """Nothing has come for too long."""
        call = self.job.call
        message = f"the document has not got on for {call.timeout_seconds:g} s (`timeout_seconds`)"
        return DeadlineExceededError(message, code="DEADLINE_EXCEEDED", request_id=call.request_id)


def _finding_from(message: translation_pb2.DocumentFinding) -> DocumentFinding:
    return DocumentFinding(
        kind=KINDS.get(message.kind, FindingKind.UNKNOWN),
        severity=SEVERITIES.get(message.severity, Severity.UNKNOWN),
        where=message.where,
        message=message.message,
    )
