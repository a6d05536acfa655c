"""Engines give way to whoever reads requests and writes answers."""

import os
import resource
import subprocess
import sys
import threading
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

import pytest

from triptych_serving.decoding.engine import WIDE_NICENESS
from triptych_serving.models.image.image_model import ImageModel
from triptych_serving.models.model import Model
from triptych_serving.models.translation.translator import Translator
from triptych_serving.repository.model_manager import RepositoryOptions
from triptych_serving.repository.placement import CPU_ALONE, Hardware
from triptych_serving.repository.repository import VersionFolder
from triptych_serving.runtime.device import Device
from triptych_serving.runtime.process import MOST, NICENESS, allow_open_files, give_way
from triptych_serving.server import ServerOptions
from triptych_serving.services.documents.workers import DocumentWorkers

from ....fixtures.encoders import png, write_image_bundle
from ....fixtures.toy import BUNDLE, SOURCE, TARGET

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="threads have a niceness of their own on Linux alone")


def in_thread(function: Callable[[], None]) -> int:
    """The thread's niceness behind it."""
    found: list[int] = []

    def run() -> None:
        function()
        found.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found[0]


def own() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


def test_open_files_are_limited_by_the_hard_limit_alone() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 1024), hard))
    try:
        allow_open_files()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


PARENT = """
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stderr=subprocess.PIPE)
child.stderr.readline()
os._exit(0)
"""
CHILD = """
import sys, threading
from pathlib import Path
from triptych_serving.runtime.process import depend_on_parent
depend_on_parent()
print(Path("/proc/self/oom_score_adj").read_text(), end="", flush=True)
print(file=sys.stderr, flush=True)
threading.Event().wait()
"""


def test_a_process_that_depends_on_its_parent_ends_with_it() -> None:
    command = (sys.executable, "-c", PARENT, CHILD)
    assert subprocess.check_output(command, timeout=60) == b"1000\n"  # when the child has closed it, too


def test_only_the_calling_thread_and_its_children_give_way() -> None:
    before, found = own(), list[int]()

    def start_another() -> None:
        give_way()
        found.extend([in_thread(lambda: None), in_thread(give_way)])  # which give way no further

    assert in_thread(start_another) == min(MOST, before + NICENESS)
    assert found == [min(MOST, before + NICENESS)] * 2
    assert own() == before


def test_threads_that_give_way_are_batch_work_unless_they_have_another_policy() -> None:
    found: list[int] = []

    def note() -> None:
        give_way()
        found.append(os.sched_getscheduler(threading.get_native_id()))

    def idle() -> None:
        os.sched_setscheduler(threading.get_native_id(), os.SCHED_IDLE, os.sched_param(0))
        note()

    in_thread(note)
    in_thread(idle)
    assert found == [os.SCHED_BATCH, os.SCHED_IDLE]
    assert os.sched_getscheduler(threading.get_native_id()) == os.SCHED_OTHER


def test_a_forbidden_priority_change_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "setpriority", forbidden)
    assert in_thread(give_way) == own()


def levels(prefix: str, others: Collection[threading.Thread]) -> set[int]:
    """Return the niceness of threads by name prefix, without those of other tests."""
    threads = [thread.native_id for thread in set(threading.enumerate()) - set(others) if thread.name.startswith(prefix)]
    return {os.getpriority(os.PRIO_PROCESS, number) for number in threads if number is not None}


@pytest.mark.parametrize("gives_way", [True, False])
def test_threads_of_a_server_without_gpus_give_way(gives_way: bool, tmp_path: Path) -> None:
    options = ServerOptions(RepositoryOptions(tmp_path), hardware=CPU_ALONE if gives_way else Hardware((Device("cuda"),)))
    loader = replace(options.loader, hardware=CPU_ALONE)  # the GPU is not there
    assert loader.gives_way is gives_way
    expected = min(MOST, own() + NICENESS) if gives_way else own()
    others, models = threading.enumerate(), list[Model]()

    def load() -> None:
        for entry in (VersionFolder("toy", 1, BUNDLE), VersionFolder("vit", 1, write_image_bundle(tmp_path))):
            model, fault = loader.attempt(entry)
            assert model is not None, fault
            models.append(model)

    try:
        assert in_thread(load) == expected
        translator, vit = models
        assert isinstance(translator, Translator)
        assert isinstance(vit, ImageModel)
        translator.score([(SOURCE, TARGET)])
        vit.classify([png((10, 200, 20))])
        wide = {min(MOST, own() + WIDE_NICENESS)} if gives_way else set()
        for prefix, more in (("triptych-engine", wide), ("triptych-oneshot", set()), ("triptych-decode", set())):
            assert levels(prefix, others) == {expected, *more}, prefix
    finally:
        for model in models:
            model.close()


def test_document_threads_run_their_initializer() -> None:
    workers = DocumentWorkers(give_way)
    try:
        assert workers._heavy.submit(own).result() == min(MOST, own() + NICENESS)
    finally:
        workers.close()
