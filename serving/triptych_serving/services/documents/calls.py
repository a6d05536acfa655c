"""How documents are translated: read, driven through the engine segment by segment, written again."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass

from triptych_documents.rules import TranslationRules
from triptych_documents.translation.units import UnitTranslator
from triptych_serving.rpc.call_context import GrpcContext, current_call
from triptych_serving.rpc.limits import LimitOptions
from triptych_serving.services.documents.asker import Asker
from triptych_serving.services.documents.codec import Request, order_from
from triptych_serving.services.documents.intake import Intake
from triptych_serving.services.documents.run import Event, Run
from triptych_serving.services.documents.slots import Places
from triptych_serving.services.documents.threads import DocumentThreads
from triptych_serving.services.translation_calls import TranslationCalls

CHUNK_BYTES = 64 * 1024  # of a message
ROOM_BYTES = 64  # what a message has beside its chunk


@dataclass(frozen=True)
class DocumentParts:
    """What documents are translated with.

    Args:
        calls: translate their sentences.
        limits: how many documents at a time, and how large.
        threads: do what takes its time.
        open_work: makes what cuts segments into sentences and puts them together again.
    """

    calls: TranslationCalls
    limits: LimitOptions
    threads: DocumentThreads
    open_work: Callable[[TranslationRules], UnitTranslator] = UnitTranslator


class DocumentCalls:
    """Translates documents, as many at a time as the limits allow."""

    def __init__(self, parts: DocumentParts) -> None:
        self._parts = parts
        self._places = Places(parts.limits.documents)
        self._chunk = max(1, min(CHUNK_BYTES, parts.limits.message_bytes - ROOM_BYTES))

    async def translate(self, requests: AsyncIterator[Request], context: GrpcContext) -> AsyncGenerator[Event]:
        """What the document is taken for, then progress and findings, the translated document, and what it took.

        Raises:
            ServingError: whatever kept the document from being translated.
        """
        parts = self._parts
        intake = Intake(requests, parts.limits.document_bytes)
        order = order_from(await intake.config())
        with self._places.hold():
            translator = parts.calls.find(order.wish)
            with current_call.get().leases.hold(translator):  # no other version takes over in the middle
                asker = Asker(parts.calls, translator, order, context)
                asker.check()
                run = Run(order, asker, parts.threads, self._chunk)
                await run.open(parts.open_work)
                yield order.kind
                async with aclosing(run.events(await intake.document())) as events:
                    async for event in events:
                        yield event
