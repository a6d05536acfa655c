"""The Triptych client: translations from a Triptych server, in a few lines.

    from triptych_client import Client

    with Client("localhost:8001") as client:
        translation = client.translate("Guten Morgen!", target_language="en")
        print(translation.text)
        for translation in client.translate_many(["Eins.", "Zwei."], target_language="en"):
            print(translation.text, translation.finish_reason)

`AsyncClient` is the same for asyncio. What a call can raise is drawn in `triptych_client.errors`; the named arguments that
the calls share are in `triptych_client.arguments`.
"""

from triptych_client.async_client import AsyncClient
from triptych_client.async_stream import AsyncTranslationStream
from triptych_client.client import Client
from triptych_client.errors import (
    CallCancelledError,
    DeadlineExceededError,
    FailedPreconditionError,
    FieldViolation,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    ResourceExhaustedError,
    ServerError,
    TriptychClientError,
    UnauthenticatedError,
    UnavailableError,
    UnimplementedError,
)
from triptych_client.options import DecodingOptions, SplitSentences
from triptych_client.results import FinishReason, Hypothesis, Model, ModelState, Timing, Translation, Translations
from triptych_client.stream import TranslationStream
from triptych_client.version import __version__

__all__ = [
    "AsyncClient",
    "AsyncTranslationStream",
    "CallCancelledError",
    "Client",
    "DeadlineExceededError",
    "DecodingOptions",
    "FailedPreconditionError",
    "FieldViolation",
    "FinishReason",
    "Hypothesis",
    "InvalidArgumentError",
    "Model",
    "ModelState",
    "NotFoundError",
    "PermissionDeniedError",
    "ResourceExhaustedError",
    "ServerError",
    "SplitSentences",
    "Timing",
    "Translation",
    "TranslationStream",
    "Translations",
    "TriptychClientError",
    "UnauthenticatedError",
    "UnavailableError",
    "UnimplementedError",
    "__version__",
]
