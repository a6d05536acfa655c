"""All errors that the server raises on purpose, each with its gRPC status.

ServingError
├── InvalidInputError        INVALID_ARGUMENT     a text, language code or option is not acceptable
├── NotFoundError            NOT_FOUND            no such model, version or language pair
├── UnsupportedError         FAILED_PRECONDITION  the model, or this release, cannot do that
├── OverloadedError          RESOURCE_EXHAUSTED   too many requests; `retry_after_seconds` says when to retry
├── TooLargeError            RESOURCE_EXHAUSTED   a message is above the size limit; a retry does not help
├── UnavailableError         UNAVAILABLE          loading, or shutting down
├── DeadlineError            DEADLINE_EXCEEDED    the caller's deadline passed
├── CancelledError           CANCELLED            the caller cancelled
├── EngineError              INTERNAL             the runtime failed
├── UnauthenticatedError     UNAUTHENTICATED      no valid API key
├── PermissionDeniedError    PERMISSION_DENIED    the caller lacks the permission
├── SecurityError            FAILED_PRECONDITION  a certificate, key file or security option cannot be used
├── PortError                UNAVAILABLE          the server cannot listen on its address
├── DeviceError              FAILED_PRECONDITION  a device is missing, or cannot run this model
│   └── DeviceMemoryError    RESOURCE_EXHAUSTED   a device has not enough memory
└── BundleError              FAILED_PRECONDITION  a bundle is missing, damaged or of an unknown format
    └── RepositoryError      NOT_FOUND            a model repository cannot be read
"""

from collections.abc import Sequence


class ServingError(Exception):
    """Base class; `status` is the name of a gRPC status. The message is one line with field, value, limit and remedy."""

    status = "INTERNAL"


class InvalidInputError(ServingError):
    """Invalid request; `field` is in the wire's notation, such as `contents[3]`."""

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
    def of(cls, error: BaseException) -> "EngineError":
        """Convert any exception of an engine."""
        return error if isinstance(error, cls) else cls(f"the runtime failed: {error}")


class UnauthenticatedError(ServingError):
    status = "UNAUTHENTICATED"


class PermissionDeniedError(ServingError):
    status = "PERMISSION_DENIED"


class SecurityError(ServingError):
    """Invalid security configuration at the start; a file that becomes invalid later is logged and ignored."""

    status = "FAILED_PRECONDITION"


class PortError(ServingError):
    status = "UNAVAILABLE"


class DeviceError(ServingError):
    """Unusable device; the message tells what is missing and what to do."""

    status = "FAILED_PRECONDITION"


class DeviceMemoryError(DeviceError):
    """Not enough memory; the message has all numbers and tells what to lower."""

    status = "RESOURCE_EXHAUSTED"


class BundleError(ServingError):
    """Unusable bundle; `where` is its name or the path of a file, `faults` lists everything that is wrong."""

    status = "FAILED_PRECONDITION"

    def __init__(self, where: object, faults: Sequence[str]) -> None:
        super().__init__(f"{where}: {'; '.join(faults)}")
        self.where, self.faults = where, tuple(faults)


class RepositoryError(BundleError):
    status = "NOT_FOUND"
