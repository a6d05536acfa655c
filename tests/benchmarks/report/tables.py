"""Tables, JSON files and option lists."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click


class Table:
    """Table that is printed line by line.

    Args:
        columns: Title and width of each column; a negative width aligns left.
    """

    def __init__(self, columns: Mapping[str, int]) -> None:
        self._row = "  ".join(f"{{:{'<' if width < 0 else '>'}{abs(width)}}}" for width in columns.values()).format
        self._titles = tuple(columns)

    def head(self, title: str) -> None:
        """Print a title and the titles of the columns."""
        click.echo(f"\n{title}")
        self.row(*self._titles)

    def row(self, *values: object) -> None:
        """Print a line; None is empty."""
        click.echo(self._row(*(f"{v:,.2f}" if isinstance(v, float) else "" if v is None else str(v) for v in values)).rstrip())


def write_json(path: Path | None, parts: Mapping[str, Any], results: Iterable[Any]) -> None:
    """Write `parts`, and dataclasses as `results`, if there is a path."""
    if path:
        content = {**parts, "results": [asdict(result) for result in results]}
        path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def numbers(text: str) -> list[int]:
    """Parse `1,8,32`."""
    return [int(part) for part in text.split(",")]


def words(text: str, allowed: Sequence[str], option: str) -> list[str]:
    """Parse `a,b`, each of `allowed`."""
    chosen = [part.strip() for part in text.split(",") if part.strip()]
    if unknown := [part for part in chosen if part not in allowed]:
        raise click.UsageError(f"{option}: {', '.join(unknown)} is unknown; choose from {', '.join(allowed)}")
    return chosen


def translation_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that all translation benchmarks share."""
    positive = click.IntRange(min=1)
    for option in (
        click.option("--json", "json_file", type=click.Path(path_type=Path), default=None),
        click.option("--serve-options", default="", help="Further options of `triptych serve`."),
        click.option("--slots", default=None, type=positive, help="Of a Triptych worker.  [default: its own]"),
        click.option("--length", default=None, type=positive, help="Exact number of tokens of every translation."),
        click.option("--model", default="", help="Name in the repository.  [default: the first translation model]"),
        click.option("--device", default="cpu", show_default=True),
        click.argument("repository", type=click.Path(path_type=Path, exists=True)),
        click.argument("checkpoint", type=click.Path(path_type=Path, exists=True)),
    ):
        command = option(command)
    return command
