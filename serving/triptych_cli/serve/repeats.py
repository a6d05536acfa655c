"""Flags about requests that come more than once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from triptych_cli.common import options

if TYPE_CHECKING:
    from triptych_serving.response_cache.response_cache import ResponseCacheOptions

Function = TypeVar("Function", bound=Callable[..., Any])


flags = options.several(
    options.option(
        "--response-cache-bytes",
        type=click.IntRange(min=0),
        default=0,
        help="Memory for answers that are kept for when the same is asked again; 0 keeps none.",
    ),
    options.option(
        "--deduplicate/--no-deduplicate", default=False, help="Compute equal requests that are in flight together once."
    ),
)


def read(values: dict[str, Any]) -> ResponseCacheOptions:
    """The options, taken out of a command's values."""
    from triptych_serving.response_cache.response_cache import ResponseCacheOptions

    return ResponseCacheOptions(values.pop("response_cache_bytes"), values.pop("deduplicate"))
