"""Access control: API keys, client certificates, and admin calls."""

import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import unquote

from triptych_serving.errors import PermissionDeniedError, SecurityError, UnauthenticatedError
from triptych_serving.rpc.call_context import PROBES, CallContext, GrpcContext, MethodType
from triptych_serving.security.api_keys import ApiKey, Role, find_key, read_keys
from triptych_serving.security.options import SecurityOptions
from triptych_serving.security.secret_files import ReloadedFiles, warn_if_open

logger = logging.getLogger(__name__)

# Methods that change which models are served.
ADMIN_METHODS = frozenset(
    {
        "triptych.v1.ModelService/LoadModel",
        "triptych.v1.ModelService/UnloadModel",
        "inference.GRPCInferenceService/RepositoryModelLoad",
        "inference.GRPCInferenceService/RepositoryModelUnload",
    }
)
# Called by probes, as PROBES are, which have no keys.
OPEN_SERVICES = frozenset({"grpc.health.v1.Health"})

SCHEME = "bearer"
GRPC_LOGGER = "grpc._cython.cygrpc"  # logs metadata that is not UTF-8, which may be an API key
CHECK_SECONDS = 1.0  # until a change of the key file is noticed


class AccessGuard:
    """Identify the caller for all guards and observers after this one, and reject callers without permission.

    Args:
        clock: returns the present time.

    Raises:
        SecurityError: the file of API keys cannot be used, or is empty.
    """

    def __init__(self, options: SecurityOptions, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._options = options
        self._clock = clock
        self._keys = None if options.api_keys is None else _open_keys(options.api_keys)
        logging.getLogger(GRPC_LOGGER).addFilter(_is_not_metadata)

    def concerns(self, service: str, method: str, method_type: MethodType) -> bool:
        identifies = self._keys is not None or self._options.tls_client_ca is not None
        return identifies or f"{service}/{method}" in ADMIN_METHODS

    def admit(self, call: CallContext, context: GrpcContext) -> None:
        """Admit a call and set its `principal`.

        Raises:
            UnauthenticatedError: there is no valid API key.
            PermissionDeniedError: the method is for admins.
        """
        clients = [] if self._options.tls_client_ca is None else certificate_names(context)
        call.principal = clients[0] if clients else ""
        method = call.full_method
        if call.service in OPEN_SERVICES or method in PROBES:
            return
        needs_key = getattr(context, "needs_key", True)  # which only calls within this process have
        key = self._check_key(self._keys.get(), call) if self._keys is not None and needs_key else None
        if key is not None:
            call.principal = key.name
        if method in ADMIN_METHODS:
            self._check_admin(call, key, clients)

    def _check_key(self, keys: Sequence[ApiKey], call: CallContext) -> ApiKey:
        key = find_key(keys, bearer_of(call))
        if key is None:
            raise UnauthenticatedError("unknown API key")
        if key.expired(self._clock()):
            raise UnauthenticatedError(f"API key {key.name!r} expired at {key.expires:%Y-%m-%d %H:%M %Z}")
        return key

    def _check_admin(self, call: CallContext, key: ApiKey | None, clients: Sequence[str]) -> None:
        caller = f"{call.principal or 'unauthenticated'} at {unquote(call.peer)}"
        caller += f", certificate {clients[0]}" if clients else ""
        by_key = key is not None and key.role is Role.ADMIN
        by_certificate = any(name in self._options.admin_clients for name in clients)
        if not (by_key or by_certificate or self._options.allow_admin):
            logger.warning("admin call denied: %s from %s", call.full_method, caller)
            raise PermissionDeniedError(self._denial(call, key))
        logger.info("admin call allowed: %s from %s", call.full_method, caller)

    def _denial(self, call: CallContext, key: ApiKey | None) -> str:
        if key is not None:
            return f"{call.method} needs an API key with the role admin; {key.name!r} has the role {key.role}"
        if self._options.admin_clients:
            return f"{call.method} is for the clients named by the server's --admin-client; {call.principal!r} is not one"
        return (
            f"{call.method} is disabled: start the server with --model-control explicit, and with --allow-admin or an API key "
            "with the role admin"
        )


def bearer_of(call: CallContext) -> str:
    """Return the API key of a call.

    Raises:
        UnauthenticatedError: there is none, or it has stray characters, such as a non-breaking space from a web page.
    """
    given = str(call.metadata.get("authorization", ""))
    scheme, _, secret = given.partition(" ")
    if scheme.lower() != SCHEME or not (key := secret.strip(" ")):
        problem = "authorization has no Bearer key" if given else "no API key"
        raise UnauthenticatedError(f"{problem}: send it as `authorization: Bearer KEY`, in gRPC's metadata or HTTP's headers")
    for place, letter in enumerate(key, 1):
        if not " " <= letter <= "~":
            problem = f"character {place} of {len(key)} is U+{ord(letter):04X}, keys are printable ASCII"
            raise UnauthenticatedError(f"malformed API key: {problem}; copy the key again")
    return key


def _is_not_metadata(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith("Invalid encoding on")


def certificate_names(context: GrpcContext) -> list[str]:
    """Return the alternative names of the client's verified certificate, or else its common name."""
    return [_printable(name.decode(errors="replace")) for name in context.peer_identities() or ()]


def _printable(name: str) -> str:
    """Replace control characters: a certificate must not forge lines of the log."""
    return "".join(letter if letter.isprintable() else "?" for letter in name)


def _open_keys(path: Path) -> ReloadedFiles[tuple[ApiKey, ...]]:
    def warn_if_empty(keys: tuple[ApiKey, ...]) -> None:
        if not keys:  # the last one was revoked, or the file is being written
            logger.warning("%s: no API keys, so every call is rejected", path)

    warn_if_open(path)
    keys = ReloadedFiles(f"API keys {path}", [path], lambda: read_keys(path), CHECK_SECONDS, warn_if_empty)
    if not keys.get():
        raise SecurityError(f"{path}: no API keys, so every call would be rejected; create one with `triptych keys create`")
    return keys
