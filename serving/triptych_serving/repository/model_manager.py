"""The model manager: which versions of a repository are served, at the start, as the repository changes, or on request."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from triptych_serving.errors import BundleError, NotFoundError, RepositoryError, UnsupportedError
from triptych_serving.models.model import Model
from triptych_serving.repository.loading import Loader
from triptych_serving.repository.registry import ModelVersion, Registry, State
from triptych_serving.repository.repository import ModelFolder, VersionFolder, chosen_models, list_models
from triptych_serving.repository.versions import VersionRecord, VersionTable
from triptych_serving.repository.warmup import WarmUp

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

EVERY = "*"  # in `load_models`: all models


class ModelControl(StrEnum):
    """Model control mode: what decides which models are loaded."""

    NONE = "none"  # the repository as it is at the start
    POLL = "poll"  # the repository, examined periodically
    EXPLICIT = "explicit"  # calls of LoadModel and UnloadModel


@dataclass(frozen=True)
class RepositoryOptions:
    """Location of the models, and how they are loaded."""

    root: Path
    model: str = ""  # only this one
    control: ModelControl = ModelControl.NONE
    poll_seconds: float = 15.0  # between two examinations of the repository
    warm_up: WarmUp = WarmUp.ALL
    load_models: tuple[str, ...] = ()  # explicit control: loaded at the start; "*" is all


class ModelManager:
    """Loads and unloads the models of one repository. Used in the event loop alone; models are loaded and closed in threads.

    Changes run one at a time. A new model serves once it is loaded and warm; the one that it replaces serves until then,
    finishes its requests, and is closed. A model that cannot be loaded leaves everything that serves as it is.

    Args:
        wait_until_idle: waits until no request uses a model that is no longer in the registry.
    """

    def __init__(self, options: RepositoryOptions, loader: Loader, wait_until_idle: Callable[[Model], Awaitable[None]]) -> None:
        self.options = options
        self.started = False  # the initial models are loaded
        self.on_change: list[Callable[[], None]] = []  # called after each change of the registry
        self._versions = VersionTable(loader, wait_until_idle, self._notify)
        self._change_lock = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._poller: asyncio.Task[None] | None = None
        self._missing: set[str] = set()  # models that the last examination did not find
        self._last_error = ""  # why the repository cannot be read

    @property
    def registry(self) -> Registry:
        """The current versions; replaced as a whole."""
        return self._versions.registry

    @property
    def leaving(self) -> list[Model]:
        """Models that are no longer in the registry, and finish their requests."""
        return self._versions.leaving

    @property
    def is_loading(self) -> bool:
        """True while a model is being loaded."""
        return self._versions.is_loading

    async def start(self) -> None:
        """Load the initial models; `poll` starts to watch the repository.

        Raises:
            RepositoryError: the repository is missing, or empty although it cannot change later.
            NotFoundError: a requested model is not in it.
            BundleError: none of the requested models can be served; lists why.
        """
        await self._run_alone(self._start())
        if self.options.control is ModelControl.POLL:
            self._poller = asyncio.create_task(self._poll())
        self.started = True
        self._notify()

    async def load(self, name: str, version: str = "") -> list[ModelVersion]:
        """Load one version of a model, or those that its policy selects, whose other versions are unloaded once these serve.

        A version whose bundle has changed since it was loaded is loaded again.

        Args:
            name: of a model in the repository.
            version: a number or a label; empty: as the policy says.

        Raises:
            UnsupportedError: this server does not load models on request.
            NotFoundError: the repository has no such model or version.
            BundleError: a version cannot be served; what served before still does.
        """
        self._require_explicit("loaded")
        return await self._run_alone(self._load(name, version))

    async def unload(self, name: str, version: str = "") -> None:
        """Unload one version of a model, or all; returns once the requests that use it have ended and its memory is free.

        Args:
            name: of a loaded model.
            version: a number or a label; empty: all versions.

        Raises:
            UnsupportedError: this server does not unload models on request.
            NotFoundError: no such model or version is loaded.
        """
        self._require_explicit("unloaded")
        leaving = await self._run_alone(self._unload(name, version))
        await self._versions.wait_until_retired(leaving)

    async def index(self) -> Registry:
        """Return every version that is in the repository or in memory, also those that were added since the start."""
        # A load in progress has just read the repository, and may take long.
        if self.options.control is ModelControl.EXPLICIT and not self._change_lock.locked():
            await self._run_alone(self._try_to_refresh())
        return self.registry

    async def close(self) -> None:
        """Stop watching, and stop every model at once."""
        if self._poller is not None:
            self._poller.cancel()
        await self._versions.close()

    async def _start(self) -> None:
        options = self.options
        if options.control is ModelControl.EXPLICIT:
            folders = await self._refresh()
            named = [self._folder(folders, name) for name in options.load_models if name != EVERY]
            chosen = [folders[name] for name in sorted(folders)] if EVERY in options.load_models else named
        else:
            folders = await asyncio.to_thread(chosen_models, options.root, options.model)
            self._note(folders)
            chosen = list(folders.values())
        for folder in chosen:
            await self._apply_policy(folder)
        if chosen and not self.registry.ready:
            faults = dict.fromkeys(each.fault for each in self.registry.models if each.fault)
            raise BundleError("no model can be served", list(faults))

    async def _load(self, name: str, version: str) -> list[ModelVersion]:
        folders = await self._refresh()
        folder = self._folder(folders, name)
        if folder.fault:
            raise BundleError(name, [folder.versions[-1].shown(folder.fault)])
        if version:
            entry = folder.find(version)
            await self._versions.serve(entry)
            self._versions.publish()
            tried = [entry]
        else:
            tried = await self._apply_policy(folder)
        found = [each for each in self.registry.models if each.entry in tried]
        if faults := [each.fault for each in found if each.fault]:
            raise BundleError(f"model {name!r} could not be loaded", faults)
        return found

    async def _unload(self, name: str, version: str) -> list[VersionRecord]:
        loaded = [each for each in self._versions.of(name) if each.model is not None or each.state is State.FAILED]
        found = [each for each in loaded if not version or each.snapshot().is_called(version)]
        if not found:
            wanted = f"version {version!r} of model {name!r}" if version else f"model {name!r}"
            raise NotFoundError(f"{wanted} is not loaded; loaded: {_listed(self.registry.models)}")
        for each in found:
            self._versions.retire(each)
        self._versions.publish()
        return found

    async def _apply_policy(self, folder: ModelFolder, patient: bool = False) -> list[VersionFolder]:
        """Load and unload versions of a model as its policy says; return those that were tried.

        Of the newest versions the first that load are served: one that fails is replaced by the next older one.
        """
        if folder.fault:
            self._versions.refuse(folder.versions, folder.fault)
            self._versions.publish()
            return []
        tried, serving = [], 0
        for number in folder.policy.candidates(folder.numbers):
            enough = 0 < folder.policy.latest <= serving
            if enough and not folder.policy.labels_of(number):
                continue
            entry = folder.entry(number)
            tried.append(entry)
            serving += await self._versions.serve(entry, patient)
        if serving or not folder.versions:  # otherwise keep the versions that still serve
            for version in self._versions.of(folder.name):
                keeps_label = bool(version.labels) and version.entry in folder.versions  # the label's new version has failed
                if version.entry not in tried and not keeps_label:
                    self._versions.retire(version)
        self._versions.forget(folder.name, folder.numbers)
        self._versions.publish()
        return tried

    async def _refresh(self) -> dict[str, ModelFolder]:
        """Read the repository and note its versions.

        Raises:
            RepositoryError: it cannot be read, or is empty although its changes decide what serves.
        """
        models = await asyncio.to_thread(list_models, self.options.root)
        if not models and self.options.control is ModelControl.POLL:  # the mount point of an unmounted file system is empty
            raise RepositoryError(self.options.root, ["no models here any more"])
        folders = {name: folder for name, folder in models.items() if self.options.model in ("", name)}
        self._note(folders)
        return folders

    def _note(self, folders: dict[str, ModelFolder]) -> None:
        for folder in folders.values():
            self._versions.note(folder.versions, None if folder.fault else folder.policy)
        for name in self._versions.names:
            self._versions.forget(name, folders[name].numbers if name in folders else ())
        self._versions.publish()

    def _folder(self, folders: dict[str, ModelFolder], name: str) -> ModelFolder:
        if name not in folders:
            available = ", ".join(sorted(folders)) or "none"
            raise NotFoundError(f"model {name!r} is not in the repository; available: {available}")
        return folders[name]

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(self.options.poll_seconds)
            try:
                await self._run_alone(self._apply_changes())
            except Exception:  # the next attempt may succeed
                logger.exception("polling the model repository failed")

    async def _apply_changes(self) -> None:
        """Load and unload what has changed in the repository."""
        if (folders := await self._try_to_refresh()) is None:
            return
        missing = {name for name in self._versions.names if name not in folders}
        for name in sorted(self._versions.names):
            # A model is unloaded if it is missing twice in a row: folders are renamed, disks disappear for a moment.
            if name in folders or name in self._missing:
                await self._apply_policy(folders.get(name, ModelFolder(name)), patient=True)
        self._missing = missing

    async def _try_to_refresh(self) -> dict[str, ModelFolder] | None:
        """Refresh; None if the repository cannot be read, in which case loaded models stay."""
        try:
            folders = await self._refresh()
        except RepositoryError as error:
            if str(error) != self._last_error:
                logger.error("%s; loaded models keep serving", error)
            self._last_error = str(error)
            return None
        self._last_error = ""
        return folders

    def _require_explicit(self, change: str) -> None:
        if self.options.control is not ModelControl.EXPLICIT:
            raise UnsupportedError(
                f"models are {change} on request only with --model-control explicit, this server has {self.options.control}"
            )

    async def _run_alone(self, change: Coroutine[Any, Any, Result]) -> Result:
        """Run one change after the other; a change continues if its caller is cancelled."""

        async def run() -> Result:
            async with self._change_lock:
                return await change

        task = asyncio.create_task(run())
        self._tasks.add(task)  # the event loop itself keeps only a weak reference
        task.add_done_callback(self._on_done)
        return await asyncio.shield(task)

    def _on_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # mark it as retrieved: its caller may be gone

    def _notify(self) -> None:
        for listener in self.on_change:
            listener()


def _listed(models: Sequence[ModelVersion]) -> str:
    return ", ".join(f"{each.name} version {each.version}" for each in models if each.model is not None) or "none"
