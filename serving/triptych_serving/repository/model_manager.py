"""Which versions of a model repository are served, now and later: at the start, as the repository changes, or when told to."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from triptych_serving.errors import BundleError, NotFoundError, RepositoryError, UnsupportedError
from triptych_serving.models.model import Model
from triptych_serving.repository.registry import ModelVersion, Registry, State, chosen_models
from triptych_serving.repository.repository import ModelFolder, VersionFolder, list_models
from triptych_serving.repository.versions import ModelLoader, VersionRecord, VersionTable
from triptych_serving.repository.warmup import WarmUp

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

EVERY = "*"  # among the models to load at the start


class ModelControl(StrEnum):
    """Who decides what is loaded."""

    NONE = "none"  # the repository as it is at the start
    POLL = "poll"  # the repository, looked at again and again
    EXPLICIT = "explicit"  # whoever calls LoadModel and UnloadModel


@dataclass(frozen=True)
class RepositoryOptions:
    """Where models are, and who decides which of them are loaded."""

    root: Path
    model: str = ""  # only this one
    control: ModelControl = ModelControl.NONE
    poll_seconds: float = 15.0  # between two looks at the repository
    warm_up: WarmUp = WarmUp.ALL
    load_models: tuple[str, ...] = ()  # explicit: those that are loaded at the start; "*" is all


class ModelManager:
    """Loads and unloads the models of one repository. Used in the event loop alone; models are loaded and closed in threads.

    Loads run one at a time. A new model serves once it is loaded and warm; the one that it replaces serves until then, finishes
    the requests that it has, and is closed. What cannot be loaded leaves everything that serves as it is.

    Args:
        options: see RepositoryOptions.
        loader: makes models of bundles.
        idle: waits until no request uses a model that is no longer in the registry.
    """

    def __init__(self, options: RepositoryOptions, loader: ModelLoader, idle: Callable[[Model], Awaitable[None]]) -> None:
        self.options = options
        self.started = False  # the models of the start are loaded
        self.on_change: list[Callable[[], None]] = []  # called after each change of the registry
        self._versions = VersionTable(loader, idle, self._tell)
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._poller: asyncio.Task[None] | None = None
        self._missing: set[str] = set()  # models that the last look did not find
        self._complaint = ""  # why the repository cannot be read

    @property
    def registry(self) -> Registry:
        """What there is now; replaced as a whole."""
        return self._versions.registry

    @property
    def is_loading(self) -> bool:
        """A model is being loaded."""
        return self._versions.is_loading

    async def start(self) -> None:
        """Load the models of the start; `poll` begins to watch the repository.

        Raises:
            RepositoryError: the repository is missing, or empty where that is not for others to change.
            NotFoundError: a model that was asked for is not in it.
            BundleError: of the models that were asked for none can be served; lists why.
        """
        await self._alone(self._start())
        if self.options.control is ModelControl.POLL:
            self._poller = asyncio.create_task(self._poll())
        self.started = True
        self._tell()

    async def load(self, name: str, version: str = "") -> list[ModelVersion]:
        """Load one version of a model, or those that its policy chooses: then its other versions are unloaded once these serve.

        A version whose bundle has changed since it was loaded is loaded again.

        Args:
            name: of a model in the repository.
            version: a number or a label; empty: what the policy says.

        Raises:
            UnsupportedError: the models of this server are not loaded on request.
            NotFoundError: the repository has no such model or version.
            BundleError: a version cannot be served; what served before still does.
        """
        self._require_explicit("loaded")
        return await self._alone(self._load(name, version))

    async def unload(self, name: str, version: str = "") -> None:
        """Unload one version of a model, or all; returns once the requests that use it have ended and its memory is free.

        Args:
            name: of a model that is loaded.
            version: a number or a label; empty: every one.

        Raises:
            UnsupportedError: the models of this server are not unloaded on request.
            NotFoundError: no such model or version is loaded.
        """
        self._require_explicit("unloaded")
        leaving = await self._alone(self._unload(name, version))
        await self._versions.retired(leaving)

    async def index(self) -> list[ModelVersion]:
        """Every version that is in the repository or in memory, by name, then version."""
        if (
            self.options.control is ModelControl.EXPLICIT and not self._turn.locked()
        ):  # a load may take long, and has just looked
            await self._alone(self._try_to_refresh())
        return list(self.registry.models)

    async def close(self, drain: bool) -> None:
        """Stop watching, and stop every model: with `drain`, after everything accepted is answered; else at once."""
        if self._poller is not None:
            self._poller.cancel()
        await self._versions.close(drain)

    async def _start(self) -> None:
        options = self.options
        if options.control is ModelControl.EXPLICIT:
            folders = await self._refresh()
            wanted = sorted(folders) if EVERY in options.load_models else options.load_models
            chosen = [self._folder(folders, name) for name in wanted]
        else:
            folders = await asyncio.to_thread(chosen_models, options.root, options.model)
            self._note(folders)
            chosen = list(folders.values())
        for folder in chosen:
            await self._settle(folder)
        if chosen and not self.registry.ready:
            raise BundleError("no model can be served", [m.fault for m in self.registry.models if m.fault])

    async def _load(self, name: str, version: str) -> list[ModelVersion]:
        folders = await self._refresh()
        folder = self._folder(folders, name)
        if folder.fault:
            raise BundleError(name, [folder.fault])
        if version:
            entry = _entry(folder, version)
            await self._versions.serve(entry)
            self._versions.show()
            tried = [entry]
        else:
            tried = await self._settle(folder)
        found = [m for m in self.registry.models if m.entry in tried]
        if faults := [m.fault for m in found if m.fault]:
            raise BundleError(f"model {name!r} could not be loaded", faults)
        return found

    async def _unload(self, name: str, version: str) -> list[VersionRecord]:
        there = [v for v in self._versions.of(name) if v.model is not None or v.state is State.FAILED]
        found = [v for v in there if not version or v.look().is_called(version)]
        if not found:
            wanted = f"version {version!r} of model {name!r}" if version else f"model {name!r}"
            raise NotFoundError(f"{wanted} is not loaded; there are: {_listed(self.registry.models)}")
        for each in found:
            self._versions.retire(each)
        self._versions.show()
        return found

    async def _settle(self, folder: ModelFolder, patient: bool = False) -> list[VersionFolder]:
        """Make a model's versions what its policy says; returns those that it says, as far as it was possible to tell.

        Of the newest versions the first that load are served: one that fails is made up for by the next older one.
        """
        if folder.fault:
            self._refuse(folder)
            return []
        tried, serving = [], 0
        for number in folder.policy.candidates(folder.numbers):
            enough = 0 < folder.policy.latest <= serving
            if enough and not folder.policy.labels_of(number):
                continue
            entry = folder.entry(number)
            tried.append(entry)
            serving += await self._versions.serve(entry, patient)
        if serving or not folder.versions:  # else what is left of the model is better than nothing
            for version in self._versions.of(folder.name):
                if version.entry not in tried:
                    self._versions.retire(version)
        self._versions.forget(folder.name, folder.numbers)
        self._versions.show()
        return tried

    def _refuse(self, folder: ModelFolder) -> None:
        for entry in folder.versions:
            self._versions.refuse(entry, folder.fault)
        self._versions.show()

    async def _refresh(self) -> dict[str, ModelFolder]:
        """What is in the repository, noted."""
        there = await asyncio.to_thread(list_models, self.options.root)
        folders = {name: folder for name, folder in there.items() if self.options.model in ("", name)}
        self._note(folders)
        return folders

    def _note(self, folders: dict[str, ModelFolder]) -> None:
        for folder in folders.values():
            self._versions.note(folder.versions, None if folder.fault else folder.policy)
        for name in self._versions.names:
            self._versions.forget(name, folders[name].numbers if name in folders else ())
        self._versions.show()

    def _folder(self, folders: dict[str, ModelFolder], name: str) -> ModelFolder:
        if name not in folders:
            there = ", ".join(sorted(folders)) or "none"
            raise NotFoundError(f"model {name!r} is not in {self.options.root}; there are: {there}")
        return folders[name]

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(self.options.poll_seconds)
            try:
                await self._alone(self._look())
            except Exception:  # the next look may be better
                logger.exception("looking at the model repository failed")

    async def _look(self) -> None:
        """Do what has changed in the repository."""
        if (folders := await self._try_to_refresh()) is None:
            return
        missing = {name for name in self._versions.names if name not in folders}
        for name in sorted(self._versions.names):
            # What is gone is gone at two looks in a row: folders are renamed, disks are away for a moment.
            if name in folders or name in self._missing:
                await self._settle(folders.get(name, ModelFolder(name)), patient=True)
        self._missing = missing

    async def _try_to_refresh(self) -> dict[str, ModelFolder] | None:
        """As `_refresh`; a disk that is away for a moment takes no model with it."""
        try:
            folders = await self._refresh()
        except RepositoryError as error:
            if str(error) != self._complaint:
                logger.error("%s; what is loaded serves on", error)
            self._complaint = str(error)
            return None
        self._complaint = ""
        return folders

    def _require_explicit(self, what: str) -> None:
        if self.options.control is not ModelControl.EXPLICIT:
            raise UnsupportedError(
                f"models are {what} on request only by a server that runs with --model-control explicit, "
                f"this one has {self.options.control}"
            )

    async def _alone(self, change: Coroutine[Any, Any, Result]) -> Result:
        """One change after the other; it goes on if whoever asked for it goes away."""

        async def run() -> Result:
            async with self._turn:
                return await change

        task = asyncio.create_task(run())
        self._tasks.add(task)  # the event loop itself remembers it weakly
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # whoever wanted to know has gone, maybe

    def _tell(self) -> None:
        for listener in self.on_change:
            listener()


def _entry(folder: ModelFolder, version: str) -> VersionFolder:
    """A version by its number or label."""
    for entry in folder.versions:
        if version == str(entry.version) or version in folder.policy.labels_of(entry.version):
            return entry
    there = ", ".join(map(str, folder.numbers))
    raise NotFoundError(f"version {version!r} of {folder.name} is not in the repository; there are: {there}")


def _listed(models: Sequence[ModelVersion]) -> str:
    return ", ".join(f"{m.name} version {m.version}" for m in models if m.model is not None) or "none"
