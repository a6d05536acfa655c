"""Security options: those without effect and contradictions are rejected."""

from pathlib import Path
from typing import Any

import pytest

from triptych_serving.errors import SecurityError
from triptych_serving.security.options import SecurityOptions

FILE = Path("file.pem")
TLS: dict[str, Any] = {"tls_certificate": FILE, "tls_key": FILE}
MUTUAL: dict[str, Any] = {**TLS, "tls_client_ca": FILE}
KEYS: dict[str, Any] = {"api_keys": FILE}


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"tls_key": FILE}, "--tls-key has no effect without --tls-cert"),
        ({"tls_certificate": FILE}, "--tls-cert needs --tls-key"),
        ({"tls_client_ca": FILE}, "--tls-client-ca has no effect without --tls-cert"),
        ({"admin_clients": ("ops",)}, "--admin-client has no effect without --tls-client-ca"),
        ({**TLS, "admin_clients": ("ops",)}, "--admin-client has no effect without --tls-client-ca"),
        ({**MUTUAL, "admin_clients": ("ops", "")}, "--admin-client is empty"),
        ({**MUTUAL, "admin_clients": ("ops",), "allow_admin": True}, "--admin-client has no effect with --allow-admin"),
        ({**KEYS, "allow_admin": True}, "--allow-admin would give every API key the role admin"),
        ({"allow_plaintext_keys": True}, "--allow-plaintext-keys has no effect without --api-keys"),
        ({**KEYS, **TLS, "allow_plaintext_keys": True}, "--allow-plaintext-keys has no effect with --tls-cert"),
    ],
)
def test_options_without_effect_are_rejected(options: dict[str, Any], fault: str) -> None:
    with pytest.raises(SecurityError) as caught:
        SecurityOptions(**options)
    assert fault in str(caught.value)


def test_all_faults_are_listed() -> None:
    with pytest.raises(SecurityError) as caught:
        SecurityOptions(tls_key=FILE, tls_client_ca=FILE, allow_plaintext_keys=True)
    assert len(str(caught.value).split("; ")) == 3


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({}, "no TLS, no authentication; model loading disabled"),
        (TLS, "TLS, no authentication; model loading disabled"),
        (MUTUAL, "mutual TLS, client certificates required; model loading disabled"),
        (KEYS, "no TLS, API keys required; model loading allowed for API keys with the role admin"),
        (
            {**MUTUAL, **KEYS, "admin_clients": ("ops",)},
            "mutual TLS, API keys required; model loading allowed for API keys with the role admin or ops",
        ),
        ({"allow_admin": True}, "no TLS, no authentication; model loading allowed for every caller"),
    ],
)
def test_description(options: dict[str, Any], line: str) -> None:
    assert SecurityOptions(**options).describe() == f"security: {line}"


@pytest.mark.parametrize(
    ("options", "host", "fine"),
    [
        (KEYS, "0.0.0.0", False),
        (KEYS, "::", False),
        (KEYS, "10.0.0.1", False),
        (KEYS, "localhost.example.com", False),
        (KEYS, "", False),
        (KEYS, "127.0.0.1", True),
        (KEYS, "127.9.9.9", True),
        (KEYS, "::1", True),
        (KEYS, "[::1]", True),
        (KEYS, "localhost", True),
        ({**KEYS, **TLS}, "0.0.0.0", True),
        ({**KEYS, "allow_plaintext_keys": True}, "0.0.0.0", True),
        ({}, "0.0.0.0", True),
    ],
)
def test_keys_without_tls_need_loopback(options: dict[str, Any], host: str, fine: bool) -> None:
    security = SecurityOptions(**options)
    if fine:
        security.check_host(host)
        return
    with pytest.raises(SecurityError, match=f"^--api-keys on {host} without TLS .* --allow-plaintext-keys$"):
        security.check_host(host)


@pytest.mark.parametrize("options", [{"allow_admin": True}, {**MUTUAL, "admin_clients": ("ops",)}])
def test_admin_options_need_explicit_model_control(options: dict[str, Any]) -> None:
    SecurityOptions(**options).check_control(explicit=True)
    with pytest.raises(SecurityError, match="has no effect without --model-control explicit"):
        SecurityOptions(**options).check_control(explicit=False)
    SecurityOptions(**KEYS).check_control(explicit=False)
