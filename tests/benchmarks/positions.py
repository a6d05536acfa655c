"""Profile of a decoding step by operator, at different positions and numbers of rows: only attention may grow.

    python tests/benchmarks/positions.py REPOSITORY [--model NAME] [--precision int8] [--graph search]
        [--rows 1,8,32] [--positions 12,28,56] [--stock]

All rows are at the same position, with a source as long as the target. Figures come from ONNX Runtime's profile of the graph,
in microseconds per step and as a share of the step, in one thread: for each node the 10th percentile of its runs in three
profiles, taken in turns, so that a machine with other work disturbs them little. `--stock` leaves the attention to ONNX Runtime
where the native kernel is installed.
"""

import json
import os
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

os.environ.setdefault("ORT_GQA_DISABLE_FLASH_ATTENTION", "1")  # as the server has it

import click
import numpy as np
import onnxruntime as ort
from candidates.triptych_model import find_model

from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.bundle.manifest import TranslationManifest
from triptych_serving.runtime.native.library import native_kernels
from triptych_serving.runtime.session import DTYPES
from triptych_serving.runtime.session_options import cpu_entries

STEPS, ROUNDS, PERCENTILE = 60, 3, 10
CANDIDATES = 8  # of a search
VALUES = {"forced": 5, "tokens": 5, "edit_factors": 1}
Durations = dict[str, list[int]]  # microseconds of each node's runs; the name begins with its operator


@click.command()
@click.argument("repository", type=click.Path(path_type=Path))
@click.option("--model", default="", help="[default: the first that translates]")
@click.option("--precision", default="int8", show_default=True)
@click.option("--graph", type=click.Choice(["step", "search"]), default="step", show_default=True)
@click.option("--rows", default="1,8,32", show_default=True)
@click.option("--positions", default="12,28,56", show_default=True)
@click.option("--stock", is_flag=True, help="Only ONNX Runtime's operators.")
def main(repository: Path, model: str, precision: str, graph: str, rows: str, positions: str, stock: bool) -> None:
    bundle = open_bundle(find_model(repository, model).folder)
    manifest = bundle.manifest_of(TranslationManifest)
    path = bundle.path(getattr(manifest.precisions[precision], graph))
    kernels = None if stock else native_kernels(manifest.decoder.head_dim)
    click.echo(f"{path.name}, {'native' if kernels else 'stock'} kernels")
    places = [int(position) for position in positions.split(",")]
    for count in map(int, rows.split(",")):
        profiles: dict[int, Durations] = {place: defaultdict(list) for place in places}
        for _ in range(ROUNDS):
            for place in places:
                profile(path, kernels, count, place, profiles[place])
        _report(count, {place: _by_operator(durations) for place, durations in profiles.items()})


def _report(rows: int, times: dict[int, Counter[str]]) -> None:
    click.echo(f"\n{f'{rows} rows, position':28}" + "".join(f"{place:>14}" for place in times))
    last = times[max(times)]
    for name in sorted(last, key=lambda name: -last[name]):
        shares = ((found[name], found[name] / found.total()) for found in times.values())
        click.echo(f"{name:28}" + "".join(f"{time:8.0f} {share:5.1%}" for time, share in shares))
    click.echo(f"{'all':28}" + "".join(f"{found.total():8.0f}      " for found in times.values()))


def profile(graph: Path, kernels: Path | None, rows: int, position: int, durations: Durations) -> None:
    """Run steps and add the durations of every node."""
    with tempfile.TemporaryDirectory() as work:
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(work) / "profile")
        for key, value in cpu_entries(1, exact_products=False).items():
            options.add_session_config_entry(key, value)
        if kernels is not None:
            options.register_custom_ops_library(str(kernels))
        session = ort.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
        _run(session, rows, position)
        events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            durations[f"{event['args']['op_name']} {event['name']}"].append(event["dur"])


def _by_operator(durations: Durations) -> Counter[str]:
    times: Counter[str] = Counter()
    for name, found in durations.items():
        times[name.partition(" ")[0]] += float(np.percentile(found, PERCENTILE))
    return times


def _run(session: ort.InferenceSession, rows: int, position: int) -> None:
    values = VALUES | {"positions": position, "last": position, "candidates": CANDIDATES}
    rng = np.random.default_rng(1)
    binding = session.io_binding()
    for node in session.get_inputs():
        dtype = DTYPES[node.type]
        shape = [1] if node.name == "candidates" else [rows, *(1 if isinstance(size, str) else size for size in node.shape[1:])]
        if node.name.startswith(("cache_", "memory_")):
            array = ((30 if dtype == np.int8 else 0.3) * rng.standard_normal(shape)).astype(dtype)
        else:
            array = np.full(shape, values.get(node.name, 0), dtype)
        value = ort.OrtValue.ortvalue_from_numpy(array)
        binding.bind_ortvalue_input(node.name, value)
        present = f"present_{node.name.removeprefix('cache_')}"
        if present in {output.name for output in session.get_outputs()}:
            binding.bind_ortvalue_output(present, value)
    for output in session.get_outputs():
        if not output.name.startswith("present_"):
            binding.bind_output(output.name, "cpu")
    for _ in range(STEPS):
        session.run_with_iobinding(binding)


if __name__ == "__main__":
    main()
