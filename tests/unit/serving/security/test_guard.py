"""Access control: API keys, certificates and admin calls."""

import logging
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from triptych_serving.errors import PermissionDeniedError, UnauthenticatedError
from triptych_serving.rpc import descriptors as services
from triptych_serving.rpc.active_calls import ModelLeases
from triptych_serving.rpc.call_context import CallContext, Observers
from triptych_serving.security.api_keys import Role, key_line, new_secret
from triptych_serving.security.guard import CHECK_SECONDS, GRPC_LOGGER, AccessGuard
from triptych_serving.security.options import SecurityOptions

FILE = Path("file.pem")
MUTUAL: dict[str, Any] = {"tls_certificate": FILE, "tls_key": FILE, "tls_client_ca": FILE}
TRANSLATE = "/triptych.v1.TranslationService/Translate"
LOAD = "/triptych.v1.ModelService/LoadModel"


@dataclass
class Connection:
    """The part of gRPC's context that the guard reads."""

    names: tuple[bytes, ...] | None = None

    def peer_identities(self) -> tuple[bytes, ...] | None:
        return self.names


def a_call(path: str, key: str = "") -> CallContext:
    service, method = path.lstrip("/").split("/")
    metadata = {"authorization": f"Bearer {key}"} if key else {}
    return CallContext(service, method, "unary", "id", "ipv4:127.0.0.1:1", metadata, ModelLeases(), Observers())


def admit(guard: AccessGuard, call: CallContext, *names: bytes) -> str:
    """Return the principal of an admitted call."""
    if guard.concerns(call.service, call.method, call.method_type):
        guard.admit(call, Connection(names))  # type: ignore[arg-type]
    return call.principal


def test_default_admits_every_call_but_admin_calls() -> None:
    guard = AccessGuard(SecurityOptions())
    assert admit(guard, a_call(TRANSLATE)) == ""
    assert admit(guard, a_call(TRANSLATE, "some-key"), b"ignored") == ""
    with pytest.raises(PermissionDeniedError, match=r"LoadModel is disabled: start the server with .* --allow-admin"):
        admit(guard, a_call(LOAD), b"ignored")
    assert admit(AccessGuard(SecurityOptions(allow_admin=True)), a_call(LOAD)) == ""


def test_control_characters_in_certificate_names_are_replaced() -> None:
    guard = AccessGuard(SecurityOptions(**MUTUAL))
    assert admit(guard, a_call(TRANSLATE), b"app\n2026-01-01 INFO all is well\x1b[0m") == "app?2026-01-01 INFO all is well?[0m"
    assert admit(guard, a_call(TRANSLATE), "größe ".encode()) == "größe?"


def test_certificates_identify_callers_and_admins() -> None:
    guard = AccessGuard(SecurityOptions(**MUTUAL, admin_clients=("ops",)))
    assert admit(guard, a_call(TRANSLATE), b"app", b"app.example.com") == "app"
    assert admit(guard, a_call(LOAD), b"host", b"ops") == "host"
    with pytest.raises(PermissionDeniedError, match="for the clients named by the server's --admin-client; 'app' is not one"):
        admit(guard, a_call(LOAD), b"app")
    with pytest.raises(PermissionDeniedError):
        admit(guard, a_call(LOAD))


@pytest.fixture
def secrets(tmp_path: Path) -> dict[str, str]:
    """Keys by name; their hashes are in the file `keys`."""
    secrets = {"app": new_secret(), "ops": new_secret(), "guest": new_secret()}
    lines = [
        key_line("app", Role.INFER, secrets["app"]),
        key_line("ops", Role.ADMIN, secrets["ops"]),
        key_line("guest", Role.ADMIN, secrets["guest"], "2027-06-30"),
    ]
    (tmp_path / "keys").write_text("\n".join(lines))
    return secrets


@pytest.fixture
def guard(tmp_path: Path, secrets: dict[str, str]) -> AccessGuard:
    """A guard with these keys."""
    return AccessGuard(SecurityOptions(api_keys=tmp_path / "keys"))


