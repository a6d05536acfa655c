"""Who may call what: API keys, clients' certificates, and the calls that change what is served."""

import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from urllib.parse import unquote

from triptych_serving.errors import PermissionDeniedError, SecurityError, UnauthenticatedError
from triptych_serving.rpc.call_context import CallContext, GrpcContext
from triptych_serving.security.api_keys import ApiKey, Role, find_key, read_keys
from triptych_serving.security.file_access import warn_if_open
from triptych_serving.security.options import SecurityOptions
from triptych_serving.security.reloading import Reloading

logger = logging.getLogger(__name__)

# What changes what everybody is served.
ADMIN = frozenset(
    {
        "triptych.v1.ModelService/LoadModel",
        "triptych.v1.ModelService/UnloadModel",
        "inference.GRPCInferenceService/RepositoryModelLoad",
        "inference.GRPCInferenceService/RepositoryModelUnload",
    }
)
# What probes ask, which have no keys. It says whether the server is up, and nothing else.
OPEN_SERVICES = frozenset({"grpc.health.v1.Health"})
OPEN_METHODS = frozenset({"inference.GRPCInferenceService/ServerLive", "inference.GRPCInferenceService/ServerReady"})

SCHEME = "bearer"
LOOK_SECONDS = 1.0  # until a change of the keys is noticed


class AccessGuard:
    """Finds out who calls, for everybody behind it, and refuses who may not.

    Args:
        options: see SecurityOptions.
        clock: now.

    Raises:
        SecurityError: the file of API keys cannot be used, or has none.
    """

    def __init__(self, options: SecurityOptions, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._options = options
        self._clock = clock
        self._keys = None if options.api_keys is None else _open_keys(options)

    def admit(self, rpc: CallContext, context: GrpcContext) -> None:
        """Let a call in, and name its caller in `rpc.principal`.

        Raises:
            UnauthenticatedError: no API key, or one that is not valid.
            PermissionDeniedError: the call is for admins.
        """
        clients = [] if self._options.tls_client_ca is None else certificate_names(context)
        rpc.principal = clients[0] if clients else ""
        if rpc.service in OPEN_SERVICES or rpc.full_method in OPEN_METHODS:
            return
        key = None if self._keys is None else self._check_key(self._keys.get(), rpc)
        if key is not None:
            rpc.principal = key.name
        if rpc.full_method in ADMIN:
            self._check_admin(rpc, key, clients)

    def _check_key(self, keys: Sequence[ApiKey], rpc: CallContext) -> ApiKey:
        key = find_key(keys, bearer_of(rpc))
        if key is None:
            raise UnauthenticatedError("this API key is not known here")
        if key.expired(self._clock()):
            raise UnauthenticatedError(f"the API key {key.name!r} expired at {key.expires:%Y-%m-%d %H:%M %Z}")
        return key

    def _check_admin(self, rpc: CallContext, key: ApiKey | None, clients: Sequence[str]) -> None:
        who = f"{rpc.principal or 'somebody'} at {unquote(rpc.peer)}"
        who += f" with the certificate of {clients[0]}" if clients else ""
        by_key = key is not None and key.role is Role.ADMIN
        by_certificate = any(name in self._options.admin_clients for name in clients)
        if not (by_key or by_certificate or self._options.allow_admin):
            logger.warning("%s refused to %s", rpc.full_method, who)
            raise PermissionDeniedError(self._denial(rpc, key))
        logger.info("%s allowed to %s", rpc.full_method, who)

    def _denial(self, rpc: CallContext, key: ApiKey | None) -> str:
        if key is not None:
            return f"{rpc.method} takes an API key of the role admin; {key.name!r} has the role {key.role}"
        if self._options.admin_clients:
            return f"{rpc.method} is for clients that the server's --admin-client names; {rpc.principal!r} is none of them"
        return (
            f"{rpc.method} is off: start the server with --model-control explicit, and with --allow-admin or an API key of the "
            "role admin"
        )


def bearer_of(rpc: CallContext) -> str:
    """The API key that came with a call. Raises UnauthenticatedError: there is none."""
    scheme, _, secret = str(rpc.metadata.get("authorization", "")).partition(" ")
    if scheme.lower() != SCHEME or not secret.strip():
        raise UnauthenticatedError("no API key: send it in the metadata, as `authorization: Bearer KEY`")
    return secret.strip()


def certificate_names(context: GrpcContext) -> list[str]:
    """Of the client's verified certificate: its alternative names, or where it has none the subject's common name."""
    return [_printable(name.decode(errors="replace")) for name in context.peer_identities() or ()]


def _printable(name: str) -> str:
    """Whoever asks an authority for a certificate shall not write lines of our log."""
    return "".join(letter if letter.isprintable() else "?" for letter in name)


def _open_keys(options: SecurityOptions) -> Reloading[tuple[ApiKey, ...]]:
    path = options.api_keys
    assert path is not None
    warn_if_open(path)
    reloading = Reloading(f"API keys {path}", [path], lambda: read_keys(path), LOOK_SECONDS)
    if not reloading.get():
        raise SecurityError(f"{path}: no API key in it, so nobody could call; make one with `triptych keys create`")
    return reloading
