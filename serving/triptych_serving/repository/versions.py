"""The table of versions that a server knows: loads, swaps and closes their models, as the model manager decides.

Everything except loading and closing models runs in the event loop, and callers make one change at a time. Requests see
`registry`, which is never changed, but replaced as a whole: after a new model is ready and before an old one is closed.
"""

import asyncio
import gc
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from triptych_serving.models.model import Model
from triptych_serving.repository.loading import Loader
from triptych_serving.repository.registry import ModelVersion, Registry, State
from triptych_serving.repository.repository import FolderStamp, VersionFolder, stamp_of
from triptych_serving.repository.version_policy import VersionPolicy
from triptych_serving.runtime.process import trim_heap
from triptych_serving.runtime.session import shrink_arena

logger = logging.getLogger(__name__)

PATIENCE_SECONDS = 60.0  # for requests that use a model which is no longer in the registry

Result = TypeVar("Result")

NO_MANIFEST = "bundle.json is missing: not a bundle, or one that is still being copied"


@dataclass(eq=False)
class VersionRecord:
    """All that is known of one version."""

    entry: VersionFolder
    state: State = State.UNLOADED
    model: Model | None = None
    leaving_model: Model | None = None  # no longer in the registry, finishing its requests
    is_loading: bool = False
    fault: str = ""  # as in ModelVersion, as are `broken` and `labels`
    broken: bool = False
    labels: tuple[str, ...] = ()
    loaded_stamp: FolderStamp = field(default_factory=FolderStamp)  # of the folder that `model` was loaded from
    failed_stamp: FolderStamp | None = None  # of the folder, if the last attempt to load it failed
    seen_stamp: FolderStamp | None = None  # when the folder was last looked at

    def snapshot(self) -> ModelVersion:
        """Return the version as requests see it."""
        return ModelVersion(self.entry, self.state, self.model, self.fault, self.labels, self.broken)


