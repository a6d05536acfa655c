"""The models that a process has loaded, and which of them a request means."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from triptych_serving.capability import VERBS, unsupported
from triptych_serving.encoder import DEFAULTS, EncoderOptions
from triptych_serving.errors import BundleError, InvalidInputError, NotFoundError, UnavailableError
from triptych_serving.imagemodel import ImageModel
from triptych_serving.languagepair import SOURCE, TARGET, resolve_pair
from triptych_serving.languages import UNDETERMINED, describe_side, find_language
from triptych_serving.loading import load_model
from triptych_serving.manifest import IMAGE_CLASSIFICATION, TRANSLATION
from triptych_serving.model import Model
from triptych_serving.repository import Entry, newest_versions
from triptych_serving.textmodel import TextModel
from triptych_serving.translator import Translator, TranslatorOptions

logger = logging.getLogger(__name__)

Found = TypeVar("Found", bound=Model)


@dataclass(frozen=True)
class Loaded:
    """A model of the repository: `model` where it loaded, else `fault` says why not."""

    entry: Entry
    model: Model | None
    fault: str = ""


@dataclass(frozen=True)
class Wish:
    """What a request says about the model that it wants; empty members leave it open. Languages are for translation alone."""

    model: str = ""
    version: str = ""
    source_language: str = ""
    target_language: str = ""


class Registry:
    """All models of one repository."""

    def __init__(self, models: Sequence[Loaded]) -> None:
        self.models = tuple(models)

    @property
    def ready(self) -> list[Model]:
        """Those that can serve."""
        return [loaded.model for loaded in self.models if loaded.model is not None]

    @property
    def translators(self) -> list[Translator]:
        """Those that can translate."""
        return [model for model in self.ready if isinstance(model, Translator)]

    def find(self, wish: Wish) -> Translator:
        """The one translation model that a request means.

        Raises:
            NotFoundError: no model has this name, version or language pair.
            UnsupportedError: the model that is named does not translate.
            UnavailableError: the model is there but could not be loaded.
            InvalidInputError: a language code is malformed, or missing where the model has several, or several models would do.
        """
        named = self._able(wish, TRANSLATION)
        candidates = [model for model in named if isinstance(model, Translator) and _translates(model, wish)]
        if not candidates:
            wanted = f"{wish.source_language or 'any language'} to {wish.target_language or 'any language'}"
            raise NotFoundError(f"no model translates {wanted}; there are: {self._pairs()}")
        if wish.source_language or wish.target_language:  # a model that names it goes before one that takes any
            candidates = [model for model in candidates if not _takes_any(model)] or candidates
        translator = _only(candidates)
        resolve_pair(translator.manifest, wish.source_language, wish.target_language)
        return translator

    def find_text(self, wish: Wish, capability: str) -> TextModel:
        """The one model of the text family that a request means; `capability` is one of triptych_serving.capability.

        Raises:
            NotFoundError: no model has this name or version, or none can do it.
            UnsupportedError: the model that is named cannot do it.
            UnavailableError: the model is there but could not be loaded.
            InvalidInputError: several models would do.
        """
        return _only([model for model in self._some_able(wish, capability) if isinstance(model, TextModel)])

    def find_image(self, wish: Wish) -> ImageModel:
        """The one model that a request to classify images means.

        Raises:
            ServingError: as for `find_text`.
        """
        return _only([model for model in self._some_able(wish, IMAGE_CLASSIFICATION) if isinstance(model, ImageModel)])

    def select(self, name: str, version: str = "") -> list[Loaded]:
        """The models of this name and version, where empty is any; at least one.

        Raises:
            NotFoundError: there is none.
        """
        named = [m for m in self.models if name in ("", m.entry.name)]
        if not named:
            names = ", ".join(sorted({m.entry.name for m in self.models})) or "none"
            raise NotFoundError(f"model {name!r} is not here; there are: {names}")
        found = [m for m in named if version in ("", str(m.entry.version))]
        if not found:
            there = ", ".join(f"{m.entry.name} version {m.entry.version}" for m in named)
            raise NotFoundError(f"version {version!r} of {name or 'any model'} is not here; there are: {there}")
        return found

    def close(self, drain: bool = True) -> None:
        """Stop every model."""
        for model in self.ready:
            model.close(drain)

    def _some_able(self, wish: Wish, capability: str) -> list[Model]:
        """At least one."""
        able = self._able(wish, capability)
        if not able:
            there = ", ".join(f"{model.name} ({model.manifest.task})" for model in self.ready) or "none"
            raise NotFoundError(f"no model {VERBS[capability]}; there are: {there}")
        return able

    def _able(self, wish: Wish, capability: str) -> list[Model]:
        """The models that a wish may mean, languages aside."""
        found = self.select(wish.model, wish.version)
        ready = [loaded.model for loaded in found if loaded.model is not None]
        if wish.model and not ready:
            raise UnavailableError(f"model {wish.model!r} could not be loaded: {found[0].fault}")
        able = [model for model in ready if capability in model.capabilities]
        if wish.model and not able:
            raise unsupported(wish.model, capability, ready[0].capabilities)
        return able

    def _pairs(self) -> str:
        pairs = [
            f"{describe_side(t.manifest.source_languages)} to {describe_side(t.manifest.target_languages)} ({t.name})"
            for t in self.translators
        ]
        return ", ".join(sorted(pairs)) or "none"


def load_registry(root: Path, options: TranslatorOptions, only: str = "", encoders: EncoderOptions = DEFAULTS) -> Registry:
    """Load the newest version of every model, or of the one named `only`; one that cannot be loaded does not stop the others.

    Args:
        root: the repository.
        options: how translation models are loaded; its precision counts for every model.
        only: a model's name, or empty.
        encoders: how models of the other tasks are loaded.

    Raises:
        RepositoryError: the repository is missing or empty.
        NotFoundError: `only` names no model.
    """
    there = newest_versions(root)
    entries = [entry for entry in there if only in ("", entry.name)]
    if not entries:
        names = ", ".join(entry.name for entry in there)
        raise NotFoundError(f"model {only!r} is not in {root}; there are: {names}")
    return Registry([_load(entry, options, encoders) for entry in entries])


def _load(entry: Entry, options: TranslatorOptions, encoders: EncoderOptions) -> Loaded:
    try:
        return Loaded(entry, load_model(entry, options, encoders))
    except Exception as error:  # whatever it is, the other models must be served
        fault = " ".join(str(error).split())
        if not isinstance(error, BundleError):
            fault = f"{entry.folder}: cannot be loaded: {fault or type(error).__name__}"
            logger.debug("model %s version %d", entry.name, entry.version, exc_info=error)
        logger.error("model %s version %d cannot be served: %s", entry.name, entry.version, fault)
        return Loaded(entry, None, fault)


def _only(candidates: Sequence[Found]) -> Found:
    if len(candidates) > 1:
        names = ", ".join(sorted(model.name for model in candidates))
        raise InvalidInputError("model", f"several models would do, name one of: {names}")
    return candidates[0]


def _translates(translator: Translator, wish: Wish) -> bool:
    manifest = translator.manifest
    sides = (
        (wish.source_language, manifest.source_languages, SOURCE),
        (wish.target_language, manifest.target_languages, TARGET),
    )
    return all(not code or find_language(code, offered, field) is not None for code, offered, field in sides)


def _takes_any(translator: Translator) -> bool:
    """It names no language."""
    manifest = translator.manifest
    return UNDETERMINED in manifest.source_languages or UNDETERMINED in manifest.target_languages
