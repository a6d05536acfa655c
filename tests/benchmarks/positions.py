"""Duration of a decoding step at different positions, by operator: only attention may grow.

    python tests/benchmarks/positions.py REPOSITORY [--model NAME] [--precision int8] [--rows 32] [--positions 8,64,255]

All rows are at the same position, with a source as long as the target. Figures come from ONNX Runtime's profile of the step
graph, in microseconds per step: medians of three profiles taken in turns.
"""

import json
import os
import statistics
import tempfile
from collections import Counter
from pathlib import Path

os.environ.setdefault("ORT_GQA_DISABLE_FLASH_ATTENTION", "1")  # as the server has it

import click
import numpy as np
import onnxruntime as ort
from candidates.triptych_model import find_model

from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.bundle.manifest import TranslationManifest

STEPS, ROUNDS = 60, 3
TYPES = {"tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(float)": np.float32}


@click.command()
@click.argument("repository", type=click.Path(path_type=Path))
@click.option("--model", default="", help="[default: the first that translates]")
@click.option("--precision", default="int8", show_default=True)
@click.option("--rows", default=32, show_default=True)
@click.option("--positions", default="8,64,255", show_default=True)
def main(repository: Path, model: str, precision: str, rows: int, positions: str) -> None:
    bundle = open_bundle(find_model(repository, model).folder)
    graph = bundle.path(bundle.manifest_of(TranslationManifest).precisions[precision].step)
    places = [int(position) for position in positions.split(",")]
    profiles: dict[int, list[Counter[str]]] = {place: [] for place in places}
    for _ in range(ROUNDS):
        for place in places:
            profiles[place].append(profile(graph, rows, place))
    medians = {place: _median(found) for place, found in profiles.items()}
    operators = sorted(medians[places[-1]], key=lambda name: -medians[places[-1]][name])
    click.echo(f"{'microseconds at position':28}" + "".join(f"{place:>10}" for place in places))
    for name in operators:
        click.echo(f"{name:28}" + "".join(f"{medians[place][name]:10.0f}" for place in places))
    click.echo(f"{'all':28}" + "".join(f"{sum(medians[place].values()):10.0f}" for place in places))
    rest = "".join(f"{sum(medians[place].values()) - medians[place]['GroupQueryAttention']:10.0f}" for place in places)
    click.echo(f"{'all but attention':28}" + rest)


def profile(graph: Path, rows: int, position: int) -> Counter[str]:
    """Return the microseconds of each operator in one step."""
    with tempfile.TemporaryDirectory() as work:
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(work) / "profile")
        options.add_session_config_entry("optimization.disable_specified_optimizers", "SkipLayerNormFusion")
        session = ort.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
        _run(session, rows, position)
        events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    times: Counter[str] = Counter()
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            times[event["args"]["op_name"]] += event["dur"] / STEPS
    return times


def _run(session: ort.InferenceSession, rows: int, position: int) -> None:
    values = {"positions": position, "last": position, "forced": -1, "tokens": 5}
    rng = np.random.default_rng(1)
    binding = session.io_binding()
    for node in session.get_inputs():
        shape = [rows, *node.shape[1:]]
        if node.name in values:
            array = np.full(shape, values[node.name], TYPES[node.type])
        else:
            array = (0.3 * rng.standard_normal(shape)).astype(np.float32)
        value = ort.OrtValue.ortvalue_from_numpy(array)
        binding.bind_ortvalue_input(node.name, value)
        if node.name.startswith("cache_"):
            binding.bind_ortvalue_output(f"present_{node.name.removeprefix('cache_')}", value)
    binding.bind_output("next", "cpu")
    for _ in range(STEPS):
        session.run_with_iobinding(binding)


def _median(profiles: list[Counter[str]]) -> dict[str, float]:
    return {name: statistics.median(profile[name] for profile in profiles) for name in profiles[0]}


if __name__ == "__main__":
    main()
