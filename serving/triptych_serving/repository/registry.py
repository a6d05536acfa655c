"""The versions that a process has loaded, and which of them a request selects."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from triptych_serving.bundle.manifest import IMAGE_CLASSIFICATION, IMAGE_SAMPLING, TEXT_GENERATION, TRANSLATION
from triptych_serving.errors import InvalidInputError, NotFoundError, ServingError, UnavailableError
from triptych_serving.models.capabilities import VERBS, unsupported
from triptych_serving.models.generation.generator import Generator
from triptych_serving.models.image.autoencoder import Autoencoder
from triptych_serving.models.image.image_model import ImageModel
from triptych_serving.models.model import Model
from triptych_serving.models.text.text_model import TextModel
from triptych_serving.models.translation.translator import TranslationModel
from triptych_serving.repository.repository import VersionFolder
from triptych_serving.repository.version_policy import STABLE
from triptych_serving.text.languages import describe_pair, has_pair, resolve_pair, takes_any

ModelT = TypeVar("ModelT", bound=Model)

SHOWN = 100  # characters of a name in errors
MEMO_ENTRIES, MEMO_CHARACTERS = 64, 256  # selectors whose model is remembered, and their maximum length
AUTO = "auto"  # a source language


class State(StrEnum):
    """State of a version."""

    LOADING = "loading"
    READY = "ready"
    UNLOADING = "unloading"
    FAILED = "failed"
    UNLOADED = "unloaded"


@dataclass(frozen=True)
class ModelVersion:
    """One version of a model of the repository, loaded or not."""

    entry: VersionFolder
    state: State
    model: Model | None = None  # if it is ready
    fault: str = ""  # why it is not ready; or, if it is, why the files that replaced its own are not served
    labels: tuple[str, ...] = ()  # names of the version, such as "stable"
    broken: bool = False  # its model served until it failed

    @property
    def name(self) -> str:
        """The model's name."""
        return self.entry.name

    @property
    def version(self) -> str:
        """The version as requests name it."""
        return str(self.entry.version)

    def is_called(self, version: str) -> bool:
        """Return True if this number or label selects the version."""
        return version == self.version or version in self.labels


@dataclass(frozen=True)
class ModelSelector:
    """The model that a request asks for; empty members match any. Languages are for translation only.

    The source language AUTO becomes empty: the model's only one, since languages are not detected.
    """

    model: str = ""
    version: str = ""  # a number or a label
    source_language: str = ""
    target_language: str = ""

    def __post_init__(self) -> None:
        if self.source_language == AUTO:
            object.__setattr__(self, "source_language", "")

    @property
    def languages(self) -> tuple[str, str]:
        """Source and target."""
        return self.source_language, self.target_language

    @property
    def size(self) -> int:
        """Number of characters."""
        return len(self.model) + len(self.version) + len(self.source_language) + len(self.target_language)


