"""What the messages of one TranslateStream call say, one after the other."""

import grpc

from triptych.v1 import translation_pb2
from triptych_client.codec import served_from, translation_from
from triptych_client.errors import ServerError
from triptych_client.results import Translation
from triptych_client.retry import Attempts
from triptych_client.status import error_of


class StreamReader:
    """Reads the stream of a single text."""

    def __init__(self, request_id: str) -> None:
        self.request_id = request_id
        self._started = False
        self._text = ""
        self._result: translation_pb2.Translation | None = None
        self._translation: Translation | None = None

    def read(self, message: translation_pb2.TranslateStreamResponse) -> str:
        """The text that the message adds, often none. Raises ServerError: it contradicts the messages before."""
        self._started = True
        match message.WhichOneof("event"):
            case "piece":
                return self._add(message.piece.text)
            case "result":
                self._result = message.result.translation
                return self._add(self._rest(self._result.translated_text))
            case "summary" if self._result is not None:
                self._translation = translation_from(self._result, served_from(message.summary, self.request_id))
        return ""

    def finish(self) -> None:
        """Raises ServerError: the stream ended, but the translation has not come."""
        if self._translation is None:
            raise self._broken("the stream ended before its translation")

    def pause_after(self, failure: grpc.RpcError, attempts: Attempts) -> float:
        """Seconds to wait before the stream is asked for once more.

        Raises:
            TriptychClientError: It cannot be, or must not be: what came before would come again.
        """
        error = error_of(failure, self.request_id)
        if self._started:
            raise error
        return attempts.pause_after(error)

    @property
    def translation(self) -> Translation:
        """Raises RuntimeError: the stream is not at its end."""
        if self._translation is None:
            raise RuntimeError("the stream is not at its end: iterate over its pieces first")
        return self._translation

    def _add(self, text: str) -> str:
        self._text += text
        return text

    def _rest(self, whole: str) -> str:
        # The pieces are a prefix of the translation; what they lack must still reach those who print them.
        if not whole.startswith(self._text):
            raise self._broken("the pieces of the stream are not the beginning of its translation")
        return whole.removeprefix(self._text)

    def _broken(self, message: str) -> ServerError:
        return ServerError(message, code="INTERNAL", request_id=self.request_id)
