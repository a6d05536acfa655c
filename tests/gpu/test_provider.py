"""The runtime finds the GPU and its libraries, and all of a step has kernels there."""

import pytest

from triptych_serving.bundle.bundle import Bundle
from triptych_serving.bundle.manifest import TranslationManifest
from triptych_serving.runtime.device import Device
from triptych_serving.runtime.memory import Memory
from triptych_serving.runtime.memory.cudart import find_gpus, gpu_memory
from triptych_serving.runtime.session import Session, SessionPlace

from .environment import provider

pytestmark = pytest.mark.gpu


def test_the_gpu_is_there(gpu: Device) -> None:
    found = {one.device: one for one in find_gpus()}
    memory = gpu_memory(gpu)
    assert found[gpu].name
    assert 0 < memory.free_bytes <= memory.total_bytes == found[gpu].total_bytes


def test_the_provider_computes(device: Device) -> None:
    assert provider(str(device)) == ""


@pytest.mark.parametrize("graph", ["encoder", "step", "search", "score"])
def test_every_graph_loads(bundle: Bundle, memory: Memory, graph: str) -> None:
    graphs = bundle.manifest_of(TranslationManifest).precisions["fp16"]
    session = Session(bundle.path(getattr(graphs, graph)), place=SessionPlace(memory))
    assert session.inputs
    assert session.outputs


@pytest.mark.parametrize(("graph", "output"), [("step", "next"), ("search", "top_tokens")])
def test_a_step_has_nothing_for_the_cpu_to_do(bundle: Bundle, memory: Memory, graph: str, output: str) -> None:
    """A session that captures refuses any node that the GPU cannot run."""
    file = getattr(bundle.manifest_of(TranslationManifest).precisions["fp16"], graph)
    assert output in Session(bundle.path(file), place=SessionPlace(memory, captures=True)).outputs
