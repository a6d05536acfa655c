"""A client of the server that the command line names."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from triptych_cli.common.errors import one_line
from triptych_cli.common.options import kept

if TYPE_CHECKING:
    from triptych_client import Client
    from triptych_client.credentials import ChannelCredentials
    from triptych_client.settings import Settings


def connect(address: str, **settings: Any) -> "Client":
    """With the credentials that the running command was given.

    Args:
        address: of the server.
        settings: more of the client's own.

    Raises:
        click.ClickException: they contradict each other, a file cannot be used, or the API key would travel in the clear.
    """
    from triptych_client import Client

    with one_line(ValueError):
        credentials, key = _credentials(), _api_key()
        settings["allow_plaintext_keys"] = kept("allow_plaintext_keys")
        return Client(address, credentials=credentials, api_key=key, **settings)


def _credentials() -> "ChannelCredentials | None":
    from triptych_client import tls_credentials

    ca, certificate, key = kept("tls_ca"), kept("tls_client_cert"), kept("tls_client_key")
    given = [name for name, value in (("ca", ca), ("client-cert", certificate), ("client-key", key)) if value]
    if kept("tls") is False and given:
        raise click.UsageError(f"--tls-{given[0]} has no effect with --no-tls")
    if ("client-cert" in given) != ("client-key" in given):
        raise click.UsageError("--tls-client-cert and --tls-client-key are a pair: give both or neither")
    return tls_credentials(ca, certificate, key) if given or kept("tls") else None


def _api_key() -> str | None:
    """None: the client looks into the environment."""
    path: Path | None = kept("api_key_file")
    if path is None:
        return None
    key = path.read_text(encoding="utf-8").strip()
    if not key:
        raise click.ClickException(f"{path}: no API key in it")
    return key


def connection_settings(address: str, timeout_seconds: float) -> "Settings":
    """As `connect`, for those that make their own calls.

    Raises:
        click.ClickException: as `connect`.
    """
    from triptych_client.credentials import default_api_key
    from triptych_client.settings import Settings

    with one_line(ValueError):
        key = _api_key()
        return Settings(
            address=address,
            credentials=_credentials(),
            api_key=default_api_key() if key is None else key,
            allow_plaintext_keys=kept("allow_plaintext_keys"),
            timeout_seconds=timeout_seconds,
        )
