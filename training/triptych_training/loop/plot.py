"""The loss plot of a run folder."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure


def draw_losses(records: Sequence[Mapping[str, Any]], path: Path, headline: str) -> None:
    """Training and validation loss over steps, in nats, and the validation metric `headline` beside them."""
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    losses = figure.subplots()
    training = [r for r in records if r["kind"] == "train"]
    epochs = [r for r in records if r["kind"] == "epoch"]
    losses.plot([r["step"] for r in training], [r["loss"] for r in training], label="training", lw=1)
    losses.plot([r["step"] for r in epochs], [r["valid_loss"] for r in epochs], "o-", label="validation")
    losses.set_xlabel("optimizer step")
    losses.set_ylabel("loss, nats")
    scores = losses.twinx()
    scores.plot([r["step"] for r in epochs], [r[f"valid_{headline}"] for r in epochs], "s--", color="tab:green", label=headline)
    scores.set_ylabel(f"validation {headline}")
    lines = [*losses.get_lines(), *scores.get_lines()]
    losses.legend(lines, [str(line.get_label()) for line in lines], loc="center right")
    figure.savefig(path, dpi=120)
