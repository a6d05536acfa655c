"""Runs are asked for and not waited for; what is asked for is done in order."""

import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from triptych_serving.runtime.cuda_graph_lock import CUDA_GRAPH_LOCK
from triptych_serving.runtime.device import Device
from triptych_serving.runtime.memory import Memory, open_memory
from triptych_serving.runtime.session import UNCAPTURED, Session, SessionPlace

from .graphs import save

pytestmark = pytest.mark.gpu

SIDE = 8_192  # of matrices whose products take milliseconds
PRODUCTS = 16
ENQUEUED = 0.5  # of the time that the work takes, enqueuing must take less


@pytest.mark.parametrize("graph", [UNCAPTURED, 1], ids=["eager", "captured"])
def test_a_run_returns_before_it_is_done(gpu: Device, tmp_path: Path, graph: int) -> None:
    """Else no step could be asked for while another one runs."""
    nodes = [
        helper.make_node("MatMul", [f"x{index}", "weight"], [f"x{index + 1}"], name=f"product {index}")
        for index in range(PRODUCTS)
    ]
    weight = np.eye(SIDE, dtype=np.float16)
    path = save(tmp_path, nodes, {"x0": [SIDE, SIDE]}, {f"x{PRODUCTS}": [SIDE, SIDE]}, {"weight": weight})
    with closing(open_memory(gpu)) as memory:
        session = Session(path, place=SessionPlace(memory, captures=graph > 0))
        x, y = memory.zeros((SIDE, SIDE), np.float16), memory.zeros((SIDE, SIDE), np.float16)
        binding = session.bind({"x0": x}, {f"x{PRODUCTS}": y})
        if graph > 0:
            with CUDA_GRAPH_LOCK.capturing():
                binding.run(graph)
                memory.wait()
        binding.run(graph)
        memory.wait()
        started = time.perf_counter()
        binding.run(graph)
        mark = memory.mark()
        asked = time.perf_counter() - started
        mark.wait()
        done = time.perf_counter() - started
        assert asked < ENQUEUED * done


def test_copies_and_runs_keep_their_order(memory: Memory, tmp_path: Path) -> None:
    """Uploads, runs and downloads over one buffer, hundreds of them on their way."""
    node = helper.make_node("Add", ["x", "one"], ["y"])
    path = save(tmp_path, [node], {"x": ["n"]}, {"y": ["n"]}, {"one": np.ones(1, np.int64)}, {"x": np.int64, "y": np.int64})
    binding_of = Session(path, place=SessionPlace(memory))
    value = memory.zeros((1_000,), np.int64)
    binding = binding_of.bind({"x": value}, {"y": value})
    hosts, marks = [], []
    for number in range(200):
        memory.upload(np.full(1_000, 10 * number, np.int64), value)
        for _ in range(3):
            binding.run(UNCAPTURED)
        host = memory.staging((1_000,), np.int64)
        memory.download(value, host)
        hosts.append(host)
        marks.append(memory.mark())
    for number, (mark, host) in enumerate(zip(marks, hosts, strict=True)):
        mark.wait()
        assert set(host.tolist()) == {10 * number + 3}
