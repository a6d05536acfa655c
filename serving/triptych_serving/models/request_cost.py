"""Bounds of one request, checked before it is computed: numbers, characters, rows, tokens to decode, bytes of results."""

from math import inf

from triptych.decoding import Bounds
from triptych_serving.errors import InvalidInputError
from triptych_serving.scheduling.admission import QueueLimits

NUMBER_BYTES = 4  # of a number in a response
ROW_BYTES = 20  # of a row in a response: counts, lengths of its parts, a score


def check_range(field: str, value: int, lowest: int, highest: float = inf) -> int:
    """Return the value if it is in range. Raises InvalidInputError: it is out of range."""
    if value not in (bounds := Bounds(lowest, highest)):
        raise InvalidInputError(field, f"{value:,} is out of range, it must be {bounds}")
    return value


def check_characters(field: str, characters: int, limits: QueueLimits) -> None:
    """Reject a request with too much text to split and tokenize. Raises InvalidInputError: above the limit."""
    if characters > (most := limits.request_characters):
        remedy = "are allowed (--max-request-characters); send fewer texts per request"
        raise InvalidInputError(field, f"{characters:,} characters in one request, at most {most:,} {remedy}")


def check_rows(field: str, rows: int, limits: QueueLimits, at_least: str = "") -> None:
    """Reject a request with more rows than can wait. Raises InvalidInputError: above the limit."""
    if rows > (most := limits.waiting_rows):
        problem = f"{at_least}{rows:,} rows in one request, at most {most:,} can wait (--max-queue-rows); send fewer"
        raise InvalidInputError(field, problem)


def check_results(field: str, size: int, what: str, limits: QueueLimits, remedy: str) -> None:
    """Reject a request whose results may not fit into a response.

    Args:
        field: of the request.
        size: bytes of its results, at most.
        what: the results' dimensions, for the error, such as "100 texts x 256 numbers".
        remedy: what to do.

    Raises:
        InvalidInputError: above the limit.
    """
    if size > (most := limits.result_bytes):
        problem = f"{what} may need {size:,} bytes, at most {most:,} fit into a response (--max-message-bytes); {remedy}"
        raise InvalidInputError(field, problem)


class RowLimit:
    """The number of rows, a sentence each, that one request may have.

    Args:
        slots: beams or samples of every row.
        max_tokens: that a row may produce.
    """

    def __init__(self, slots: int, max_tokens: int, limits: QueueLimits) -> None:
        self._slots, self._max_tokens, self._limits = slots, max_tokens, limits
        self.most = min(limits.waiting_rows, limits.decode_tokens // max(1, slots * max_tokens))

    def check(self, field: str, rows: int) -> None:
        """Reject a request with so many rows or more. Raises InvalidInputError: above the limit."""
        if rows <= self.most:
            return
        check_rows(field, rows, self._limits, "at least ")
        slots, tokens, most = self._slots, self._max_tokens, self._limits.decode_tokens
        if (work := rows * slots * tokens) > most:
            factors = f"at least {rows:,} sentences x {slots:,} beams or samples x {tokens:,} tokens"
            remedy = "are allowed (--max-decode-tokens); send fewer, or lower beam_size, num_hypotheses or max_length"
            raise InvalidInputError(field, f"{factors} are {work:,} tokens to decode, at most {most:,} {remedy}")
