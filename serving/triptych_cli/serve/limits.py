"""Options of `triptych serve` for how much it takes on."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from triptych_cli.common import options

if TYPE_CHECKING:
    from triptych_serving.rpc.limits import LimitOptions

Function = TypeVar("Function", bound=Callable[..., Any])

COUNT = click.IntRange(min=1)


flags = options.several(
    options.option("--max-queue-requests", type=COUNT, default=4_096, help="Requests that may wait for a model."),
    options.option("--max-queue-rows", type=COUNT, default=16_384, help="Their rows, one for each sentence."),
    options.option("--max-queue-tokens", type=COUNT, default=1_048_576, help="Their tokens."),
    options.option(
        "--max-queue-secs",
        type=click.FloatRange(min=0),
        default=0.0,
        help="Refuse a request whose wait is expected to be longer; 0: however long it is.",
    ),
    options.option(
        "--refuse-late/--no-refuse-late",
        default=True,
        help="Refuse a request at once if it is not expected to be answered before its deadline.",
    ),
    options.option(
        "--max-requests-per-client",
        type=click.IntRange(min=0),
        default=0,
        help="Calls at a time of one API key, certificate or else address; a stream is one; 0: any number.",
    ),
    options.option("--max-message-bytes", type=click.IntRange(min=1024), default=64 << 20, help="Largest request or response."),
    options.option("--max-documents", type=COUNT, default=8, help="Documents that are translated at a time."),
    options.option("--max-document-bytes", type=COUNT, default=64 << 20, help="Largest document to translate."),
)


def read(values: dict[str, Any]) -> "LimitOptions":
    """The options, taken out of a command's values."""
    from triptych_serving.rpc.limits import LimitOptions

    return LimitOptions(
        queue_requests=values.pop("max_queue_requests"),
        queue_rows=values.pop("max_queue_rows"),
        queue_tokens=values.pop("max_queue_tokens"),
        queue_seconds=values.pop("max_queue_secs") or math.inf,
        refuse_late=values.pop("refuse_late"),
        requests_per_client=values.pop("max_requests_per_client"),
        message_bytes=values.pop("max_message_bytes"),
        documents=values.pop("max_documents"),
        document_bytes=values.pop("max_document_bytes"),
    )