def test_keys_identify_callers_and_admins(guard: AccessGuard, secrets: dict[str, str]) -> None:
    assert admit(guard, a_call(TRANSLATE, secrets["app"])) == "app"
    assert admit(guard, a_call(TRANSLATE, secrets["ops"])) == admit(guard, a_call(LOAD, secrets["ops"])) == "ops"
    with pytest.raises(PermissionDeniedError, match="needs an API key with the role admin; 'app' has the role infer"):
        admit(guard, a_call(LOAD, secrets["app"]))
    for wrong in ("", new_secret(), secrets["app"][:-1]):
        with pytest.raises(UnauthenticatedError) as caught:
            admit(guard, a_call(TRANSLATE, wrong))
        assert not wrong or wrong not in str(caught.value)
    call = a_call(TRANSLATE, "x")
    with pytest.raises(UnauthenticatedError, match="authorization has no Bearer key: send it as `authorization: Bearer KEY`"):
        admit(guard, replace(call, metadata={"authorization": f"Basic {secrets['app']}"}))


def test_an_emptied_file_of_keys_is_logged(
    tmp_path: Path,
    guard: AccessGuard,
    secrets: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert admit(guard, a_call(TRANSLATE, secrets["app"])) == "app"
    (tmp_path / "keys").write_text("")
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + CHECK_SECONDS)
    with pytest.raises(UnauthenticatedError, match="unknown API key"):
        admit(guard, a_call(TRANSLATE, secrets["app"]))
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warnings == [f"{tmp_path / 'keys'}: no API keys, so every call is rejected"]


def test_a_key_with_stray_characters_is_refused_and_not_logged(
    guard: AccessGuard, secrets: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    assert admit(guard, a_call(TRANSLATE, f" {secrets['app']} ")) == "app"
    for stray in ("\xa0", "\t", "\u200b", "\r\n"):
        with pytest.raises(UnauthenticatedError, match=f"character 74 of .* is U\\+{ord(stray[0]):04X}") as caught:
            admit(guard, a_call(TRANSLATE, secrets["app"] + stray))
        assert secrets["app"] not in str(caught.value)
    logging.getLogger(GRPC_LOGGER).exception("Invalid encoding on %s", secrets["app"].encode() + b"\xa0")  # as gRPC does
    logging.getLogger(GRPC_LOGGER).error("another problem")
    assert [record.getMessage() for record in caplog.records if record.name == GRPC_LOGGER] == ["another problem"]


def test_expired_key(tmp_path: Path, secrets: dict[str, str]) -> None:
    now = datetime(2027, 6, 30, 23, 59, 59, tzinfo=UTC)
    guard = AccessGuard(SecurityOptions(api_keys=tmp_path / "keys"), lambda: now)
    assert admit(guard, a_call(LOAD, secrets["guest"])) == "guest"
    now = datetime(2027, 7, 1, tzinfo=UTC)
    for path in (TRANSLATE, LOAD):
        with pytest.raises(UnauthenticatedError, match="API key 'guest' expired at 2027-07-01 00:00 UTC"):
            admit(guard, a_call(path, secrets["guest"]))


def test_certificate_does_not_replace_a_key(tmp_path: Path, secrets: dict[str, str]) -> None:
    guard = AccessGuard(SecurityOptions(**MUTUAL, api_keys=tmp_path / "keys", admin_clients=("boss",)))
    with pytest.raises(UnauthenticatedError):
        admit(guard, a_call(TRANSLATE), b"boss")
    assert admit(guard, a_call(LOAD, secrets["app"]), b"boss") == "app"


def test_probes_need_no_key(tmp_path: Path, secrets: dict[str, str]) -> None:
    guard = AccessGuard(SecurityOptions(**MUTUAL, api_keys=tmp_path / "keys"))
    for path in ("/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch", "/inference.GRPCInferenceService/ServerReady"):
        assert admit(guard, a_call(path), b"probe") == "probe"
    with pytest.raises(UnauthenticatedError):
        admit(guard, a_call("/inference.GRPCInferenceService/ModelReady"), b"probe")
    for service in (*services.ALL_SERVICES, "grpc.health.v1.Healthy", "xgrpc.health.v1.Health"):
        with pytest.raises(UnauthenticatedError):
            admit(guard, a_call(f"/{service}/Any"), b"probe")
