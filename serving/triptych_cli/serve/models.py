"""Flags about the models of a server: where they are, which versions are loaded, and when."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from triptych_cli.common import options
from triptych_embedded.repository import embedded_repository

if TYPE_CHECKING:
    from triptych_serving.repository.model_manager import RepositoryOptions

Function = TypeVar("Function", bound=Callable[..., Any])

CONTROLS = ("none", "poll", "explicit")
WARM_UPS = ("none", "usual", "all")
POLL_SECONDS = 15.0

flags = options.several(
    options.models,
    options.option("--model", default="", help="Serve only this model.  [default: all]", show_default=False),
    options.option(
        "--model-control",
        type=click.Choice(CONTROLS),
        default="none",
        help="When models are loaded: at the start alone, as the repository changes, or when LoadModel and UnloadModel say so.",
    ),
    options.option(
        "--poll-interval-secs",
        type=click.FloatRange(min=0.1),
        default=None,
        help=f"Between two looks at the repository, with --model-control poll.  [default: {POLL_SECONDS:g}]",
        show_default=False,
    ),
    options.option(
        "--warm-up",
        type=click.Choice(WARM_UPS),
        default="all",
        help="What a model runs before it serves: nothing, what requests without options need, or every graph it has.",
    ),
    options.option(
        "--load-model",
        multiple=True,
        help="Load this model at the start, with --model-control explicit; may be repeated, '*' is all.",
        show_default=False,
    ),
)


def read(values: dict[str, Any]) -> RepositoryOptions:
    """The options, taken out of a command's values.

    Raises:
        click.UsageError: a flag is given that has no effect beside another.
    """
    from triptych_serving.repository.model_manager import ModelControl, RepositoryOptions
    from triptych_serving.repository.warmup import WarmUp

    control = ModelControl(values.pop("model_control"))
    root, model = values.pop("models") or embedded_repository(), values.pop("model")
    warm_up = WarmUp(values.pop("warm_up"))
    seconds, load = values.pop("poll_interval_secs"), tuple(values.pop("load_model"))
    if seconds is not None and control is not ModelControl.POLL:
        raise click.UsageError("--poll-interval-secs has no effect without --model-control poll")
    if load and control is not ModelControl.EXPLICIT:
        raise click.UsageError("--load-model has no effect without --model-control explicit")
    if model and control is ModelControl.EXPLICIT:
        raise click.UsageError("--model is not for --model-control explicit; name models with --load-model")
    return RepositoryOptions(root, model, control, POLL_SECONDS if seconds is None else seconds, warm_up, load)
