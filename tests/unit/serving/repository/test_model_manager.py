"""The model manager, with fake models."""

import asyncio
import gc
import json
import logging
import shutil
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from triptych_serving.errors import BundleError, NotFoundError, RepositoryError, ServingError, UnsupportedError
from triptych_serving.models.model import Model
from triptych_serving.repository.model_manager import ModelControl, ModelManager, RepositoryOptions
from triptych_serving.repository.registry import ModelSelector
from triptych_serving.repository.repository import VersionFolder

from ..calls import PATIENCE_SECONDS, in_loop

POLL_SECONDS = 0.02

States = dict[str, str]


@pytest.fixture(autouse=True)
def _little_to_collect() -> None:
    """Freeze what other tests have left: the manager collects garbage after every version that it closes."""
    gc.freeze()


@dataclass(eq=False)
class FakeModel:
    """A model that records its content, and whether it was closed."""

    name: str
    version: int
    content: str
    closed: bool = False
    fail: Callable[[str], None] | None = None
    cycle: "FakeModel | None" = None

    @property
    def engines(self) -> list["FakeModel"]:
        return [self]

    def when_failed(self, listener: Callable[[str], None]) -> None:
        self.fail = listener

    def describe(self) -> str:
        return self.content

    def close(self, drain: bool = True) -> None:
        self.closed = True

    def in_cycle(self) -> "weakref.ref[FakeModel]":
        """Let the model refer to itself, as lanes and readers of prompts do to each other."""
        self.cycle = self
        return weakref.ref(self)


@dataclass
class FakeLoader:
    """Loads a manifest as the model's content; "bad..." cannot be loaded."""

    attempts: list[str] = field(default_factory=list)
    models: list[FakeModel] = field(default_factory=list)
    failed: "weakref.ref[FakeModel] | None" = None  # what was made of the last one that failed
    running: int = 0
    held: threading.Event | None = None  # no load ends before this is set

    def attempt(self, entry: VersionFolder) -> tuple[Any, str]:
        self.running += 1
        assert self.running == 1, "two loads at once"
        path = entry.folder / "bundle.json"
        content = path.read_text() if path.exists() else "bad: no manifest"
        self.attempts.append(f"{entry.version}:{content}")
        assert self.held is None or self.held.wait(PATIENCE_SECONDS)
        self.running -= 1
        if content.startswith("bad"):
            self.failed = FakeModel(entry.name, entry.version, content).in_cycle()
            return None, f"{entry.folder}: {content}"
        self.models.append(FakeModel(entry.name, entry.version, content))
        return self.models[-1], ""


class Bench:
    """A manager over a repository in a folder."""

    def __init__(
        self, root: Path, control: ModelControl = ModelControl.POLL, model: str = "", load: tuple[str, ...] = ()
    ) -> None:
        self.root, self.loader = root, FakeLoader()
        self.busy: dict[int, asyncio.Event] = {}  # versions that are in use until this is set
        self.options = RepositoryOptions(root, model, control, POLL_SECONDS, load_models=load)
        self.manager = ModelManager(self.options, self.loader, self._idle)

    async def __aenter__(self) -> "Bench":
        await self.manager.start()
        return self

    async def __aexit__(self, *details: object) -> None:
        await self.manager.close()
        assert all(model.closed for model in self.loader.models)

    async def _idle(self, model: Model) -> None:
        if model.version in self.busy:
            await self.busy[model.version].wait()

    def states(self, name: str = "m") -> States:
        return {each.version: str(each.state) for each in self.manager.registry.models if each.name == name}

    def fault(self, version: str) -> str:
        return next(each.fault for each in self.manager.registry.models if each.version == version)

    def serving(self, name: str = "m") -> str:
        model: Any = self.manager.registry.serving(name)
        return "" if model is None else f"{model.version}:{model.content}"

    def labelled(self, label: str, name: str = "m") -> str:
        model: Any = self.manager.registry.named(ModelSelector(name, label))
        return f"{model.version}:{model.content}"

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not condition():
                await asyncio.sleep(POLL_SECONDS / 4)

    async def until_states(self, **states: str) -> None:
        wanted = {version.removeprefix("v"): state for version, state in states.items()}
        await self.until(lambda: self.states() == wanted)

    async def polls(self, count: int = 6) -> None:
        """Time for some looks at the repository."""
        await asyncio.sleep(count * POLL_SECONDS)


