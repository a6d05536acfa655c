"""Rows of a table, and JSON."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click


class Table:
    """Printed line by line, as results come.

    Args:
        columns: title and width of each; a negative width is flush left.
    """

    def __init__(self, columns: Mapping[str, int]) -> None:
        self._row = "  ".join(f"{{:{'<' if width < 0 else '>'}{abs(width)}}}" for width in columns.values()).format
        self._titles = tuple(columns)

    def head(self, title: str) -> None:
        """A new table."""
        click.echo(f"\n{title}")
        self.row(*self._titles)

    def row(self, *values: object) -> None:
        """One line."""
        click.echo(self._row(*map(shown, values)).rstrip())


def shown(value: object) -> str:
    """A number as a table has it; empty for None."""
    if value is None:
        return ""
    return f"{value:,.2f}" if isinstance(value, float) else str(value)


def write_json(path: Path, parts: Mapping[str, Any], results: Iterable[Any]) -> None:
    """`parts`, and dataclasses as `results`."""
    content = {**parts, "results": [asdict(result) for result in results]}
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def numbers(text: str) -> list[int]:
    """`1,8,32`."""
    return [int(part) for part in text.split(",")]


def words(text: str, allowed: Sequence[str], option: str) -> list[str]:
    """`a,b`, each one of `allowed`."""
    chosen = [part.strip() for part in text.split(",") if part.strip()]
    if unknown := [part for part in chosen if part not in allowed]:
        raise click.UsageError(f"{option}: {', '.join(unknown)} is unknown; choose of {', '.join(allowed)}")
    return chosen
