"""Bounds of the cost of one request, checked before it is computed: characters, rows, tokens to decode, bytes of results."""

from triptych_serving.errors import InvalidInputError
from triptych_serving.scheduling.admission import QueueLimits


def check_characters(field: str, characters: int, limits: QueueLimits) -> None:
    """Reject a request with too much text to split and tokenize.

    Raises:
        InvalidInputError: above the limit.
    """
    if characters > limits.request_characters:
        most = f"at most {limits.request_characters:,} are allowed (--max-request-characters)"
        raise InvalidInputError(field, f"{characters:,} characters in one request, {most}; send fewer texts per request")


def check_rows(field: str, rows: int, limits: QueueLimits, at_least: str = "") -> None:
    """Reject a request with more rows than can wait.

    Raises:
        InvalidInputError: above the limit.
    """
    if rows > limits.waiting_rows:
        most = f"at most {limits.waiting_rows:,} can wait (--max-queue-rows)"
        raise InvalidInputError(field, f"{at_least}{rows:,} rows in one request, {most}; send fewer")


def check_results(field: str, size: int, what: str, limits: QueueLimits, remedy: str) -> None:
    """Reject a request whose results may not fit into a response.

    Args:
        field: of the request.
        size: bytes of its results, at most.
        what: the results' dimensions, for the error, such as "100 texts x 256 numbers".
        limits: see QueueLimits.
        remedy: what to do.

    Raises:
        InvalidInputError: above the limit.
    """
    if size > limits.result_bytes:
        most = f"at most {limits.result_bytes:,} fit into a response (--max-message-bytes)"
        raise InvalidInputError(field, f"{what} may need {size:,} bytes, {most}; {remedy}")


NUMBER_BYTES = 4  # of a number in a response
ROW_BYTES = 20  # of a row in a response: counts, lengths of its parts, a score


class RowLimit:
    """The number of rows, a sentence each, that one request may have.

    Args:
        slots: beams or samples of every row.
        max_tokens: that a row may produce.
        limits: see QueueLimits.
    """

    def __init__(self, slots: int, max_tokens: int, limits: QueueLimits) -> None:
        self._slots, self._max_tokens, self._limits = slots, max_tokens, limits
        self.most = min(limits.waiting_rows, limits.decode_tokens // max(1, slots * max_tokens))

    def check(self, field: str, rows: int) -> None:
        """Reject a request with so many rows or more.

        Raises:
            InvalidInputError: above the limit.
        """
        if rows <= self.most:
            return
        check_rows(field, rows, self._limits, "at least ")
        slots, tokens, most = self._slots, self._max_tokens, f"{self._limits.decode_tokens:,}"
        raise InvalidInputError(
            field,
            f"at least {rows:,} sentences x {slots:,} beams or samples x {tokens:,} tokens are {rows * slots * tokens:,} "
            f"tokens to decode, at most {most} are allowed (--max-decode-tokens); "
            "send fewer, or lower beam_size, num_hypotheses or max_length",
        )
