"""Connect to the server that the command line names, with the credentials that it gives."""

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import click
from click.core import ParameterSource

from triptych_cli.common.errors import one_line
from triptych_cli.common.options import kept
from triptych_embedded.request import InputError, ModelChoice, TranslationRequest

if TYPE_CHECKING:
    from triptych_client import Client, TriptychClientError
    from triptych_client.arguments import ModelArguments, ScoreArguments
    from triptych_client.connection import ChannelCredentials, Settings

FEW_RETRIES = 5  # about two seconds: an address may be wrong
SERVER_WAIT_SECONDS = 300.0  # deadline of a call of a batch command, which waits so long for a server that is away
NOTICE_SECONDS = 30.0
logger = logging.getLogger("triptych_client")


def connect(address: str, **settings: Any) -> "Client":
    """Make a client with the credentials of the running command.

    Args:
        settings: further settings of the client. By default a server that is not there is an error after a few seconds.

    Raises:
        click.ClickException: options contradict each other, a file cannot be used, or the API key would be sent unencrypted.
    """
    from triptych_client import Client

    with one_line(ValueError):
        return Client(_named(address), **_access(address), **{"retries": FEW_RETRIES, **settings})


def connection_settings(address: str, timeout_seconds: float) -> "Settings":
    """Return the settings of `connect` for code that makes its own calls. Raises click.ClickException: as for `connect`."""
    from triptych_client.connection import Settings, default_api_key, named_address

    with one_line(ValueError):
        access = _access(address)
        if access["api_key"] is None:
            access["api_key"] = default_api_key()
        return Settings(*named_address(_named(address)), **access, timeout_seconds=timeout_seconds)


def model_arguments(choice: ModelChoice) -> "ModelArguments":
    """Return the client's arguments for a model."""
    return {"model": choice.model or None, "model_version": choice.model_version or None}


def translation_arguments(request: TranslationRequest) -> "ScoreArguments":
    """Return the client's arguments for the model and the languages of a request."""
    return {
        **model_arguments(request),
        "source_language": request.source_language or None,
        "target_language": request.target_language or None,
    }


class PatientClient:
    """A client for many calls: after the first result, a server that is away is waited for, and standard error says so.

    A context manager.
    """

    def __init__(self, address: str) -> None:
        self.client = connect(address, retries=None, timeout_seconds=SERVER_WAIT_SECONDS)
        self.retries: int | None = FEW_RETRIES  # of the next call
        self._notice = _Notice()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        logger.removeHandler(self._notice)
        self.client.close()

    @one_line(ValueError)  # of arguments that are not Unicode, or out of range
    def run(self, method: str, inputs: Sequence[Any], **arguments: Any) -> list[Any]:
        """Call a method of the client. Return results; InputError for inputs that the server rejects."""
        results = getattr(self.client, method)(inputs, retries=self.retries, **arguments)
        self.succeeded()
        outcomes = list(results.outcomes)
        for index, error in results.errors.items():
            outcomes[index] = InputError(index, input_problem(error))
        return outcomes

    def succeeded(self) -> None:
        """Note that the server is there: from now on it is waited for."""
        if self.retries is not None:
            self.retries = None
            logger.setLevel(logging.INFO)
            logger.addHandler(self._notice)


class _Notice(logging.Handler):
    """Prints what the client waits for, from time to time."""

    next_time = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        error, pause = record.args if isinstance(record.args, tuple) and len(record.args) == 2 else ("", 0.0)
        if isinstance(pause, float) and pause >= 1 and record.created >= self.next_time:
            self.next_time = record.created + NOTICE_SECONDS
            click.echo(f"waiting for the server: {error}", err=True)


def input_problem(error: "TriptychClientError") -> str:
    """Return what is wrong with an input, without its index."""
    return "; ".join(violation.description for violation in error.violations) or error.message


@contextmanager
def input_errors(field: str) -> Iterator[None]:
    """Raise errors of the server about one input, such as `field[3]` of the request, as InputError with its index."""
    from triptych_client import InvalidArgumentError

    try:
        yield
    except InvalidArgumentError as error:
        for violation in error.violations:
            if found := re.fullmatch(rf"{field}\[(\d+)\]", violation.field):
                raise InputError(int(found[1]), violation.description) from error
        raise


def _named(address: str) -> str | None:
    """Return None if the address is that of TRIPTYCH_SERVER: the client reads the variable, and names it in errors."""
    source = click.get_current_context().get_parameter_source("server")
    return None if source is ParameterSource.ENVIRONMENT else address


def _access(address: str) -> dict[str, Any]:
    """Return the settings of the client that control access to the server."""
    if kept("tls") is False and address.lower().startswith("https:"):
        raise click.UsageError("https:// and --no-tls contradict each other")
    return {"credentials": _credentials(), "api_key": _api_key(), "allow_plaintext_keys": kept("allow_plaintext_keys")}


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
    """Return the key of --api-key-file; None: the client reads the environment variable."""
    path: Path | None = kept("api_key_file")
    if path is None:
        return None
    try:
        key = path.read_text(encoding="utf-8-sig").strip()
    except UnicodeDecodeError as error:
        raise click.ClickException(f"{path}: not an API key, which is ASCII text") from error
    if not key:
        raise click.ClickException(f"{path}: the file has no API key")
    return key
