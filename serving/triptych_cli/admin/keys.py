"""`triptych keys`: the file of a server's API keys."""

import json
from datetime import UTC, datetime
from pathlib import Path

import click

from triptych_cli.common import options
from triptych_cli.common.errors import one_line

HEADER = ("name", "role", "expires", "state")

file = options.option(
    "--api-keys",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    show_default=False,
    help="The file, as `triptych serve` takes it.",
)


@click.group(name="keys")
def command() -> None:
    """Make, list and revoke the API keys of a server.

    The file keeps hashes alone. A server that runs takes a change over within seconds.
    """


@command.command()
@click.argument("name")
@file
@click.option(
    "--role", type=click.Choice(["infer", "admin"]), default="infer", show_default=True, help="admin may also load models."
)
@click.option("--expires", default="", metavar="DATE", help="Last day, UTC, such as 2027-06-30.  [default: never]")
def create(name: str, api_keys: Path, role: str, expires: str) -> None:
    """Make a key for NAME and print it.

    It is shown this once, and kept nowhere.
    """
    from triptych_serving.errors import SecurityError
    from triptych_serving.security.api_keys import Role, add_key

    with one_line(SecurityError, ValueError):
        click.echo(add_key(api_keys, name, Role(role), expires))


@command.command(name="list")
@file
@click.option("--json", "as_json", is_flag=True, help="For scripts.")
def list_keys(api_keys: Path, as_json: bool) -> None:
    """List names, roles, and when each key expires."""
    from triptych_serving.errors import SecurityError
    from triptych_serving.security.api_keys import read_keys

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
    widths = [max(map(len, column)) for column in zip(HEADER, *rows, strict=True)]
    for row in (HEADER, *rows):
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


@command.command()
@click.argument("name")
@file
def revoke(name: str, api_keys: Path) -> None:
    """Take out the key of NAME.

    Servers that run refuse it within seconds.
    """
    from triptych_serving.errors import SecurityError
    from triptych_serving.security.api_keys import remove_key

    with one_line(SecurityError, ValueError):
        remove_key(api_keys, name)
