"""The results as Markdown."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .translation import THEORY

Results = Sequence[Mapping[str, Any]]


def write_tables(path: Path, translated: Results, pictures: Results) -> str:
    """Write the tables that have rows, and return them."""
    tables = [*(_translation(translated) if translated else ()), *(_images(pictures) if pictures else ())]
    text = "\n\n".join(tables)
    path.write_text(text + "\n", encoding="utf-8")
    return text


def _translation(results: Results) -> list[str]:
    buckets = {name: f"BLEU {name} ({score['sentences']:,})" for name, score in results[0]["bleu"].items()}
    lengths = {length: f"n = {length}, million" for length in results[0]["operations"]}
    quality, speed, theory = [], [], []
    for each in results:
        name = each["model"]
        scores = (f"{each['bleu'][bucket]['bleu']:.1f}" for bucket in buckets)
        quality.append((name, f"{each['parameters']:,}", f"{each['valid_loss']:.2f}", *scores))
        speeds = (f"{each[column]:,.0f}" for column in ("tokens_per_second", "decoded_tokens_per_second", "steps"))
        speed.append((name, *speeds, *(f"{each[column]:.1f}" for column in ("cpu_minutes", "wall_minutes"))))
        theory.append((name, *THEORY[name], *(f"{each['operations'][length] / 1e6:,.0f}" for length in lengths)))
    return [
        _table(("", "parameters", "loss, nats per token", *buckets.values()), quality),
        _table(("", "tokens/s, training", "tokens/s, decoding", "steps", "CPU minutes in all", "minutes in all"), speed),
        _table(("", "operations of a layer", "sequential", "longest path", *lengths.values()), theory),
    ]


def _images(results: Results) -> list[str]:
    counts = sorted({each["images"] for each in results})
    rows = []
    for name in dict.fromkeys(each["model"] for each in results):
        own = {each["images"]: each for each in results if each["model"] == name}
        first, last = own[min(own)], own[max(own)]
        accuracies = (f"{100 * own[count]['valid_accuracy']:.1f} %" if count in own else "" for count in counts)
        rows.append((name, f"{first['parameters']:,}", f"{last['images_per_second']:,.0f}", *accuracies))
    return [_table(("", "parameters", "images/s, training", *(f"{count:,} images" for count in counts)), rows)]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
