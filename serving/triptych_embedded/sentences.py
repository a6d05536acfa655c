"""The interface of sentence translators, and the identity of the model behind one.

Light: it imports neither numpy nor a runtime.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Protocol

from triptych.decoding import DecodingOptions, SplitSentences
from triptych_documents.sentences import Refusal, SentenceRequest, SentenceTranslation

SentenceOutcome = tuple[SentenceRequest, SentenceTranslation | Refusal]


@dataclass(frozen=True)
class TranslatorIdentity:
    """Identity of a model with languages and options. Translations of equal identities may replace each other."""

    model: str
    version: str
    precision: str = ""  # for instance "int8"; empty if a server does not tell
    bundle: str = ""  # SHA-256 of the manifest, which has the digests of all files; empty for a model on a server
    source_language: str = ""  # the model's code, or the user's
    target_language: str = ""  # likewise
    decoding: Mapping[str, object] = field(default_factory=dict)  # the options that the user set; see `chosen_options`

    @property
    def text(self) -> str:
        """The identity as canonical JSON."""
        return canonical(vars(self))


class SentenceTranslator(Protocol):
    """Translates single sentences: takes requests at any time and returns outcomes in any order. Not thread-safe."""

    @property
    def identity(self) -> TranslatorIdentity:
        """Model, languages and options of the translations."""

    @property
    def window(self) -> int:
        """Number of pending requests that keeps the translator busy."""

    def submit(self, requests: Sequence[SentenceRequest]) -> None:
        """Queue requests. Raises BackendError: no more requests can be translated."""

    def take(self, patience_seconds: float) -> Sequence[SentenceOutcome]:
        """Return the outcomes since the last call; wait at most `patience_seconds` for the first. There may be none.

        Raises:
            BackendError: no more requests can be translated.
        """


def chosen_options(options: DecodingOptions) -> dict[str, object]:
    """Return the options that are not left to the model, for `TranslatorIdentity`; 0 counts as a choice."""
    values = ((option, getattr(options, option.name)) for option in fields(options))
    chosen = {option.name: value for option, value in values if value != option.default}
    return {**chosen, "target_prefix": options.target_prefix[0]} if options.target_prefix else chosen


def sentence_options(options: DecodingOptions, requests: Sequence[SentenceRequest], aligned: bool) -> DecodingOptions:
    """Return the options for these requests: whole sentences, all with the same prefix."""
    return replace(
        options,
        target_prefix=options.target_prefix * len(requests),
        return_alignment=aligned,
        split_sentences=SplitSentences.OFF,
    )


def canonical(values: object) -> str:
    """Return JSON that is the same for equal values."""
    return json.dumps(values, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def digest(content: bytes | str) -> str:
    """Return the SHA-256 in hexadecimal."""
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()
