"""`triptych serve` with options of security: what they become, and which do not go together."""

from pathlib import Path

import click
import pytest

from triptych_cli.serve import security
from triptych_serving import server
from triptych_serving.security.options import SecurityOptions
from triptych_serving.server import ServerOptions

from ....fixtures.certificates import Authority
from ....fixtures.toy import MODELS
from ..conftest import Run


def test_flags_become_options(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[SecurityOptions] = []

    async def serve(options: ServerOptions) -> None:
        served.append(options.security)

    monkeypatch.setattr(server, "serve", serve)
    monkeypatch.setenv("TRIPTYCH_TLS_CLIENT_CA", "ca.pem")
    files = ("--tls-cert", "cert.pem", "--tls-key", "key.pem", "--api-keys", "keys")
    assert run("serve", *files, "--admin-client", "ops", "--admin-client", "spiffe://example/ops").code == 0
    assert run("serve").code == 2  # the variable alone has no effect
    monkeypatch.delenv("TRIPTYCH_TLS_CLIENT_CA")
    monkeypatch.setenv("TRIPTYCH_ADMIN_CLIENT", "one two")
    assert run("serve", *files, "--tls-client-ca", "ca.pem").code == 0
    monkeypatch.delenv("TRIPTYCH_ADMIN_CLIENT")
    assert run("serve", "--allow-admin").code == 0
    assert run("serve", "--api-keys", "keys", "--allow-plaintext-keys").code == 0
    assert served == [
        SecurityOptions(
            Path("cert.pem"), Path("key.pem"), Path("ca.pem"), Path("keys"), admin_clients=("ops", "spiffe://example/ops")
        ),
        SecurityOptions(Path("cert.pem"), Path("key.pem"), Path("ca.pem"), Path("keys"), admin_clients=("one", "two")),
        SecurityOptions(allow_admin=True),
        SecurityOptions(api_keys=Path("keys"), allow_plaintext_keys=True),
    ]


@pytest.mark.parametrize(
    ("flags", "fault"),
    [
        (("--tls-key", "k"), "--tls-key has no effect without --tls-cert"),
        (("--tls-cert", "c"), "--tls-cert needs --tls-key"),
        (("--tls-client-ca", "c"), "--tls-client-ca has no effect without --tls-cert and --tls-key"),
        (("--admin-client", "c"), "--admin-client has no effect without --tls-client-ca"),
        (("--allow-plaintext-keys",), "--allow-plaintext-keys has no effect without --api-keys"),
        (("--api-keys", "k", "--allow-admin"), "--allow-admin would give every API key the role admin"),
    ],
)
def test_flags_without_effect(run: Run, flags: tuple[str, ...], fault: str) -> None:
    result = run("serve", *flags)
    assert result.code == 2
    assert result.error.startswith(fault)


def test_servers_that_would_be_less_safe_than_they_look_do_not_start(run: Run, tmp_path: Path) -> None:
    authority, keys, faulty = Authority(tmp_path), tmp_path / "keys", tmp_path / "faulty"
    keys.write_text("# none yet\n")
    faulty.write_text("app infer\nops\n")
    first, second = authority.sign("first"), authority.sign("second")
    host = ("--host", "127.0.0.1")
    for flags, fault in (
        (
            (*host, "--api-keys", keys),
            f"{keys}: no API keys, so every call would be rejected; create one with `triptych keys create`",
        ),
        ((*host, "--api-keys", faulty), f"{faulty}: line 1: 2 columns, expected name"),
        ((*host, "--api-keys", tmp_path / "none"), f"{tmp_path / 'none'}: No such file or directory"),
        (("--api-keys", keys), "--api-keys on 0.0.0.0 without TLS would send keys unencrypted"),
        (("--tls-cert", first.certificate, "--tls-key", second.key), f"{second.key}: does not belong to the certificate"),
        (("--tls-cert", first.certificate, "--tls-key", tmp_path / "none"), f"{tmp_path / 'none'}: No such file or directory"),
        (("--allow-admin",), "--allow-admin has no effect without --model-control explicit"),
    ):
        result = run("serve", "--models", MODELS, "--port", "0", *flags)
        assert result.code == 1
        [line] = [line for line in result.err.splitlines() if line.startswith("Error: ")]
        assert line.startswith(f"Error: {fault}")


def test_the_guide_has_every_flag() -> None:
    guide = (Path(__file__).parents[4] / "serving" / "docs" / "security.md").read_text(encoding="utf-8")

    @security.flags
    @click.command()
    def command() -> None:
        """Nothing."""

    assert command.params
    for flag in command.params:
        assert f"| `{flag.opts[0]}" in guide
        assert f"`{flag.envvar}`" in guide
