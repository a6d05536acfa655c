"""Products of bytes by shape and number of rows, in billions of multiplications a second: native kernels and ONNX Runtime's.

    python tests/benchmarks/products.py [--shapes 256x256,2048x512] [--rows 1,4,8,32] [--weights-mib 8]

Each graph has as many nodes with weights of their own as fill `--weights-mib`, which are read in turns as those of a model are.
One thread; the fastest of several runs, both programs in turns. The last line is the rate at which plain memory is read.
"""

import tempfile
import time
from pathlib import Path

import click
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from triptych_serving.runtime.native.library import native_kernels
from triptych_serving.runtime.session import Session

SHAPES = "256x256,256x1024,1024x256,256x12000,512x2048,2048x512"
ROUNDS, TURN = 10, 4  # turns, and runs in each: the first finds the other program's weights in the caches


@click.command()
@click.option("--shapes", default=SHAPES, show_default=True, help="Depth x columns of the weights.")
@click.option("--rows", default="1,2,4,8,16,32,64", show_default=True)
@click.option(
    "--weights-mib", default=8, show_default=True, help="More than the second cache has: where a model's weights come from."
)
def main(shapes: str, rows: str, weights_mib: int) -> None:
    counts = [int(count) for count in rows.split(",")]
    click.echo(f"{'depth x columns':>16} {'kernels':>8}" + "".join(f"{count:>7}" for count in counts))
    for shape in shapes.split(","):
        depth, columns = map(int, shape.split("x"))
        copies = max(1, (weights_mib << 20) // (depth * columns))
        with tempfile.TemporaryDirectory() as folder:
            graph = write_products(Path(folder) / "graph.onnx", depth, columns, copies)
            sessions = {"native": Session(graph, kernels=native_kernels()), "stock": Session(graph)}
            best = {name: dict.fromkeys(counts, float("inf")) for name in sessions}
            for count in counts:
                inputs = {"inputs": np.random.default_rng(1).integers(0, 256, (count, depth), np.uint8)}
                outputs = dict.fromkeys(map("result_{}".format, range(copies)), np.empty((count, columns), np.float32))
                bound = {name: session.bind(inputs, outputs) for name, session in sessions.items()}
                for _ in range(ROUNDS):
                    for name, binding in bound.items():
                        for _ in range(TURN):
                            start = time.perf_counter()
                            binding.run()
                            best[name][count] = min(best[name][count], time.perf_counter() - start)
        for name, times in best.items():
            rates = (count * depth * columns * copies / seconds / 1e9 for count, seconds in times.items())
            click.echo(f"{shape:>16} {name:>8}" + "".join(f"{rate:7.0f}" for rate in rates))
    memory = np.ones(weights_mib << 20, np.uint8).view(np.float64)
    seconds = min(_timed(memory) for _ in range(ROUNDS))
    click.echo(f"plain memory of {weights_mib} MiB is read at {memory.nbytes / seconds / 1e9:.0f} GB/s")


def write_products(path: Path, depth: int, columns: int, copies: int) -> Path:
    """Write a graph with products of the same inputs and `copies` matrices."""
    rng = np.random.default_rng(1)
    parts = [numpy_helper.from_array(np.array(0.1, np.float32), "step")]
    parts.append(numpy_helper.from_array(np.array(128, np.uint8), "zero"))
    parts.append(numpy_helper.from_array(np.full(columns, 0.01, np.float32), "scales"))
    nodes = []
    for index in range(copies):
        parts.append(numpy_helper.from_array(rng.integers(-127, 128, (depth, columns), np.int8), f"weights_{index}"))
        inputs = ["inputs", f"weights_{index}", "step", "scales", "zero"]
        nodes.append(helper.make_node("MatMulIntegerToFloat", inputs, [f"result_{index}"], domain="com.microsoft"))
    info = helper.make_tensor_value_info
    outputs = [info(f"result_{index}", TensorProto.FLOAT, ["rows", columns]) for index in range(copies)]
    graph = helper.make_graph(nodes, "products", [info("inputs", TensorProto.UINT8, ["rows", depth])], outputs, parts)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return path


def _timed(memory: "np.ndarray[tuple[int], np.dtype[np.float64]]") -> float:
    start = time.perf_counter()
    memory.sum()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