def add(root: Path, version: int, content: str = "good", name: str = "m") -> Path:
    folder = root / name / str(version)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "bundle.json").write_text(content)
    return folder


def set_policy(root: Path, name: str = "m", **members: Any) -> None:
    (root / name / "model.json").write_text(json.dumps(members))


@pytest.mark.parametrize(
    ("policy", "ready"),
    [
        ({}, {"10"}),
        ({"versions": "all"}, {"1", "2", "10"}),
        ({"versions": {"latest": 2}}, {"2", "10"}),
        ({"versions": [1, 10, 9]}, {"1", "10"}),
        ({"labels": {"stable": 1}}, {"1", "10"}),
        ({"versions": [2], "labels": {"canary": 10}}, {"2", "10"}),
    ],
)
@in_loop
async def test_the_policy_chooses(repository: Path, policy: dict[str, Any], ready: set[str]) -> None:
    for version in (1, 2, 10):
        add(repository, version)
    if policy:
        set_policy(repository, **policy)
    async with Bench(repository, ModelControl.NONE) as bench:
        assert bench.states() == {version: "ready" if version in ready else "unloaded" for version in ("1", "2", "10")}
        assert bench.manager.started


@in_loop
async def test_an_older_version_replaces_a_failed_newest_one(repository: Path) -> None:
    add(repository, 1), add(repository, 2), add(repository, 3, "bad weights")
    async with Bench(repository, ModelControl.NONE) as bench:
        assert bench.states() == {"1": "unloaded", "2": "ready", "3": "failed"}
        assert "bad weights" in bench.fault("3")


@in_loop
async def test_start_fails_if_nothing_loads(repository: Path) -> None:
    add(repository, 1, "bad weights")
    with pytest.raises(BundleError, match=r"no model can be served: .*bad weights"):
        await Bench(repository).manager.start()
    with pytest.raises(NotFoundError, match=r"model 'x' is not in .*; available: m"):
        await Bench(repository, model="x").manager.start()
    with pytest.raises(RepositoryError, match="no such model repository"):
        await Bench(repository / "missing").manager.start()


@in_loop
async def test_models_to_load_at_the_start_are_named(repository: Path) -> None:
    for name in "abc":
        add(repository, 1, name=name)
    async with Bench(repository, ModelControl.EXPLICIT, load=("a", "c")) as bench:
        assert [bench.serving(name) for name in "abc"] == ["1:good", "", "1:good"]
    with pytest.raises(NotFoundError, match=r"model 'd' is not in .*; available: a, b, c"):
        await Bench(repository, ModelControl.EXPLICIT, load=("a", "d")).manager.start()
    with pytest.raises(NotFoundError, match=r"model 'd' is not in .*; available: a, b, c"):
        await Bench(repository, ModelControl.EXPLICIT, load=("*", "d")).manager.start()
    async with Bench(repository, ModelControl.EXPLICIT, load=("*", "c")) as bench:
        assert [bench.serving(name) for name in "abc"] == ["1:good"] * 3


@in_loop
async def test_callers_do_not_see_the_folders_of_the_server(repository: Path) -> None:
    elsewhere = repository.parent / "elsewhere"
    add(repository, 1), add(repository, 1, "bad weights", "damaged"), add(repository, 1, name="linked")
    set_policy(repository, versions="oldest")
    (repository / "linked" / "1").rename(elsewhere)
    (repository / "linked" / "1").symlink_to(elsewhere)
    linked = VersionFolder("linked", 1, repository / "linked" / "1")
    assert linked.shown(f"{elsewhere}/bundle.json: bad") == "linked/1/bundle.json: bad"
    async with Bench(repository, ModelControl.EXPLICIT) as bench:
        for name, message in (("m", "m: m/model.json: "), ("damaged", "damaged/1: bad"), ("none", "not in the repository; ")):
            with pytest.raises(ServingError, match=message) as raised:
                await bench.manager.load(name)
            assert str(repository) not in str(raised.value)
        assert [each.fault for each in bench.manager.registry.models if each.name == "damaged"] == ["damaged/1: bad weights"]


