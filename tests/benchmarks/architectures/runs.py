"""Results on disk, so that a comparison continues where it was interrupted, and the losses of a run."""

import json
import time
from bisect import bisect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


def finished(folder: Path, measure: Callable[[Path], dict[str, Any]], say: Callable[[str], None]) -> dict[str, Any]:
    """Return the results in a folder; if there are none, measure and write them."""
    path = folder / "results.json"
    if path.exists():
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found
    say(f"training in {folder}")
    folder.mkdir(parents=True, exist_ok=True)
    started, wall = time.process_time(), time.monotonic()
    results = measure(folder)
    spent = {"cpu_minutes": (time.process_time() - started) / 60, "wall_minutes": (time.monotonic() - wall) / 60}
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps({**results, **spent}, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    partial.replace(path)
    return {**results, **spent}


def fitting_width(widths: Sequence[int], parameters: int, count: Callable[[int], int]) -> int:
    """Choose the width whose model's number of parameters, which grows with it, is nearest to `parameters`."""
    above = bisect(widths, parameters, key=count)
    return min(widths[max(0, above - 1) : above + 1], key=lambda width: abs(count(width) - parameters))


def loss_curve(run: Path, unit: str) -> dict[str, Any]:
    """Read a run's training losses over CPU time, its speed, and its last validation."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    training = [line for line in lines if line["kind"] == "train"]
    final = next(line for line in lines if line["kind"] == "final")
    recipe = json.loads((run / "recipe.json").read_text(encoding="utf-8"))
    return {
        "minutes": recipe["max_minutes"],
        "steps": final["step"],
        **{name: value for name, value in final.items() if name.startswith("valid_")},
        f"{unit}_per_second": sum(line[f"{unit}_per_second"] for line in training) / max(1, len(training)),
        "seconds": [round(line["seconds"], 1) for line in training],
        "losses": [round(line["loss"], 4) for line in training],
    }
