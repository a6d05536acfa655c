"""What a call can raise.

TriptychClientError
├── InvalidArgumentError     an input cannot be used, or an option is out of range    INVALID_ARGUMENT, OUT_OF_RANGE
├── NotFoundError            no such model, version or language pair                  NOT_FOUND
├── FailedPreconditionError  the model or the server cannot do that                   FAILED_PRECONDITION, ALREADY_EXISTS
├── UnimplementedError       the server is older than the client                      UNIMPLEMENTED
├── UnauthenticatedError     no credentials, or wrong ones                            UNAUTHENTICATED
├── PermissionDeniedError    credentials that do not allow it                         PERMISSION_DENIED
├── ResourceExhaustedError   the server's queue is full, or a message too large       RESOURCE_EXHAUSTED
├── UnavailableError         no server there, a model still loading, a shutdown       UNAVAILABLE
├── DeadlineExceededError    no answer within `timeout_seconds`                       DEADLINE_EXCEEDED
├── CallCancelledError       the call was cancelled, here or on the server            CANCELLED
└── ServerError              the server failed, or broke the contract                 INTERNAL, UNKNOWN, DATA_LOSS, ABORTED

UnavailableError, and ResourceExhaustedError where the server says when to come back, are raised only after the client's own
retries. A wrong setting or argument of the client itself is a ValueError or TypeError, before anything is sent.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """One fault of a request."""

    field: str
    """The request's field, such as `contents[2]` or `options.beam_size`."""
    description: str


class TriptychClientError(Exception):
    """Base of all errors that a call raises.

    Attributes:
        code: The gRPC status by name, such as "NOT_FOUND".
        message: What the server, or gRPC itself, said.
        request_id: What the call sent as `x-request-id`; the server's log has it too.
        reason: The server's constant for the cause, in UPPER_SNAKE_CASE; empty where it gave none.
        violations: Which fields of the request are wrong, and why; may be empty.
        retry_delay_seconds: When the server asked to be called again; None where it did not.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str = "UNKNOWN",
        request_id: str = "",
        reason: str = "",
        violations: tuple[FieldViolation, ...] = (),
        retry_delay_seconds: float | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.request_id = request_id
        self.reason = reason
        self.violations = violations
        self.retry_delay_seconds = retry_delay_seconds

    def __str__(self) -> str:
        faults = [f"\n  {fault.field}: {fault.description}" for fault in self.violations]
        request = f" (request {self.request_id})" if self.request_id else ""
        return f"{self.code}: {self.message}{request}{''.join(faults)}"


class InvalidArgumentError(TriptychClientError):
    """A text, an image or an option cannot be used; `violations` names the fields."""


class NotFoundError(TriptychClientError):
    """The server has no such model, version or language pair."""


class FailedPreconditionError(TriptychClientError):
    """The request is well-formed, but this model or this server cannot do it."""


class UnimplementedError(TriptychClientError):
    """The server does not know this call."""


class UnauthenticatedError(TriptychClientError):
    """The credentials are missing or wrong."""


class PermissionDeniedError(TriptychClientError):
    """The credentials do not allow this call."""


class ResourceExhaustedError(TriptychClientError):
    """The server's queue is full, or a message is over a size limit; the message says which."""


class UnavailableError(TriptychClientError):
    """Nothing answers at the address, or what answers is still loading or shutting down."""


class DeadlineExceededError(TriptychClientError):
    """The answer did not come within `timeout_seconds`."""


class CallCancelledError(TriptychClientError):
    """The call was cancelled: by the server, or because the client was closed."""


class ServerError(TriptychClientError):
    """The server failed in a way that the request does not explain."""
