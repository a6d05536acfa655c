"""Options of `triptych serve` for TLS, API keys and admin calls."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from triptych_cli.common import options

if TYPE_CHECKING:
    from triptych_serving.security.options import SecurityOptions

Function = TypeVar("Function", bound=Callable[..., Any])

FILE = click.Path(path_type=Path)


flags = options.several(
    options.option("--tls-cert", type=FILE, default=None, help="Certificate and intermediate ones, PEM; turns TLS on."),
    options.option("--tls-key", type=FILE, default=None, help="The certificate's key, PEM."),
    options.option("--tls-client-ca", type=FILE, default=None, help="Take only clients with a certificate of these CAs."),
    options.option("--api-keys", type=FILE, default=None, help="Take only callers with a key of this file."),
    options.option("--allow-plaintext-keys", is_flag=True, help="Take API keys without TLS: a proxy in front does that."),
    options.option("--allow-admin", is_flag=True, help="Let every caller load and unload models."),
    options.option(
        "--admin-client",
        multiple=True,
        metavar="NAME",
        help="Let the client with this name in its certificate load and unload models; may be repeated.",
    ),
)


def read(values: dict[str, Any]) -> "SecurityOptions":
    """Take them out of a command's values.

    Raises:
        click.UsageError: one would have no effect, or contradicts another.
    """
    from triptych_serving.errors import SecurityError
    from triptych_serving.security.options import SecurityOptions

    try:
        return SecurityOptions(
            tls_certificate=values.pop("tls_cert"),
            tls_key=values.pop("tls_key"),
            tls_client_ca=values.pop("tls_client_ca"),
            api_keys=values.pop("api_keys"),
            allow_plaintext_keys=values.pop("allow_plaintext_keys"),
            allow_admin=values.pop("allow_admin"),
            admin_clients=values.pop("admin_client"),
        )
    except SecurityError as error:
        raise click.UsageError(str(error)) from error