class Registry:
    """All versions of all models of one repository at one moment, by name, then version. Immutable."""

    def __init__(self, models: Sequence[ModelVersion]) -> None:
        self.models = tuple(sorted(models, key=lambda version: version.entry))
        self._memo: dict[tuple[str, ModelSelector], Any] = {}  # found models: most callers repeat their selector
        self._serving = {each.name: each.model for each in sorted(self.models, key=_preference) if each.model is not None}

    @property
    def ready(self) -> list[Model]:
        """Models that can serve."""
        return [version.model for version in self.models if version.model is not None]

    def serving(self, name: str) -> Model | None:
        """Return the version that serves requests which name none: the stable one if it is ready, else the newest."""
        return self._serving.get(name)

    @property
    def translators(self) -> list[TranslationModel[Any]]:
        """Models that can translate."""
        return [model for model in self.ready if isinstance(model, TranslationModel)]

    def find(self, selector: ModelSelector) -> TranslationModel[Any]:
        """Return the one translation model that a request selects.

        Raises:
            NotFoundError: no model has this name, version or language pair.
            UnsupportedError: the named model does not translate.
            UnavailableError: the model exists but could not be loaded, or a model that may match is being loaded.
            InvalidInputError: a language code is malformed, or missing although the model has several, or several models match.
        """
        return self._memoized(TRANSLATION, selector, lambda: self._find(selector))

    def _find(self, selector: ModelSelector) -> TranslationModel[Any]:
        able = [model for model in self._capable(selector, TRANSLATION) if isinstance(model, TranslationModel)]
        candidates = [model for model in able if has_pair(model.manifest, *selector.languages)]
        if not candidates:
            raise self._no_pair(selector, able)
        if selector.source_language or selector.target_language:  # a model that names the language precedes one that takes any
            candidates = [model for model in candidates if not takes_any(model.manifest)] or candidates
        translator = _only(candidates)
        resolve_pair(translator.manifest, *selector.languages)
        return translator

    def find_text(self, selector: ModelSelector, capability: str) -> TextModel:
        """Return the one model of the text family that a request selects.

        Args:
            capability: name of a text task, see triptych_serving.models.text.tasks.

        Raises:
            NotFoundError: no model has this name or version, or none has the capability.
            UnsupportedError: the named model does not have the capability.
            UnavailableError: the model exists but could not be loaded, or a model that may match is being loaded.
            InvalidInputError: several models match.
        """
        return self._memoized(capability, selector, lambda: self._one(selector, capability, TextModel))

    def find_image(self, selector: ModelSelector) -> ImageModel:
        """Return the one model that a request to classify images selects. Raises ServingError: as for `find_text`."""
        return self._one(selector, IMAGE_CLASSIFICATION, ImageModel)

    def find_autoencoder(self, selector: ModelSelector) -> Autoencoder:
        """Return the one model that a request to generate images selects. Raises ServingError: as for `find_text`."""
        return self._one(selector, IMAGE_SAMPLING, Autoencoder)

    def find_generator(self, selector: ModelSelector, capability: str = TEXT_GENERATION) -> Generator:
        """Return the one model that a request to continue texts, or images, selects.

        Raises:
            ServingError: as for `find_text`.
        """
        return self._one(selector, capability, Generator)

    def named(self, selector: ModelSelector) -> Model:
        """Return the one model that a selector names, whatever its capabilities.

        Raises:
            NotFoundError: no model has this name or version.
            UnavailableError: the model exists but is not loaded.
        """
        return self._memoized("", selector, lambda: self._ready(selector)[0])

    def select(self, name: str, version: str = "") -> list[ModelVersion]:
        """Return the versions of this name and version (a number or a label), where empty matches any; at least one.

        Raises:
            NotFoundError: there is none.
        """
        named = [each for each in self.models if name in ("", each.name)]
        if not named:
            names = ", ".join(sorted({each.name for each in self.models})) or "none"
            raise NotFoundError(f"model {name[:SHOWN]!r} not found; available: {names}")
        found = [each for each in named if not version or each.is_called(version)]
        if not found:
            available = ", ".join(f"{each.name} version {_with_labels(each)}" for each in named)
            raise NotFoundError(f"version {version[:SHOWN]!r} of {name or 'any model'} not found; available: {available}")
        return found

    def default(self, name: str, version: str = "") -> ModelVersion:
        """Return the version that serves requests with this name and version; the newest if none serves.

        Raises:
            NotFoundError: there is none.
        """
        found = self.select(name, version)
        serving = self.serving(name)
        return next((each for each in found if each.model is not None and each.model is serving), found[-1])

    def close(self) -> None:
        """Stop every model at once."""
        for model in self.ready:
            model.close(drain=False)

    def _memoized(self, capability: str, selector: ModelSelector, find: Callable[[], ModelT]) -> ModelT:
        found: ModelT | None = self._memo.get((capability, selector))
        if found is None:
            found = find()
            if len(self._memo) >= MEMO_ENTRIES:
                self._memo.clear()
            if selector.size <= MEMO_CHARACTERS:
                self._memo[capability, selector] = found
        return found

    def _one(self, selector: ModelSelector, capability: str, kind: type[ModelT]) -> ModelT:
        """Return the one selected model with this capability."""
        able = self._capable(selector, capability)
        if not able:
            available = ", ".join(f"{model.name} ({model.manifest.task})" for model in self.ready) or "none"
            raise self._no_model(selector, f"no model {VERBS[capability]}; available: {available}")
        return _only([model for model in able if isinstance(model, kind)])

    def _capable(self, selector: ModelSelector, capability: str) -> list[Model]:
        """Return the selected models with this capability, languages aside: at most one version of each name."""
        ready = self._ready(selector)
        able = [model for model in ready if capability in model.capabilities]
        if selector.model and not able:
            raise unsupported(selector.model, capability, ready[0].capabilities)
        return able

    def _ready(self, selector: ModelSelector) -> list[Model]:
        """Return the selected models that are ready; exactly one if the selector names a model."""
        found = self.select(selector.model, selector.version)
        ready = [version.model for version in found if version.model is not None]
        if (selector.model or selector.version) and not ready:
            raise _not_ready(found)
        if selector.version:
            return ready
        return [model for model in ready if model is self._serving[model.name]]

    def _no_model(self, selector: ModelSelector, problem: str) -> ServingError:
        """Return the error for a request that no model serves: UNAVAILABLE if one that loads or has failed may do so later."""
        found = self.select(selector.model, selector.version)
        later = {each.name for each in found if each.broken or each.state is State.LOADING}
        if not selector.version:
            later -= self._serving.keys()
        return (
            UnavailableError(f"{problem}; loading or failed: {', '.join(sorted(later))}") if later else NotFoundError(problem)
        )

    def _no_pair(self, selector: ModelSelector, able: Sequence[TranslationModel[Any]]) -> ServingError:
        pairs = sorted({f"{describe_pair(model.manifest)} ({model.name})" for model in able or self.translators})
        wanted = f"{selector.source_language or 'any language'} to {selector.target_language or 'any language'}"
        available = f"available: {', '.join(pairs)}" if pairs else "no translation model is loaded"
        if selector.model:
            return NotFoundError(f"model {selector.model!r} does not translate {wanted}; {available}")
        return self._no_model(selector, f"no model translates {wanted}; {available}")


def _preference(version: ModelVersion) -> tuple[bool, int]:
    """Sort key: stable versions last, and newer ones after older ones; the last one serves its model."""
    return STABLE in version.labels, version.entry.version


def _with_labels(version: ModelVersion) -> str:
    """Format a version and its labels, such as "3 (stable)"."""
    return f"{version.version} ({', '.join(version.labels)})" if version.labels else version.version


def _not_ready(found: Sequence[ModelVersion]) -> ServingError:
    """Explain why no selected version can serve."""
    states = {version.state: version for version in found}
    if (loading := states.get(State.LOADING)) is not None:
        return UnavailableError(f"model {loading.name!r} is still being loaded")
    if (failed := states.get(State.FAILED)) is not None:
        return UnavailableError(f"model {failed.name!r} cannot be served: {failed.fault}")
    name = found[0].name
    found = [version for version in found if version.name == name]
    are = f"versions {', '.join(version.version for version in found)} are" if found[1:] else f"version {found[0].version} is"
    return NotFoundError(f"model {name!r}: {are} in the repository, but not loaded")


def _only(candidates: Sequence[ModelT]) -> ModelT:
    if len(candidates) > 1:
        names = ", ".join(sorted(model.name for model in candidates))
        raise InvalidInputError("model", f"several models match, set `model` to one of: {names}")
    return candidates[0]
