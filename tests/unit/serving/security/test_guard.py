"""Who may call what."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from triptych_serving.errors import PermissionDeniedError, UnauthenticatedError
from triptych_serving.rpc import descriptors as services
from triptych_serving.rpc.active_calls import ModelLeases
from triptych_serving.rpc.call_context import CallContext, Observers
from triptych_serving.security.api_keys import Role, key_line, new_secret
from triptych_serving.security.guard import AccessGuard
from triptych_serving.security.options import SecurityOptions

FILE = Path("file.pem")
MUTUAL: dict[str, Any] = {"tls_certificate": FILE, "tls_key": FILE, "tls_client_ca": FILE}
TRANSLATE = "/triptych.v1.TranslationService/Translate"
LOAD = "/triptych.v1.ModelService/LoadModel"


@dataclass
class Connection:
    """As much of gRPC's context as the guard looks at."""

    names: tuple[bytes, ...] | None = None

    def peer_identities(self) -> tuple[bytes, ...] | None:
        return self.names


def call(path: str, key: str = "") -> CallContext:
    service, method = path.lstrip("/").split("/")
    metadata = {"authorization": f"Bearer {key}"} if key else {}
    return CallContext(service, method, "unary", "id", "ipv4:127.0.0.1:1", metadata, ModelLeases(), Observers())


def admit(guard: AccessGuard, rpc: CallContext, *names: bytes) -> str:
    """Who the guard takes the caller for."""
    guard.admit(rpc, Connection(names))  # type: ignore[arg-type]
    return rpc.principal


def test_nobody_is_asked_and_nobody_is_admin_by_default() -> None:
    guard = AccessGuard(SecurityOptions())
    assert admit(guard, call(TRANSLATE)) == ""
    assert admit(guard, call(TRANSLATE, "some-key"), b"ignored") == ""
    with pytest.raises(PermissionDeniedError, match=r"LoadModel is off: start the server with .* --allow-admin"):
        admit(guard, call(LOAD), b"ignored")


def test_everybody_is_admin_on_request() -> None:
    assert admit(AccessGuard(SecurityOptions(allow_admin=True)), call(LOAD)) == ""


def test_names_of_certificates_are_one_line() -> None:
    guard = AccessGuard(SecurityOptions(**MUTUAL))
    assert admit(guard, call(TRANSLATE), b"app\n2026-01-01 INFO all is well\x1b[0m") == "app?2026-01-01 INFO all is well?[0m"
    assert admit(guard, call(TRANSLATE), "größe ".encode()) == "größe?"


def test_certificates_name_callers_and_admins() -> None:
    guard = AccessGuard(SecurityOptions(**MUTUAL, admin_clients=("ops",)))
    assert admit(guard, call(TRANSLATE), b"app", b"app.example.com") == "app"
    assert admit(guard, call(LOAD), b"host", b"ops") == "host"
    with pytest.raises(PermissionDeniedError, match="for clients that the server's --admin-client names; 'app' is none"):
        admit(guard, call(LOAD), b"app")
    with pytest.raises(PermissionDeniedError):
        admit(guard, call(LOAD))


@pytest.fixture
def secrets(tmp_path: Path) -> dict[str, str]:
    """Keys by name, in the file `keys`."""
    secrets = {"app": new_secret(), "ops": new_secret(), "guest": new_secret()}
    lines = [
        key_line("app", Role.INFER, secrets["app"]),
        key_line("ops", Role.ADMIN, secrets["ops"]),
        key_line("guest", Role.ADMIN, secrets["guest"], "2027-06-30"),
    ]
    (tmp_path / "keys").write_text("\n".join(lines))
    return secrets


def test_keys_name_callers_and_admins(tmp_path: Path, secrets: dict[str, str]) -> None:
    guard = AccessGuard(SecurityOptions(api_keys=tmp_path / "keys"))
    assert admit(guard, call(TRANSLATE, secrets["app"])) == "app"
    assert admit(guard, call(TRANSLATE, secrets["ops"])) == admit(guard, call(LOAD, secrets["ops"])) == "ops"
    with pytest.raises(PermissionDeniedError, match="takes an API key of the role admin; 'app' has the role infer"):
        admit(guard, call(LOAD, secrets["app"]))
    for wrong in ("", new_secret(), secrets["app"][:-1]):
        with pytest.raises(UnauthenticatedError) as caught:
            admit(guard, call(TRANSLATE, wrong))
        assert not wrong or wrong not in str(caught.value)


def test_a_key_ends_with_its_last_day(tmp_path: Path, secrets: dict[str, str]) -> None:
    now = datetime(2027, 6, 30, 23, 59, 59, tzinfo=UTC)
    guard = AccessGuard(SecurityOptions(api_keys=tmp_path / "keys"), lambda: now)
    assert admit(guard, call(LOAD, secrets["guest"])) == "guest"
    now = datetime(2027, 7, 1, tzinfo=UTC)
    for path in (TRANSLATE, LOAD):
        with pytest.raises(UnauthenticatedError, match="the API key 'guest' expired at 2027-07-01 00:00 UTC"):
            admit(guard, call(path, secrets["guest"]))


def test_a_certificate_does_not_stand_in_for_a_key(tmp_path: Path, secrets: dict[str, str]) -> None:
    guard = AccessGuard(SecurityOptions(**MUTUAL, api_keys=tmp_path / "keys", admin_clients=("boss",)))
    with pytest.raises(UnauthenticatedError):
        admit(guard, call(TRANSLATE), b"boss")
    assert admit(guard, call(LOAD, secrets["app"]), b"boss") == "app"


def test_probes_need_no_key_and_are_named_where_they_can_be(tmp_path: Path, secrets: dict[str, str]) -> None:
    guard = AccessGuard(SecurityOptions(**MUTUAL, api_keys=tmp_path / "keys"))
    for path in ("/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch", "/inference.GRPCInferenceService/ServerReady"):
        assert admit(guard, call(path), b"probe") == "probe"
    with pytest.raises(UnauthenticatedError):
        admit(guard, call("/inference.GRPCInferenceService/ModelReady"), b"probe")


def test_no_service_is_open_by_its_name(tmp_path: Path, secrets: dict[str, str]) -> None:
    guard = AccessGuard(SecurityOptions(api_keys=tmp_path / "keys"))
    for service in (*services.ALL_SERVICES, "grpc.health.v1.Healthy", "xgrpc.health.v1.Health"):
        with pytest.raises(UnauthenticatedError):
            admit(guard, call(f"/{service}/Any"))
