"""The models that a process has loaded, and which of them a request means."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from triptych_serving.bundle.manifest import IMAGE_CLASSIFICATION, TRANSLATION
from triptych_serving.encoding.options import DEFAULTS, EncoderOptions
from triptych_serving.errors import InvalidInputError, NotFoundError, RepositoryError, ServingError, UnavailableError
from triptych_serving.models.capabilities import VERBS, unsupported
from triptych_serving.models.image.image_model import ImageModel
from triptych_serving.models.model import Model
from triptych_serving.models.text.text_model import TextModel
from triptych_serving.models.translation.translator import Translator, TranslatorOptions
from triptych_serving.repository.loading import Loader
from triptych_serving.repository.placement import CPU_ALONE, Hardware
from triptych_serving.repository.repository import EMPTY, ModelFolder, VersionFolder, list_models
from triptych_serving.repository.version_policy import STABLE
from triptych_serving.runtime.memory.budget import Budgets
from triptych_serving.text.languages import describe_side, has_pair, resolve_pair, takes_any

Found = TypeVar("Found", bound=Model)

USUAL_WISHES, USUAL_CHARACTERS = 64, 256  # of which is remembered what they mean


class State(StrEnum):
    """What becomes of a version."""

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
    model: Model | None = None  # where it is ready
    fault: str = ""  # why it is not; of a model that is ready, why the files that replaced its own are not served
    labels: tuple[str, ...] = ()  # what the version is called, such as "stable"

    @property
    def name(self) -> str:
        """The model's."""
        return self.entry.name

    @property
    def version(self) -> str:
        """As requests name it."""
        return str(self.entry.version)

    def is_called(self, version: str) -> bool:
        """A request that names this version or label means it."""
        return version == self.version or version in self.labels


@dataclass(frozen=True)
class ModelSelector:
    """What a request says about the model that it wants; empty members leave it open. Languages are for translation alone."""

    model: str = ""
    version: str = ""  # a number or a label
    source_language: str = ""
    target_language: str = ""

    @property
    def languages(self) -> tuple[str, str]:
        """Source and target."""
        return self.source_language, self.target_language

    @property
    def size(self) -> int:
        """Characters."""
        return len(self.model) + len(self.version) + len(self.source_language) + len(self.target_language)


class Registry:
    """All versions of all models of one repository, as they are at one moment: by name, then version."""

    def __init__(self, models: Sequence[ModelVersion]) -> None:
        self.models = tuple(sorted(models, key=lambda loaded: loaded.entry))
        self._found: dict[ModelSelector, Translator] = {}  # what wishes mean: most callers always have the same
        self._serving = {loaded.name: loaded.model for loaded in sorted(self.models, key=_prefers) if loaded.model is not None}

    @property
    def ready(self) -> list[Model]:
        """Those that can serve."""
        return [loaded.model for loaded in self.models if loaded.model is not None]

    def serving(self, name: str) -> Model | None:
        """The version of a model that answers where a request names none: the stable one if it serves, else the newest."""
        return self._serving.get(name)

    @property
    def translators(self) -> list[Translator]:
        """Those that can translate."""
        return [model for model in self.ready if isinstance(model, Translator)]

    def find(self, wish: ModelSelector) -> Translator:
        """The one translation model that a request means.

        Raises:
            NotFoundError: no model has this name, version or language pair.
            UnsupportedError: the model that is named does not translate.
            UnavailableError: the model is there but could not be loaded.
            InvalidInputError: a language code is malformed, or missing where the model has several, or several models would do.
        """
        found = self._found.get(wish)
        if found is None:
            found = self._find(wish)
            if len(self._found) >= USUAL_WISHES:
                self._found.clear()
            if wish.size <= USUAL_CHARACTERS:
                self._found[wish] = found
        return found

    def _find(self, wish: ModelSelector) -> Translator:
        named = self._able(wish, TRANSLATION)
        candidates = [model for model in named if isinstance(model, Translator) and has_pair(model.manifest, *wish.languages)]
        if not candidates:
            wanted = f"{wish.source_language or 'any language'} to {wish.target_language or 'any language'}"
            raise NotFoundError(f"no model translates {wanted}; there are: {self._pairs()}")
        if wish.source_language or wish.target_language:  # a model that names it goes before one that takes any
            candidates = [model for model in candidates if not takes_any(model.manifest)] or candidates
        translator = _only(candidates)
        resolve_pair(translator.manifest, *wish.languages)
        return translator

    def find_text(self, wish: ModelSelector, capability: str) -> TextModel:
        """The one model of the text family that a request means; `capability` is one of triptych_serving.models.capabilities.

        Raises:
            NotFoundError: no model has this name or version, or none can do it.
            UnsupportedError: the model that is named cannot do it.
            UnavailableError: the model is there but could not be loaded.
            InvalidInputError: several models would do.
        """
        return _only([model for model in self._some_able(wish, capability) if isinstance(model, TextModel)])

    def find_image(self, wish: ModelSelector) -> ImageModel:
        """The one model that a request to classify images means.

        Raises:
            ServingError: as for `find_text`.
        """
        return _only([model for model in self._some_able(wish, IMAGE_CLASSIFICATION) if isinstance(model, ImageModel)])

    def named(self, wish: ModelSelector) -> Model:
        """The one model that a wish names, whatever it can do.

        Raises:
            NotFoundError: there is none of this name or version.
            UnavailableError: it is there but not loaded.
        """
        return self._meant(wish)[0]

    def select(self, name: str, version: str = "") -> list[ModelVersion]:
        """The models of this name and version (a number or a label), where empty is any; at least one.

        Raises:
            NotFoundError: there is none.
        """
        named = [m for m in self.models if name in ("", m.name)]
        if not named:
            names = ", ".join(sorted({m.name for m in self.models})) or "none"
            raise NotFoundError(f"model {name!r} is not here; there are: {names}")
        found = [m for m in named if not version or m.is_called(version)]
        if not found:
            there = ", ".join(f"{m.name} version {_called(m)}" for m in named)
            raise NotFoundError(f"version {version!r} of {name or 'any model'} is not here; there are: {there}")
        return found

    def default(self, name: str, version: str = "") -> ModelVersion:
        """The one version that requests with this name and version get; where none serves, the newest.

        Raises:
            NotFoundError: there is none.
        """
        found = self.select(name, version)
        serving = self.serving(name)
        return next((m for m in found if m.model is not None and m.model is serving), found[-1])

    def close(self, drain: bool = True) -> None:
        """Stop every model."""
        for model in self.ready:
            model.close(drain)

    def _some_able(self, wish: ModelSelector, capability: str) -> list[Model]:
        """At least one."""
        able = self._able(wish, capability)
        if not able:
            there = ", ".join(f"{model.name} ({model.manifest.task})" for model in self.ready) or "none"
            raise NotFoundError(f"no model {VERBS[capability]}; there are: {there}")
        return able

    def _able(self, wish: ModelSelector, capability: str) -> list[Model]:
        """The models that a wish may mean, languages aside: of each name one version at most."""
        ready = self._meant(wish)
        able = [model for model in ready if capability in model.capabilities]
        if wish.model and not able:
            raise unsupported(wish.model, capability, ready[0].capabilities)
        return able

    def _meant(self, wish: ModelSelector) -> list[Model]:
        """The models that are ready; where the wish names one, it is that one."""
        found = self.select(wish.model, wish.version)
        ready = [loaded.model for loaded in found if loaded.model is not None]
        if wish.model and not ready:
            raise _not_ready(found)
        if wish.version:
            return ready
        return [model for model in ready if model is self._serving[model.name]]

    def _pairs(self) -> str:
        pairs = [
            f"{describe_side(t.manifest.source_languages)} to {describe_side(t.manifest.target_languages)} ({t.name})"
            for t in self.translators
        ]
        return ", ".join(sorted(set(pairs))) or "none"