@in_loop
async def test_a_malformed_policy_fails_only_its_model(repository: Path) -> None:
    add(repository, 1), add(repository, 1, name="other")
    set_policy(repository, versions="oldest")
    async with Bench(repository, ModelControl.NONE) as bench:
        assert bench.states() == {"1": "failed"}
        assert "model.json: versions is 'oldest'" in bench.fault("1")
        assert bench.serving("other") == "1:good"


@in_loop
async def test_a_malformed_policy_is_reported_once_for_all_versions(repository: Path, caplog: pytest.LogCaptureFixture) -> None:
    for version in (1, 2, 3):
        add(repository, version)
    set_policy(repository, versions="oldest")
    with pytest.raises(BundleError) as error:
        async with Bench(repository, ModelControl.NONE):
            pass
    fault = """versions is 'oldest', expected "latest", {"latest": N}, "all" or a list of versions, all of them at least 1"""
    assert caplog.messages == [f"model m: {repository / 'm' / 'model.json'}: {fault}"]
    assert error.value.faults == (f"m/model.json: {fault}",)


@in_loop
async def test_added_and_removed_versions_are_followed(repository: Path) -> None:
    add(repository, 1)
    async with Bench(repository) as bench:
        add(repository, 2)
        await bench.until_states(v1="unloaded", v2="ready")
        assert [model.closed for model in bench.loader.models] == [True, False]
        shutil.rmtree(repository / "m" / "2")
        await bench.until_states(v1="ready")
        add(repository, 1, name="other")
        await bench.until(lambda: bench.serving("other") == "1:good")
        shutil.rmtree(repository / "m")
        await bench.until_states()
        assert bench.serving("other") == "1:good"


