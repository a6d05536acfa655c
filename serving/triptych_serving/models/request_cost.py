"""Bounds of the cost of one request, checked before it is computed: characters, rows, tokens to decode, bytes of results."""

from triptych_serving.errors import InvalidInputError
from triptych_serving.scheduling.admission import QueueLimits

NUMBER_BYTES = 4  # of a number in a response
ROW_BYTES = 20  # of a row in a response: counts, lengths of its parts, a score


def check_characters(field: str, characters: int, limits: QueueLimits) -> None:
    """Reject a request with too much text to split and tokenize. Raises InvalidInputError: above the limit."""
    most, remedy = limits.request_characters, "are allowed (--max-request-characters); send fewer texts per request"
    _check(field, characters, most, f"{characters:,} characters in one request", remedy)


def check_rows(field: str, rows: int, limits: QueueLimits, at_least: str = "") -> None:
    """Reject a request with more rows than can wait. Raises InvalidInputError: above the limit."""
    problem = f"{at_least}{rows:,} rows in one request"
    _check(field, rows, limits.waiting_rows, problem, "can wait (--max-queue-rows); send fewer")


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
    remedy = f"fit into a response (--max-message-bytes); {remedy}"
    _check(field, size, limits.result_bytes, f"{what} may need {size:,} bytes", remedy)


def _check(field: str, found: int, most: int, problem: str, remedy: str) -> None:
    if found > most:
        raise InvalidInputError(field, f"{problem}, at most {most:,} {remedy}")


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
        slots, tokens = self._slots, self._max_tokens
        work = rows * slots * tokens
        factors = f"at least {rows:,} sentences x {slots:,} beams or samples x {tokens:,} tokens"
        remedy = "are allowed (--max-decode-tokens); send fewer, or lower beam_size, num_hypotheses or max_length"
        _check(field, work, self._limits.decode_tokens, f"{factors} are {work:,} tokens to decode", remedy)
