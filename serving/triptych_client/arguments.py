"""The named arguments that several calls share, with their meaning. All may be left out."""

from typing import TypedDict

from triptych_client.options import DecodingOptions


class CallArguments(TypedDict, total=False):
    """The arguments of every call."""

    timeout_seconds: float | None
    """How long the call may take, its retries included; the client's `timeout_seconds` by default."""
    request_id: str | None
    """Sent as `x-request-id`, to find the call in the server's log; ASCII. A random one by default."""


class JobArguments(TypedDict, total=False):
    """What to translate into, with which model, and how."""

    target_language: str | None
    """BCP 47 ("de", "de-DE") or FLORES-200 ("deu_Latn"). May be left out where the model has one target language."""
    source_language: str | None
    """As `target_language`. May be left out where the model has one source language."""
    model: str | None
    """The model's name. May be left out where one model serves the pair of languages."""
    model_version: str | None
    """The newest by default."""
    options: DecodingOptions | None
    """How to decode; the model's defaults by default."""


class TranslateArguments(CallArguments, JobArguments, total=False):
    """The arguments of every kind of translation."""
