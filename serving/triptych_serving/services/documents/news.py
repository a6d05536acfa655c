"""What a caller is told of a document on its way, to the wire."""

from triptych.v1 import translation_pb2
from triptych_documents.findings import Finding
from triptych_documents.format import FormatInfo
from triptych_serving.services.documents.codec import finding_to
from triptych_serving.services.documents.run import Event, Progress, Summary
from triptych_serving.services.v1.served import served_by


def news_to(event: Event) -> translation_pb2.TranslateDocumentResponse:
    """One message."""
    response = translation_pb2.TranslateDocumentResponse
    match event:
        case FormatInfo():
            accepted = translation_pb2.DocumentAccepted(format=event.name, mime_type=event.mime_types[0])
            return response(accepted=accepted)
        case Progress():
            return response(progress=translation_pb2.DocumentProgress(segments_done=event.done, segments=event.segments))
        case Finding():
            return response(finding=finding_to(event))
        case Summary():
            return response(summary=_summary_to(event))
    return response(chunk=event)


def _summary_to(summary: Summary) -> translation_pb2.DocumentSummary:
    return translation_pb2.DocumentSummary(
        segments=summary.segments,
        sentences=summary.sentences,
        total_bytes=summary.total_bytes,
        **served_by(summary.use),
    )
