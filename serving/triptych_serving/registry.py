"""The models that a process has loaded, and which of them a request means."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from triptych_serving.bundle import open_bundle
from triptych_serving.errors import BundleError, InvalidInputError, NotFoundError, UnavailableError
from triptych_serving.languages import find_language
from triptych_serving.repository import Entry, newest_versions
from triptych_serving.translator import Translator, TranslatorOptions

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Loaded:
    """A model of the repository: `translator` where it loaded, else `fault` says why not."""

    entry: Entry
    translator: Translator | None
    fault: str = ""


@dataclass(frozen=True)
class Wish:
    """What a request says about the model that it wants; empty members leave it open."""

    model: str = ""
    version: str = ""
    source_language: str = ""
    target_language: str = ""


class Registry:
    """All models of one repository."""

    def __init__(self, models: Sequence[Loaded]) -> None:
        self.models = tuple(models)

    @property
    def translators(self) -> list[Translator]:
        """Those that can serve."""
        return [model.translator for model in self.models if model.translator is not None]

    def find(self, wish: Wish) -> Translator:
        """The one model that a request means.

        Raises:
            NotFoundError: no model has this name, version or language pair.
            UnavailableError: the model is there but could not be loaded.
            InvalidInputError: a language code is malformed, or several models would do.
        """
        candidates = [t for t in self._named(wish) if _translates(t, wish)]
        if not candidates:
            wanted = f"{wish.source_language or 'any language'} to {wish.target_language or 'any language'}"
            raise NotFoundError(f"no model translates {wanted}; there are: {self._pairs()}")
        if len(candidates) > 1:
            names = ", ".join(sorted(t.name for t in candidates))
            raise InvalidInputError("model", f"several models would do, name one of: {names}")
        return candidates[0]

    def close(self, drain: bool = True) -> None:
        """Stop every model."""
        for translator in self.translators:
            translator.close(drain)

    def _named(self, wish: Wish) -> list[Translator]:
        if not wish.model:
            return self.translators
        entries = [m for m in self.models if m.entry.name == wish.model]
        if not entries:
            names = ", ".join(sorted({m.entry.name for m in self.models})) or "none"
            raise NotFoundError(f"model {wish.model!r} is not here; there are: {names}")
        versions = [m for m in entries if wish.version in ("", str(m.entry.version))]
        if not versions:
            numbers = ", ".join(str(m.entry.version) for m in entries)
            raise NotFoundError(f"model {wish.model!r} has no version {wish.version!r}; there are: {numbers}")
        ready = [m.translator for m in versions if m.translator is not None]
        if not ready:
            raise UnavailableError(f"model {wish.model!r} could not be loaded: {versions[0].fault}")
        return ready

    def _pairs(self) -> str:
        pairs = [
            f"{'/'.join(t.manifest.source_languages)} to {'/'.join(t.manifest.target_languages)} ({t.name})"
            for t in self.translators
        ]
        return ", ".join(sorted(pairs)) or "none"


def load_registry(root: Path, options: TranslatorOptions, only: str = "") -> Registry:
    """Load the newest version of every model, or of the one named `only`; one that cannot be loaded does not stop the others.

    Raises:
        RepositoryError: the repository is missing or empty.
        NotFoundError: `only` names no model.
    """
    entries = newest_versions(root)
    if only:
        entries = [entry for entry in entries if entry.name == only]
        if not entries:
            names = ", ".join(entry.name for entry in newest_versions(root))
            raise NotFoundError(f"model {only!r} is not in {root}; there are: {names}")
    return Registry([_load(entry, options) for entry in entries])


def _load(entry: Entry, options: TranslatorOptions) -> Loaded:
    try:
        return Loaded(entry, Translator(entry.name, entry.version, open_bundle(entry.folder), options))
    except BundleError as error:
        logger.error("model %s version %d cannot be served: %s", entry.name, entry.version, error)
        return Loaded(entry, None, str(error))


def _translates(translator: Translator, wish: Wish) -> bool:
    manifest = translator.manifest
    sides = (
        (wish.source_language, manifest.source_languages, "source_language_code"),
        (wish.target_language, manifest.target_languages, "target_language_code"),
    )
    return all(not code or find_language(code, offered, field) is not None for code, offered, field in sides)
