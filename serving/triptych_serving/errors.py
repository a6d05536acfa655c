"""Every error that serving raises on purpose, and the gRPC status that each one becomes.

ServingError
├── InvalidInputError        INVALID_ARGUMENT     a text, a code or an option cannot be accepted
├── NotFoundError            NOT_FOUND            no such model, version or language pair
├── UnsupportedError         FAILED_PRECONDITION  this model, or this release, cannot do that
├── OverloadedError          RESOURCE_EXHAUSTED   too much is asked at once; `retry_after_seconds` says when to come back
├── TooLargeError            RESOURCE_EXHAUSTED   a message is above the size limit: to come back does not help
├── UnavailableError         UNAVAILABLE          loading, or shutting down
├── DeadlineError            DEADLINE_EXCEEDED    the caller's deadline passed
├── CancelledError           CANCELLED            the caller went away
├── EngineError              INTERNAL             the runtime failed
├── UnauthenticatedError     UNAUTHENTICATED      no API key, or one that is not valid
├── PermissionDeniedError    PERMISSION_DENIED    who asks may not do that
├── SecurityError            FAILED_PRECONDITION  security as it is configured cannot be had: a certificate, a key file, a flag
├── PortError                UNAVAILABLE          the server cannot listen on its address
├── DeviceError              FAILED_PRECONDITION  a device that was asked for cannot be had, or not for this
│   └── DeviceMemoryError    RESOURCE_EXHAUSTED   it has no room for what was asked of it
└── BundleError              FAILED_PRECONDITION  a bundle is missing, damaged or of a format this release does not read
    └── RepositoryError      NOT_FOUND            a model repository cannot be read
"""

from collections.abc import Sequence


class ServingError(Exception):
    """Base of all; `status` is a gRPC status name. The message is one line that names cause, value and limit."""

    status = "INTERNAL"


class InvalidInputError(ServingError):
    """`field` is the request's field, in the wire's notation, such as `contents[3]`."""

    status = "INVALID_ARGUMENT"

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


class NotFoundError(ServingError):
    status = "NOT_FOUND"


class UnsupportedError(ServingError):
    status = "FAILED_PRECONDITION"


class OverloadedError(ServingError):
    status = "RESOURCE_EXHAUSTED"

    def __init__(self, message: str, retry_after_seconds: float) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class TooLargeError(ServingError):
    status = "RESOURCE_EXHAUSTED"


class UnavailableError(ServingError):
    status = "UNAVAILABLE"


class DeadlineError(ServingError):
    status = "DEADLINE_EXCEEDED"


class CancelledError(ServingError):
    status = "CANCELLED"


class EngineError(ServingError):
    status = "INTERNAL"

    @classmethod
    def of(cls, error: Exception) -> "EngineError":
        """Whatever went wrong in an engine, as one."""
        return error if isinstance(error, cls) else cls(f"the runtime failed: {error}")


class UnauthenticatedError(ServingError):
    status = "UNAUTHENTICATED"


class PermissionDeniedError(ServingError):
    status = "PERMISSION_DENIED"


class SecurityError(ServingError):
    """Raised at start; a file that turns bad later leaves what was read before it in force."""

    status = "FAILED_PRECONDITION"


class PortError(ServingError):
    status = "UNAVAILABLE"


class DeviceError(ServingError):
    """The message says what is missing, and how to get it or what there is instead."""

    status = "FAILED_PRECONDITION"


class DeviceMemoryError(DeviceError):
    """The message has all numbers, and says what to lower."""

    status = "RESOURCE_EXHAUSTED"


class BundleError(ServingError):
    """`faults` are all that is wrong, not the first alone."""

    status = "FAILED_PRECONDITION"

    def __init__(self, where: object, faults: Sequence[str]) -> None:
        super().__init__(f"{where}: {'; '.join(faults)}")
        self.faults = tuple(faults)


class RepositoryError(BundleError):
    status = "NOT_FOUND"
