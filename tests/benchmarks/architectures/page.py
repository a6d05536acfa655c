"""One page of plots."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

Results = Sequence[Mapping[str, Any]]
COLUMNS = 3


def write_page(path: Path, translated: Results, pictures: Results) -> None:
    """Draw losses, BLEU, speeds, operations and alignments of translation models, and accuracies and losses of image models."""
    drawings = []
    if translated:
        drawings = [(draw, translated) for draw in (_losses, _lengths, _speeds, _operations)]
        drawings += [(_alignment, [each]) for each in translated]
    if pictures:
        drawings += [(_accuracies, pictures), (_losses, [each for each in pictures if each["images"] == _most(pictures)])]
    rows = -(-len(drawings) // COLUMNS)
    figure = Figure(figsize=(5.2 * COLUMNS, 4.4 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    places = figure.subplots(rows, COLUMNS, squeeze=False).flatten()
    for place, (draw, results) in zip(places, drawings, strict=False):
        draw(place, results)
    for place in places[len(drawings) :]:
        place.set_axis_off()
    figure.savefig(path, dpi=72)


def _losses(axes: Axes, results: Results) -> None:
    for each in results:
        axes.plot([second / 60 for second in each["seconds"]], each["losses"], label=each["model"])
    images = f", {results[0]['images']:,} images" if "images" in results[0] else ""
    _label(axes, f"Training loss{images}", "CPU minutes", "nats")


def _lengths(axes: Axes, results: Results) -> None:
    for each in results:
        names = [name for name in each["bleu"] if name != "all"]
        axes.plot(names, [each["bleu"][name]["bleu"] for name in names], "o-", label=f"{each['model']} ({_bleu(each):.1f})")
    _label(axes, "BLEU by length (of all)", "words of the source", "BLEU")


def _bleu(each: Mapping[str, Any]) -> float:
    return float(each["bleu"]["all"]["bleu"])


def _speeds(axes: Axes, results: Results) -> None:
    for shift, name in ((-0.2, "tokens_per_second"), (0.2, "decoded_tokens_per_second")):
        places = [index + shift for index in range(len(results))]
        bars = axes.bar(places, [each[name] for each in results], 0.4, label="training" if shift < 0 else "decoding")
        axes.bar_label(bars, fmt="{:,.0f}")
    axes.margins(y=0.15)  # for the labels
    axes.set_xticks(range(len(results)), [each["model"] for each in results])
    _label(axes, "Speed on one thread", "", "tokens per second of CPU time")


def _operations(axes: Axes, results: Results) -> None:
    for each in results:
        lengths, counts = zip(*each["operations"].items(), strict=True)
        axes.loglog([int(length) for length in lengths], counts, "o-", label=each["model"])
        _mark(axes, [int(length) for length in lengths])
    _label(axes, "Operations for n source and n target tokens", "n", "multiply-adds")


def _alignment(axes: Axes, results: Results) -> None:
    found = results[0]["alignment"]
    axes.imshow(found["weights"], cmap="Blues", vmin=0, vmax=1, aspect="auto")
    axes.set_xticks(range(len(found["source"])), found["source"], rotation=90)
    axes.set_yticks(range(len(found["target"])), found["target"])
    axes.set_title(f"Alignment, {results[0]['model']}")


def _accuracies(axes: Axes, results: Results) -> None:
    for name in dict.fromkeys(each["model"] for each in results):
        own = [each for each in results if each["model"] == name]
        axes.semilogx([each["images"] for each in own], [100 * each["valid_accuracy"] for each in own], "o-", label=name)
    _mark(axes, sorted({int(each["images"]) for each in results}))
    _label(axes, "Accuracy on held-out images", "training images", "percent")


def _mark(axes: Axes, numbers: Sequence[int]) -> None:
    """Mark these numbers on a logarithmic axis, and no others."""
    axes.set_xticks(numbers, [f"{number:,}" for number in numbers])
    axes.minorticks_off()


def _most(results: Results) -> int:
    return max(int(each["images"]) for each in results)


def _label(axes: Axes, title: str, x: str, y: str) -> None:
    axes.set_title(title)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(alpha=0.3)
    axes.legend()
