"""`triptych keys`: manage the file of a server's API keys."""

import json
from datetime import UTC, datetime
from pathlib import Path

import click

from triptych_cli.common import options
from triptych_cli.common.errors import one_line
from triptych_cli.common.lines import check_stdout, print_table

HEADER = ("name", "role", "expires", "state")

file = options.option(
    "--api-keys", type=options.NEW_FILE, required=True, show_default=False, help="The file that `triptych serve` reads."
)


@click.group(name="keys")
def command() -> None:
    """Create, list and revoke the API keys of a server.

    The file contains only hashes of the keys. A running server applies changes within seconds.
    """


@command.command()
@click.argument("name")
@file
@click.option(
    "--role", type=click.Choice(["infer", "admin"]), default="infer", show_default=True, help="admin may also load models."
)
@click.option(
    "--expires", default="", metavar="DATE", help="Last day, UTC, or a moment such as 2027-06-30T12:00:00Z.  [default: never]"
)
def create(name: str, api_keys: Path, role: str, expires: str) -> None:
    """Create a key for NAME and print it.

    The key is shown only once and stored nowhere.
    """
    from triptych_serving.errors import SecurityError
    from triptych_serving.security.api_keys import Role, add_key, remove_key

    check_stdout()
    with one_line(SecurityError, ValueError):
        key = add_key(api_keys, name, Role(role), expires)
        try:
            click.echo(key)
        except OSError:  # nobody has seen it
            remove_key(api_keys, name)
            raise


@command.command(name="list")
@file
@options.as_json
def list_keys(api_keys: Path, as_json: bool) -> None:
    """List the name, role and expiry of each key."""
    from triptych_serving.errors import SecurityError
    from triptych_serving.security.api_keys import read_keys

    check_stdout()
    now = datetime.now(UTC)
    with one_line(SecurityError):
        keys = read_keys(api_keys)
    rows = [
        (key.name, str(key.role), key.expires.isoformat() if key.expires else "", "expired" if key.expired(now) else "valid")
        for key in keys
    ]
    if as_json:
        click.echo(json.dumps([dict(zip(HEADER, row, strict=True)) for row in rows]))
        return
    print_table([HEADER, *rows])


@command.command()
@click.argument("name")
@file
def revoke(name: str, api_keys: Path) -> None:
    """Remove the key of NAME.

    Running servers reject it within seconds.
    """
    from triptych_serving.errors import SecurityError
    from triptych_serving.security.api_keys import remove_key

    with one_line(SecurityError, ValueError):
        remove_key(api_keys, name)