@in_loop
async def test_a_changed_manifest_is_loaded_again(repository: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    add(repository, 1, "old")
    async with Bench(repository) as bench:
        add(repository, 1, "new")
        await bench.until(lambda: bench.serving() == "1:new")
        await bench.until(lambda: [model.closed for model in bench.loader.models] == [True, False])
        await bench.until(lambda: "unloaded" in caplog.text)
        assert "model m version 1 still serves" in caplog.text  # "is unloaded" would name a version that serves
        assert "model m version 1 is unloaded" not in caplog.text
        (repository / "m" / "1" / "bundle.json").touch()
        await bench.polls()
        assert bench.loader.attempts == ["1:old", "1:new"]


@in_loop
async def test_a_redirected_link_is_loaded_again(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    for version, content in ((1, "old"), (2, "new")):
        add(elsewhere, version, content)
    link = repository / "m" / "1"
    link.parent.mkdir(parents=True)
    link.symlink_to(elsewhere / "m" / "1")
    async with Bench(repository) as bench:
        assert bench.serving() == "1:old"
        link.with_name(".next").symlink_to(elsewhere / "m" / "2")
        link.with_name(".next").rename(link)
        await bench.until(lambda: bench.serving() == "1:new")


@pytest.mark.parametrize("is_plain", [True, False], ids=["plain file", "link"])
@in_loop
async def test_a_failed_version_is_tried_once_to_tell_why(repository: Path, tmp_path: Path, is_plain: bool) -> None:
    add(repository, 1)
    async with Bench(repository) as bench:
        manifest = repository / "m/2/bundle.json" if is_plain else tmp_path / "elsewhere"
        (repository / "m/2").mkdir()
        manifest.write_text("bad weights")
        if not is_plain:
            (repository / "m/2/bundle.json").symlink_to(manifest)
        await bench.until_states(v1="ready", v2="failed")
        await bench.polls()
        assert "bad weights" in bench.fault("2")
        assert bench.loader.attempts == ["1:good", "2:bad weights"]
        assert bench.serving() == "1:good"
        (repository / "m/2/bundle.json").unlink()
        add(repository, 2, "mended")
        await bench.until_states(v1="unloaded", v2="ready")
        assert bench.fault("2") == ""


@in_loop
async def test_a_replacement_that_fails_leaves_the_old_one(repository: Path) -> None:
    add(repository, 1, "old")
    async with Bench(repository) as bench:
        add(repository, 1, "bad weights")
        await bench.until(lambda: "bad weights" in bench.fault("1"))
        assert bench.states() == {"1": "ready"}
        assert bench.serving() == "1:old"
        await bench.polls()
        assert len(bench.loader.attempts) == 2
        add(repository, 1, "old")
        await bench.until(lambda: bench.fault("1") == "")
        assert len(bench.loader.attempts) == 2


@in_loop
async def test_a_failed_replacement_leaves_the_last_version(repository: Path) -> None:
    add(repository, 1)
    async with Bench(repository) as bench:
        (repository / "m" / "1").rename(repository / "m" / ".gone")
        add(repository, 2, "bad weights")
        await bench.until(lambda: bench.states().get("2") == "failed")
        await bench.polls()
        assert bench.serving() == "1:good"


@in_loop
async def test_a_folder_that_is_still_being_copied_is_waited_for(repository: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    add(repository, 1)
    async with Bench(repository) as bench:
        folder = repository / "m" / "2"
        folder.mkdir()
        await bench.until_states(v1="ready", v2="unloaded")
        await bench.until(lambda: "bundle.json is missing" in bench.fault("2"))
        (folder / "weights").write_bytes(b"1")
        await bench.polls()
        assert bench.loader.attempts == ["1:good"]
        add(repository, 2)
        await bench.until_states(v1="unloaded", v2="ready")
    assert caplog.records == []


@in_loop
async def test_a_changing_folder_is_tried_again_when_it_settles(repository: Path) -> None:
    add(repository, 1)
    async with Bench(repository) as bench:
        folder = add(repository, 2, "bad weights")
        await bench.until_states(v1="ready", v2="failed")
        bench.manager._poller.cancel()  # type: ignore[union-attr]
        for size in range(5):
            (folder / "weights").write_bytes(b"1" * size)
            await bench.manager._apply_changes()
        assert len(bench.loader.attempts) == 2
        await bench.manager._apply_changes()
        assert len(bench.loader.attempts) == 3


@in_loop
async def test_a_model_is_closed_when_it_is_idle(repository: Path) -> None:
    add(repository, 1)
    async with Bench(repository) as bench:
        bench.busy[1] = asyncio.Event()
        add(repository, 2)
        await bench.until_states(v1="unloading", v2="ready")
        assert bench.serving() == "2:good"
        await bench.polls()
        assert not bench.loader.models[0].closed
        assert [model.version for model in bench.manager.leaving] == [1]
        bench.busy[1].set()
        await bench.until_states(v1="unloaded", v2="ready")
        assert bench.loader.models[0].closed


@in_loop
async def test_labels_and_policies_change(repository: Path) -> None:
    for version in (1, 2):
        add(repository, version)
    async with Bench(repository) as bench:
        set_policy(repository, labels={"stable": 1, "canary": 2})
        await bench.until_states(v1="ready", v2="ready")
        assert bench.serving() == "1:good"
        (repository / "m" / "model.json").write_text("{")
        await bench.until(lambda: "not valid JSON" in bench.fault("2"))
        assert bench.serving() == "1:good"
        set_policy(repository, versions=[7])
        await bench.until(lambda: "allows none of the existing versions" in bench.fault("2"))
        assert bench.states() == {"1": "ready", "2": "ready"}
        (repository / "m" / "model.json").unlink()
        await bench.until_states(v1="unloaded", v2="ready")
        assert bench.fault("2") == ""


@pytest.mark.parametrize("control", [ModelControl.POLL, ModelControl.EXPLICIT])
@in_loop
async def test_a_label_moves_once_its_version_serves(repository: Path, control: ModelControl) -> None:
    add(repository, 1), add(repository, 3)
    set_policy(repository, labels={"stable": 1, "canary": 3})
    async with Bench(repository, control, load=("*",)) as bench:
        bench.loader.held = threading.Event()
        add(repository, 2, "bad weights")
        set_policy(repository, labels={"stable": 2, "canary": 3})
        await bench.manager.index()
        change = asyncio.create_task(bench.manager.load("m")) if control is ModelControl.EXPLICIT else None
        await bench.until(lambda: bench.states().get("2") == "loading")
        assert bench.labelled("stable") == bench.serving() == "1:good"
        bench.loader.held.set()
        await bench.until_states(v1="ready", v2="failed", v3="ready")
        assert bench.labelled("stable") == bench.serving() == "1:good", "neither nothing nor the canary"
        if change is not None:
            with pytest.raises(BundleError, match="bad weights"):
                await change
        add(repository, 2, "mended")
        if change is not None:
            await bench.manager.load("m")
        await bench.until_states(v1="unloaded", v2="ready", v3="ready")
        assert bench.labelled("stable") == bench.serving() == "2:mended"
        set_policy(repository, labels={"stable": 9, "canary": 3})
        if change is not None:
            await bench.manager.load("m")
        await bench.polls()
        assert bench.labelled("stable") == bench.serving() == "2:mended"


@pytest.mark.parametrize(("gone", "fault"), [("", "no such model repository"), ("m", "no models here any more")])
@in_loop
async def test_a_repository_that_cannot_be_read_or_is_empty_unloads_nothing(
    repository: Path, caplog: pytest.LogCaptureFixture, gone: str, fault: str
) -> None:
    add(repository, 1)
    async with Bench(repository) as bench:
        away = repository.with_name("away")
        (repository / gone).rename(away)  # as if it were unmounted
        await bench.polls()
        assert bench.serving() == "1:good"
        away.rename(repository / gone)
        add(repository, 2)
        await bench.until_states(v1="unloaded", v2="ready")
    told = [text for text in caplog.messages if "keep serving" in text]
    assert told == [f"{repository}: {fault}; loaded models keep serving"]


@in_loop
async def test_models_are_loaded_and_unloaded_on_request(repository: Path) -> None:
    async with Bench(repository, ModelControl.EXPLICIT) as bench:
        assert bench.manager.registry.models == ()
        add(repository, 1)
        assert [str(each.state) for each in (await bench.manager.index()).models] == ["unloaded"]
        assert [each.version for each in await bench.manager.load("m")] == ["1"]
        add(repository, 2), add(repository, 3)
        await bench.manager.load("m", "2")
        assert bench.states() == {"1": "ready", "2": "ready", "3": "unloaded"}
        await bench.manager.load("m")
        await bench.until_states(v1="unloaded", v2="unloaded", v3="ready")
        await bench.manager.load("m")
        assert len(bench.loader.attempts) == 3
        await bench.manager.unload("m")
        assert bench.states() == {"1": "unloaded", "2": "unloaded", "3": "unloaded"}
        assert all(model.closed for model in bench.loader.models)


@in_loop
async def test_an_unload_waits_for_replaced_models_too(repository: Path) -> None:
    add(repository, 1, "old")
    async with Bench(repository, ModelControl.EXPLICIT, load=("*",)) as bench:
        in_use = bench.busy[1] = asyncio.Event()
        for content in ("new", "newest"):
            add(repository, 1, content)
            await bench.manager.load("m")
            bench.busy.clear()
        unload = asyncio.create_task(bench.manager.unload("m"))
        await bench.polls()
        assert not unload.done()
        in_use.set()
        await unload
        assert all(model.closed for model in bench.loader.models)


@in_loop
async def test_a_model_that_fails_is_taken_out_of_service_until_it_is_loaded_again(repository: Path) -> None:
    add(repository, 1)
    async with Bench(repository, ModelControl.EXPLICIT, load=("*",)) as bench:
        failed = bench.loader.models[0]
        assert failed.fail is not None
        await asyncio.to_thread(failed.fail, "the device is lost")
        await bench.until_states(v1="failed")
        assert bench.fault("1") == "the device is lost"
        await bench.until(lambda: failed.closed)
        await bench.manager.load("m")
        assert bench.serving() == "1:good"
        failed.fail("again")
        await bench.polls(1)
        assert bench.serving() == "1:good", "the new model is another one"


@in_loop
async def test_failed_loads_and_unloads_name_the_reason(repository: Path) -> None:
    add(repository, 1)
    async with Bench(repository, ModelControl.EXPLICIT, load=("*",)) as bench:
        manager = bench.manager
        add(repository, 2, "bad weights")
        for version in ("", "2"):
            with pytest.raises(BundleError, match=r"model 'm' could not be loaded: .*bad weights"):
                await manager.load("m", version)
        assert bench.states() == {"1": "ready", "2": "failed"}
        with pytest.raises(NotFoundError, match="model 'x' is not in"):
            await manager.load("x")
        with pytest.raises(NotFoundError, match="version '9' of m is not in the repository; available: 1, 2"):
            await manager.load("m", "9")
        with pytest.raises(NotFoundError, match="version '9' of model 'm' is not loaded; loaded: m version 1"):
            await manager.unload("m", "9")
        set_policy(repository, versions=0)
        with pytest.raises(BundleError, match="versions is 0"):
            await manager.load("m")


@pytest.mark.parametrize("control", [ModelControl.NONE, ModelControl.POLL])
@in_loop
async def test_without_explicit_control_nothing_is_loaded_on_request(repository: Path, control: ModelControl) -> None:
    add(repository, 1)
    async with Bench(repository, control) as bench:
        with pytest.raises(UnsupportedError, match=f"--model-control explicit, this server has {control}"):
            await bench.manager.load("m")
        with pytest.raises(UnsupportedError, match="models are unloaded on request only with"):
            await bench.manager.unload("m")


@in_loop
async def test_a_load_continues_if_its_caller_is_cancelled(repository: Path) -> None:
    add(repository, 1)
    async with Bench(repository, ModelControl.EXPLICIT) as bench:
        asking = asyncio.create_task(bench.manager.load("m"))
        await asyncio.sleep(0)
        asking.cancel()
        await bench.until_states(v1="ready")


@pytest.mark.parametrize("control", [ModelControl.EXPLICIT, ModelControl.POLL])
@in_loop
async def test_other_models_serve_during_a_load(repository: Path, control: ModelControl) -> None:
    add(repository, 1)
    async with Bench(repository, control, load=("m",)) as bench:
        bench.loader.held = threading.Event()
        add(repository, 2)
        loading = asyncio.create_task(bench.manager.load("m") if control is ModelControl.EXPLICIT else bench.polls())
        await bench.until_states(v1="ready", v2="loading")
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert [str(each.state) for each in (await bench.manager.index()).models] == ["ready", "loading"]
        assert bench.manager.is_loading
        assert bench.serving() == "1:good"
        bench.loader.held.set()
        await loading
        await bench.until_states(v1="unloaded", v2="ready")
        assert not bench.manager.is_loading


@in_loop
async def test_listeners_are_notified_of_changes_only(repository: Path) -> None:
    add(repository, 1)
    heard: list[States] = []
    bench = Bench(repository)
    bench.manager.on_change.append(lambda: heard.append(bench.states()))
    async with bench:
        await bench.polls()
        assert heard == [{"1": "unloaded"}, {"1": "loading"}, {"1": "ready"}, {"1": "ready"}]


@in_loop
async def test_a_model_missing_once_keeps_serving(repository: Path) -> None:
    add(repository, 1)
    add(repository, 1, name="other")
    async with Bench(repository) as bench:
        bench.manager._poller.cancel()  # type: ignore[union-attr]
        for _ in range(2):
            (repository / "m").rename(repository.parent / "away")
            await bench.manager._apply_changes()
            assert bench.serving() == "1:good"
            (repository.parent / "away").rename(repository / "m")
            await bench.manager._apply_changes()
        assert bench.loader.attempts == ["1:good", "1:good"]
        shutil.rmtree(repository / "m")
        for _ in range(2):
            await bench.manager._apply_changes()
        assert bench.serving() == ""
        assert bench.serving("other") == "1:good"


@in_loop
async def test_a_second_spelling_of_a_version_changes_nothing(repository: Path) -> None:
    add(repository, 1)
    async with Bench(repository) as bench:
        shutil.copytree(repository / "m/1", repository / "m/01")
        await bench.polls()
        shutil.rmtree(repository / "m/1")
        await bench.polls()
        assert bench.loader.attempts == ["1:good"]
        (repository / "m/01/bundle.json").write_text("better")
        await bench.until(lambda: bench.serving() == "1:better")


@in_loop
async def test_unloaded_and_failed_models_are_freed_although_they_are_in_reference_cycles(repository: Path) -> None:
    add(repository, 1), add(repository, 1, "bad weights", name="other")
    async with Bench(repository, ModelControl.EXPLICIT, load=("m",)) as bench:
        unloaded = bench.loader.models.pop().in_cycle()
        gc.disable()
        try:
            await bench.manager.unload("m")
            with pytest.raises(BundleError, match="bad weights"):
                await bench.manager.load("other")
        finally:
            gc.enable()
        assert bench.loader.failed is not None
        assert (unloaded(), bench.loader.failed()) == (None, None)
