"""Security as gRPC sees it: TLS, and who may call what."""

from triptych_serving.security import SecurityOptions
from triptych_serving.servicers.rpc import Guard
from triptych_serving.servicers.security.credentials import server_credentials as credentials
from triptych_serving.servicers.security.guard import AccessGuard

__all__ = ["credentials", "guards"]


def guards(options: SecurityOptions) -> tuple[Guard, ...]:
    """What every call has to pass, before all other guards.

    Raises:
        SecurityError: the file of API keys cannot be used.
    """
    return (AccessGuard(options),)