def load_registry(
    root: Path,
    options: TranslatorOptions,
    only: str = "",
    encoders: EncoderOptions = DEFAULTS,
    hardware: Hardware = CPU_ALONE,
) -> Registry:
    """Load one version of every model, or of the one named `only`: the stable one, else the newest.

    A model that cannot be loaded does not stop the others.

    Args:
        root: the repository.
        options: how translation models are loaded; its precision counts for every model.
        only: a model's name, or empty.
        encoders: how models of the other tasks are loaded.
        hardware: what models may run on.

    Raises:
        RepositoryError: the repository is missing or empty.
        NotFoundError: `only` names no model.
    """
    folders = chosen_models(root, only)
    loader = Loader(options, encoders, hardware=hardware, budgets=Budgets(hardware.memory_limit))
    return Registry([_load(folder, loader) for folder in folders.values()])


def chosen_models(root: Path, only: str = "") -> dict[str, ModelFolder]:
    """The models of a repository, or the one named `only`; at least one.

    Raises:
        RepositoryError: the repository is missing or empty.
        NotFoundError: `only` names no model.
    """
    there = list_models(root)
    if not there:
        raise RepositoryError(root, [EMPTY])
    chosen = {name: folder for name, folder in there.items() if only in ("", name)}
    if not chosen:
        raise NotFoundError(f"model {only!r} is not in {root}; there are: {', '.join(sorted(there))}")
    return chosen


def _load(folder: ModelFolder, loader: Loader) -> ModelVersion:
    entry = folder.default
    model, fault = (None, folder.fault) if folder.fault else loader.attempt(entry)
    labels = folder.policy.labels_of(entry.version)
    return ModelVersion(entry, State.FAILED if model is None else State.READY, model, fault, labels)


def _prefers(loaded: ModelVersion) -> tuple[bool, int]:
    """The later, the rather it answers for its model."""
    return STABLE in loaded.labels, loaded.entry.version


def _called(loaded: ModelVersion) -> str:
    """Such as "3 (stable)"."""
    return f"{loaded.version} ({', '.join(loaded.labels)})" if loaded.labels else loaded.version


def _not_ready(found: Sequence[ModelVersion]) -> ServingError:
    """Why none of the versions of one model can be asked."""
    name = found[0].name
    states = {loaded.state: loaded for loaded in found}
    if State.LOADING in states:
        return UnavailableError(f"model {name!r} is still being loaded")
    if (failed := states.get(State.FAILED)) is not None:
        return UnavailableError(f"model {name!r} could not be loaded: {failed.fault}")
    versions = ", ".join(loaded.version for loaded in found)
    return NotFoundError(f"model {name!r} is not loaded; versions in the repository: {versions}")


def _only(candidates: Sequence[Found]) -> Found:
    if len(candidates) > 1:
        names = ", ".join(sorted(model.name for model in candidates))
        raise InvalidInputError("model", f"several models would do, name one of: {names}")
    return candidates[0]
