"""How the server ends, and its connections."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from triptych_cli.common import options

if TYPE_CHECKING:
    from triptych_serving.lifecycle import LifecycleOptions

Function = TypeVar("Function", bound=Callable[..., Any])
SECONDS = click.FloatRange(min=0)


flags = options.several(
    options.option(
        "--drain-delay-secs",
        type=SECONDS,
        default=0.0,
        help="Once asked to stop, tell health checks so and go on for this long before requests are refused.",
    ),
    options.option(
        "--exit-timeout-secs",
        type=SECONDS,
        default=30.0,
        help="From the signal to the end, the delay included; what still runs then is given up.",
    ),
    options.option(
        "--grpc-max-connection-age-secs",
        type=SECONDS,
        default=600.0,
        help="Close older connections once their calls are done, so that clients find new replicas; 0: never.",
    ),
    options.option(
        "--grpc-max-connection-age-grace-secs",
        type=SECONDS,
        default=0.0,
        help="Cut calls that take longer than this beyond the connection's age; 0: none.",
    ),
)


def read(values: dict[str, Any]) -> "LifecycleOptions":
    """The options, taken out of a command's values.

    Raises:
        click.UsageError: they contradict each other.
    """
    from triptych_serving.lifecycle import LifecycleOptions

    delay, timeout = values.pop("drain_delay_secs"), values.pop("exit_timeout_secs")
    if delay and delay >= timeout:
        raise click.UsageError(f"--drain-delay-secs {delay:g} must be below --exit-timeout-secs {timeout:g}")
    return LifecycleOptions(
        delay, timeout, values.pop("grpc_max_connection_age_secs"), values.pop("grpc_max_connection_age_grace_secs")
    )
