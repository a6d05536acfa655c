"""Answers that are remembered, up to a size."""

from collections import OrderedDict

from triptych_documents.sentences import SentenceRequest, SentenceTranslation
from triptych_documents.translation.steps import SentenceResult

_ENTRY = 300  # bytes that an entry takes beside its texts
_WEIGHT = 32  # bytes of a number in a list


class ResultCache:
    """The least recently used are forgotten first. Of one thread.

    Args:
        room: bytes, about.
    """

    def __init__(self, room: int) -> None:
        self._room = room
        self._taken = 0
        self._replies: OrderedDict[SentenceRequest, SentenceResult] = OrderedDict()

    def get(self, ask: SentenceRequest) -> SentenceResult | None:
        """None where it is not known, or not any more."""
        reply = self._replies.get(ask)
        if reply is not None:
            self._replies.move_to_end(ask)
        return reply

    def put(self, ask: SentenceRequest, reply: SentenceResult) -> None:
        """Remember it."""
        if ask in self._replies:
            return
        self._replies[ask] = reply
        self._taken += _size(ask, reply)
        while self._taken > self._room:
            self._taken -= _size(*self._replies.popitem(last=False))


def _size(ask: SentenceRequest, reply: SentenceResult) -> int:
    size = _ENTRY + 2 * len(ask.text)
    if isinstance(reply, SentenceTranslation):
        size += 2 * len(reply.text)
        if reply.alignment is not None:
            size += _WEIGHT * len(reply.alignment.source) * (len(reply.alignment.target) + 1)
    return size
