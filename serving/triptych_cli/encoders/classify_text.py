"""`triptych classify-text`: the labels of texts."""

from collections.abc import Iterator
from pathlib import Path

import click

from triptych_cli.common import options
from triptych_cli.common.lines import parts, read_lines
from triptych_cli.encoders.backends import ClassifiedText
from triptych_cli.encoders.texts import json_row, label_rows, label_values, run_texts, text_verb


@click.command(name="classify-text")
@text_verb
@options.option(
    "--top-k", type=click.IntRange(min=1), default=None, show_default=False, help="Labels of each text.  [default: all]"
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def command(texts: tuple[str, ...], source: Path | None, top_k: int | None, as_json: bool, **asked: str) -> None:
    """Rank the model's labels for each TEXT, or for each line of a file or a pipe.

    A model that takes pairs of texts gets them with a tab between the two.

    Without --server (or TRIPTYCH_SERVER) the engine runs in this process, on a model of --models.
    """
    run_texts(
        asked,
        "text-classification",
        read_lines(texts, source),
        lambda models, some: models.classify_texts([parts(text) for text in some], top_k),
        _json if as_json else _table,
        as_json,
    )


def _table(text: str, result: "ClassifiedText") -> Iterator[str]:
    return label_rows(text, result.labels)


def _json(text: str, result: "ClassifiedText") -> Iterator[str]:
    yield json_row(text=text, token_count=result.token_count, labels=label_values(result.labels))
