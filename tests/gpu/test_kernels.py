"""The operators that the graphs lean on, one by one, in fp16, against numpy in 64 bits."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import helper

from triptych_serving.runtime.memory import Memory
from triptych_serving.runtime.session import Session, SessionPlace

from .graphs import Shape, save

pytestmark = pytest.mark.gpu

Array = NDArray[Any]
HALF = np.float16
HEADS, SIZE, POSITIONS = 8, 64, 64
DIM = HEADS * SIZE
ROWS = 5
CONTRIB = "com.microsoft"


def run(
    path: Path, memory: Memory, inputs: Mapping[str, Array], outputs: Mapping[str, Array], shared: Mapping[str, str]
) -> None:
    """Run once over device memory; `outputs` are filled. Those in `shared` have the memory of an input."""
    places = {name: memory.zeros(array.shape, array.dtype) for name, array in inputs.items()}
    for name, array in inputs.items():
        memory.upload(np.ascontiguousarray(array), places[name])
    results = {
        name: places[shared[name]] if name in shared else memory.zeros(array.shape, array.dtype)
        for name, array in outputs.items()
    }
    Session(path, place=SessionPlace(memory)).bind(places, results).run()
    for name, array in outputs.items():
        host = memory.staging(array.shape, array.dtype)
        memory.download(results[name], host)
        memory.wait()
        array[...] = host


def near(found: Array, exact: Array, limit: float = 3e-3) -> None:
    """The relative distance of two arrays as vectors."""
    distance = np.linalg.norm(found.astype(np.float64) - exact) / np.linalg.norm(exact)
    assert distance < limit


def random(rng: np.random.Generator, *shape: int, scale: float = 1.0) -> Array:
    return (scale * rng.standard_normal(shape)).astype(HALF)


def attend(query: Array, keys: Array, values: Array) -> Array:
    """One query `[H, D]` over `[H, T, D]`, in 64 bits -> `[H, D]`."""
    scores = np.einsum("hd,htd->ht", query.astype(np.float64), keys.astype(np.float64))
    shares = np.exp(scores - scores.max(1, keepdims=True))
    return np.asarray(np.einsum("ht,htd->hd", shares / shares.sum(1, keepdims=True), values.astype(np.float64)))


def test_self_attention_updates_its_cache_in_place(memory: Memory, tmp_path: Path) -> None:
    """Rows at different positions, over garbage behind them."""
    rng = np.random.default_rng(0)
    node = helper.make_node(
        "GroupQueryAttention",
        ["qkv", "", "", "past_key", "past_value", "positions", "total"],
        ["output", "present_key", "present_value"],
        domain=CONTRIB,
        num_heads=HEADS,
        kv_num_heads=HEADS,
        scale=1.0,
    )
    cache: Shape = ["n", HEADS, POSITIONS, SIZE]
    path = save(
        tmp_path,
        [node],
        {"qkv": ["n", 1, 3 * DIM], "past_key": cache, "past_value": cache, "positions": ["n"]},
        {"output": ["n", 1, DIM], "present_key": cache, "present_value": cache},
        {"total": np.array(POSITIONS, np.int32)},
        {"positions": np.int32},
    )
    positions = np.array([0, 3, 17, 40, POSITIONS - 1], np.int32)
    inputs = {
        "qkv": random(rng, ROWS, 1, 3 * DIM, scale=0.3),
        "past_key": random(rng, ROWS, HEADS, POSITIONS, SIZE, scale=0.3),
        "past_value": random(rng, ROWS, HEADS, POSITIONS, SIZE),
        "positions": positions,
    }
    outputs = {"output": np.zeros((ROWS, 1, DIM), HALF)}
    outputs |= {name: np.zeros((ROWS, HEADS, POSITIONS, SIZE), HALF) for name in ("present_key", "present_value")}
    run(path, memory, inputs, outputs, {"present_key": "past_key", "present_value": "past_value"})
    exact = np.zeros((ROWS, HEADS, SIZE))
    for row, position in enumerate(positions):
        query, key, value = inputs["qkv"][row, 0].reshape(3, HEADS, SIZE)
        for name, new in (("key", key), ("value", value)):
            expected = inputs[f"past_{name}"][row].copy()
            expected[:, position] = new
            np.testing.assert_array_equal(outputs[f"present_{name}"][row], expected)
        keys, values = (outputs[name][row, :, : position + 1] for name in ("present_key", "present_value"))
        exact[row] = attend(query, keys, values)
    near(outputs["output"].reshape(ROWS, HEADS, SIZE), exact)


def test_cross_attention_sees_each_row_s_own_length(memory: Memory, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    node = helper.make_node(
        "Attention",
        ["query", "key", "value", "", "", "", "lengths"],
        ["output"],
        q_num_heads=HEADS,
        kv_num_heads=HEADS,
        scale=1.0,
    )
    side: Shape = ["n", POSITIONS, DIM]
    path = save(
        tmp_path,
        [node],
        {"query": ["n", 1, DIM], "key": side, "value": side, "lengths": ["n"]},
        {"output": ["n", 1, DIM]},
        types={"lengths": np.int64},
    )
    lengths = np.array([1, 2, 24, 63, POSITIONS], np.int64)
    inputs = {
        "query": random(rng, ROWS, 1, DIM, scale=0.3),
        "key": random(rng, ROWS, POSITIONS, DIM, scale=0.3),
        "value": random(rng, ROWS, POSITIONS, DIM),
        "lengths": lengths,
    }
    outputs = {"output": np.zeros((ROWS, 1, DIM), HALF)}
    run(path, memory, inputs, outputs, {})
    exact = np.zeros((ROWS, HEADS, SIZE))
    for row, length in enumerate(lengths):
        keys, values = (inputs[name][row, :length].reshape(length, HEADS, SIZE).swapaxes(0, 1) for name in ("key", "value"))
        exact[row] = attend(inputs["query"][row, 0].reshape(HEADS, SIZE), keys, values)
    near(outputs["output"].reshape(ROWS, HEADS, SIZE), exact)


def test_norms_sum_in_32_bits(memory: Memory, tmp_path: Path) -> None:
    """Values whose squares do not fit into fp16."""
    rng = np.random.default_rng(2)
    scale, bias = (1 + 0.1 * rng.standard_normal((2, DIM))).astype(HALF)
    node = helper.make_node("LayerNormalization", ["x", "scale", "bias"], ["y"], epsilon=1e-5, stash_type=1)
    path = save(tmp_path, [node], {"x": ["n", DIM]}, {"y": ["n", DIM]}, {"scale": scale, "bias": bias})
    x, y = random(rng, ROWS, DIM, scale=500.0), np.zeros((ROWS, DIM), HALF)
    run(path, memory, {"x": x}, outputs := {"y": y}, {})
    wide = x.astype(np.float64)
    normal = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5)
    near(outputs["y"], normal * scale.astype(np.float64) + bias.astype(np.float64))


def test_products_sum_in_32_bits(memory: Memory, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    node = helper.make_node("MatMul", ["x", "weight"], ["y"])
    weight = random(rng, 4 * DIM, DIM, scale=0.02)
    path = save(tmp_path, [node], {"x": ["n", 4 * DIM]}, {"y": ["n", DIM]}, {"weight": weight})
    x, y = random(rng, ROWS, 4 * DIM), np.zeros((ROWS, DIM), HALF)
    run(path, memory, {"x": x}, {"y": y}, {})
    near(y, x.astype(np.float64) @ weight.astype(np.float64))


@pytest.mark.parametrize("kind", [np.float16, np.float32])
def test_the_best_token_is_the_first_of_equals(memory: Memory, tmp_path: Path, kind: type) -> None:
    rng = np.random.default_rng(4)
    node = helper.make_node("ArgMax", ["logits"], ["best"], axis=-1, keepdims=0)
    types = {"logits": kind, "best": np.int64}
    path = save(tmp_path, [node], {"logits": ["n", 16_000]}, {"best": ["n"]}, types=types)
    logits: Array = rng.standard_normal((ROWS, 16_000)).astype(kind)
    logits[0, [77, 15_000]] = 9
    best = np.zeros(ROWS, np.int64)
    run(path, memory, {"logits": logits}, {"best": best}, {})
    assert best[0] == 77
    assert best.tolist() == logits.argmax(1).tolist()
