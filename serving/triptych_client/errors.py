"""The exceptions of the client.

TriptychClientError
├── InvalidArgumentError     invalid input, or an option is out of range              INVALID_ARGUMENT, OUT_OF_RANGE
├── NotFoundError            no such model, version or language pair                  NOT_FOUND
├── FailedPreconditionError  the model or the server does not support the request     FAILED_PRECONDITION, ALREADY_EXISTS
├── UnimplementedError       the server is older than the client                      UNIMPLEMENTED
├── UnauthenticatedError     missing or wrong credentials                             UNAUTHENTICATED
├── PermissionDeniedError    the credentials do not allow this call                   PERMISSION_DENIED
├── ResourceExhaustedError   the server's queue is full, or a message is too large    RESOURCE_EXHAUSTED
├── UnavailableError         no server, or it is loading a model or shutting down     UNAVAILABLE
├── DeadlineExceededError    no response within `timeout_seconds`                     DEADLINE_EXCEEDED
├── CallCancelledError       the call was cancelled, here or on the server            CANCELLED
└── ServerError              the server failed, or violated the contract              INTERNAL, UNKNOWN, DATA_LOSS, ABORTED

UnavailableError, and ResourceExhaustedError if the server gave a retry delay, are raised only after the client's own retries.
A wrong setting or argument of the client itself raises ValueError or TypeError before anything is sent.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """A problem with one field of a request."""

    field: str
    """Field of the request, such as `contents[2]` or `options.beam_size`."""
    description: str


class TriptychClientError(Exception):
    """Base of all exceptions that a call raises.

    Attributes:
        code: Name of the gRPC status, such as "NOT_FOUND".
        message: Message of the server, or of gRPC itself.
        request_id: Value of the call's `x-request-id`, which the server logs, too.
        reason: The server's constant for the cause, in UPPER_SNAKE_CASE; may be empty.
        violations: Problems with fields of the request; may be empty.
        retry_delay_seconds: Delay that the server asked for before a retry; None if it did not.
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
        # Most messages already name the field.
        others = (violation for violation in self.violations if violation.description not in self.message)
        violations = [f"\n  {violation.field}: {violation.description}" for violation in others]
        request = f" (request {self.request_id})" if self.request_id else ""
        return f"{self.code}: {self.message}{request}{''.join(violations)}"


class InvalidArgumentError(TriptychClientError):
    """A text, an image or an option is invalid; `violations` names the fields."""


class NotFoundError(TriptychClientError):
    """The server has no such model, version or language pair."""


class FailedPreconditionError(TriptychClientError):
    """The request is well-formed, but this model or this server does not support it."""


class UnimplementedError(TriptychClientError):
    """The server does not know this call."""


class UnauthenticatedError(TriptychClientError):
    """The credentials are missing or wrong."""


class PermissionDeniedError(TriptychClientError):
    """The credentials do not allow this call."""


class ResourceExhaustedError(TriptychClientError):
    """The server's queue is full, or a message is over a size limit; the message says which."""


class UnavailableError(TriptychClientError):
    """No server is reachable at the address, or it is still loading or shutting down."""


class DeadlineExceededError(TriptychClientError):
    """The response did not arrive within `timeout_seconds`."""


class CallCancelledError(TriptychClientError):
    """The call was cancelled: by the server, or because the client was closed."""


class ServerError(TriptychClientError):
    """The server failed for a reason that does not lie in the request."""