class VersionTable:
    """The versions of one repository.

    Args:
        wait_until_idle: waits until no request uses a model that is no longer in the registry.
        on_change: called after each change of the registry.
    """

    def __init__(
        self, loader: Loader, wait_until_idle: Callable[[Model], Awaitable[None]], on_change: Callable[[], None]
    ) -> None:
        self.registry = Registry([])
        self._loader, self._wait_until_idle, self._on_change = loader, wait_until_idle, on_change
        self._known: dict[tuple[str, int], VersionRecord] = {}
        self._labels: dict[str, Mapping[str, int]] = {}  # of each model, as its policy says
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="triptych-load")
        self._retiring: dict[Model, asyncio.Task[None]] = {}
        self._closed = False

    @property
    def is_loading(self) -> bool:
        """True while a model is being loaded, which cannot be stopped."""
        return any(version.is_loading for version in self._known.values())

    @property
    def leaving(self) -> list[Model]:
        """Models that are no longer in the registry, and finish their requests."""
        return list(self._retiring)

    @property
    def names(self) -> set[str]:
        """Names of all models."""
        return {name for name, _ in self._known}

    def of(self, name: str) -> list[VersionRecord]:
        """Return the versions of one model, ascending."""
        return [version for key, version in sorted(self._known.items()) if key[0] == name]

    def note(self, entries: Iterable[VersionFolder], policy: VersionPolicy | None) -> None:
        """Record versions that are in the repository; without a policy they keep their labels."""
        for entry in entries:
            version = self._known.setdefault((entry.name, entry.version), VersionRecord(entry))
            version.entry = entry  # 01 may have been renamed to 1
            if policy is not None:
                self._labels[entry.name] = policy.labels

    def forget(self, name: str, existing: Iterable[int]) -> None:
        """Drop the versions of a model that are neither in the repository nor in memory."""
        gone = {version.entry.version for version in self.of(name) if not (version.model or version.leaving_model)}
        for number in gone - set(existing):
            del self._known[name, number]

    def publish(self) -> None:
        """Replace the registry if anything has changed."""
        self._move_labels()
        registry = Registry([version.snapshot() for version in self._known.values()])
        if registry.models != self.registry.models:
            self.registry = registry
            self._on_change()

    def _move_labels(self) -> None:
        """Move each label to its version once that serves; until then the version that had it keeps it, if it serves."""
        models: dict[str, list[VersionRecord]] = {}
        for version in self._known.values():
            models.setdefault(version.entry.name, []).append(version)
        for name, versions in models.items():
            serving = {version.entry.version for version in versions if version.model is not None}
            held = {label: version.entry.version for version in versions for label in version.labels}
            labels = {
                label: held[label] if wanted not in serving and held.get(label) in serving else wanted
                for label, wanted in self._labels.get(name, {}).items()
            }
            for version in versions:
                version.labels = VersionPolicy(labels=labels).labels_of(version.entry.version)

    def refuse(self, entries: Sequence[VersionFolder], fault: str) -> None:
        """Mark the versions of a model that cannot be served for a reason outside of their folders; loaded models stay."""
        versions = [self._known[entry.name, entry.version] for entry in entries]
        if any(version.fault != version.entry.shown(fault) for version in versions):
            logger.error("model %s: %s", entries[0].name, fault)
        for version in versions:
            version.fault, version.failed_stamp = version.entry.shown(fault), None
            if version.model is None:
                version.state = State.FAILED

    async def serve(self, entry: VersionFolder, patient: bool = False) -> bool:
        """Load a version as its folder is now; a loaded model serves meanwhile, and after a failure.

        Args:
            entry: a noted version.
            patient: skip a folder that failed and has not changed since, or that is still changing.

        Returns:
            True if the version serves.
        """
        version = self._known[entry.name, entry.version]
        stamp = await self._run(stamp_of, entry.folder)
        settled, version.seen_stamp = stamp == version.seen_stamp, stamp
        if version.model is not None and stamp.manifest in ("", version.loaded_stamp.manifest):
            version.fault, version.failed_stamp = "", None
        elif patient and not stamp.manifest:
            version.fault = NO_MANIFEST
        elif not patient or _should_try(version, settled):
            await self._load(version, stamp)
        return version.model is not None

    def retire(self, version: VersionRecord) -> None:
        """Unload a version; the caller publishes. Its model is closed when the requests that use it have ended."""
        version.failed_stamp = version.seen_stamp = None
        version.fault, version.broken = "", False
        version.state = State.UNLOADED if version.leaving_model is None else State.UNLOADING
        if version.model is not None:
            version.state = State.UNLOADING
            self._let_go(version)

    async def wait_until_retired(self, versions: Iterable[VersionRecord]) -> None:
        """Wait until the models that leave these versions, or were replaced before, are closed."""
        leaving = {(version.entry.name, version.entry.version) for version in versions}
        if tasks := [task for model, task in self._retiring.items() if (model.name, model.version) in leaving]:
            await asyncio.wait(tasks)

    async def close(self) -> None:
        """Stop every model at once."""
        self._closed = True
        models = [*self.registry.ready, *self._retiring]
        for task in self._retiring.values():
            task.cancel()
        await asyncio.gather(*(asyncio.to_thread(model.close, False) for model in models))
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _load(self, version: VersionRecord, stamp: FolderStamp) -> None:
        if version.model is None:
            version.state = State.LOADING
            self.publish()
        version.is_loading = True
        try:
            model, fault = await self._run(self._loader.attempt, version.entry)
        finally:
            version.is_loading = False
        if model is None:
            version.fault, version.failed_stamp = version.entry.shown(fault), stamp
            version.state = State.FAILED if version.model is None else State.READY
        elif self._closed:
            await asyncio.to_thread(model.close, False)
            return
        else:
            self._swap(version, model, stamp)
        self.publish()
        if model is None:
            await asyncio.to_thread(_free_memory)  # of what was loaded before the fault was found

    def _swap(self, version: VersionRecord, model: Model, stamp: FolderStamp) -> None:
        if version.model is not None:
            self._let_go(version)
        version.model, version.loaded_stamp, version.state = model, stamp, State.READY
        version.fault, version.failed_stamp, version.broken = "", None, False
        loop = asyncio.get_running_loop()

        def stop_serving(reason: str) -> None:
            with suppress(RuntimeError):  # the loop is closed, so that nobody is served
                loop.call_soon_threadsafe(self._stop_serving, version, model, reason)

        for engine in model.engines:
            engine.when_failed(stop_serving)
        logger.info("model %s version %d is loaded: %s", version.entry.name, version.entry.version, model.describe())

    def _stop_serving(self, version: VersionRecord, model: Model, reason: str) -> None:
        """Take a model out of service that cannot go on; the next load of its version makes a new one."""
        if version.model is not model:
            return
        logger.error("model %s version %d failed: %s", version.entry.name, version.entry.version, reason)
        self._let_go(version)
        version.state, version.fault, version.failed_stamp, version.broken = State.FAILED, reason, None, True
        self.publish()

    def _let_go(self, version: VersionRecord) -> None:
        model, version.model = version.model, None
        assert model is not None
        version.leaving_model = model
        self._retiring[model] = asyncio.create_task(self._retire(version, model))

    async def _retire(self, version: VersionRecord, model: Model) -> None:
        try:
            await self._wait_for_requests(model)
            await asyncio.to_thread(model.close, True)
        except Exception:
            logger.exception("model %s version %d: closing failed", version.entry.name, version.entry.version)
        finally:
            del self._retiring[model]
        if version.leaving_model is model:
            version.leaving_model = None
            if version.state is State.UNLOADING:
                version.state = State.UNLOADED
                self.publish()
        event = "is unloaded" if version.model is None else "still serves: what its new load replaced is unloaded"
        logger.info("model %s version %d %s", version.entry.name, version.entry.version, event)
        del model
        await asyncio.to_thread(_free_memory)

    async def _wait_for_requests(self, model: Model) -> None:
        """Wait for requests, but not forever for callers that do not read their responses; running requests still finish."""
        try:
            await asyncio.wait_for(self._wait_until_idle(model), PATIENCE_SECONDS)
        except TimeoutError:
            logger.warning("model %s version %d: closed with requests still in flight", model.name, model.version)

    async def _run(self, function: Callable[..., Result], *arguments: Any) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)


def _free_memory() -> None:
    # A call and its rows refer to each other, and keep vocabularies and images; a translation model's memo keeps its tokenizer.
    # This holds the interpreter for 1 ms per 1,000 objects.
    gc.collect()
    shrink_arena()
    trim_heap()


def _should_try(version: VersionRecord, settled: bool) -> bool:
    """Load a new folder at once; one that failed, or replaces a loaded model, when it has changed and no longer does."""
    if version.failed_stamp is None:
        return version.model is None or settled
    return settled and version.seen_stamp != version.failed_stamp
