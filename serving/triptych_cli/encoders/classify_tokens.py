"""`triptych classify-tokens`: labelled parts of texts, such as names."""

from collections.abc import Iterator
from pathlib import Path

import click

from triptych_cli.common import options
from triptych_cli.common.lines import read_lines
from triptych_cli.common.scores import score_number, score_text
from triptych_cli.encoders.backends import LabelledText
from triptych_cli.encoders.texts import json_row, run_texts, text_verb


@click.command(name="classify-tokens")
@text_verb
@options.option(
    "--aggregation", type=click.Choice(["simple", "none"]), default="simple", help="Whole entities, or every token for itself."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def command(texts: tuple[str, ...], source: Path | None, aggregation: str, as_json: bool, **asked: str) -> None:
    """Find the entities of each TEXT, or of each line of a file or a pipe.

    Without --server (or TRIPTYCH_SERVER) the engine runs in this process, on a model of --models.
    """
    run_texts(
        asked,
        "token-classification",
        read_lines(texts, source),
        lambda models, some: models.classify_tokens(some, aggregation),
        _json if as_json else _table,
        as_json,
    )


def _table(text: str, result: "LabelledText") -> Iterator[str]:
    """The text, a line for each entity, a blank line."""
    yield text
    width = max((len(entity.label) for entity in result.entities), default=0)
    for entity in result.entities:
        yield f"{score_text(entity.score):>7}  {entity.label:<{width}}  {' '.join(entity.text.split())}"
    yield ""


def _json(text: str, result: "LabelledText") -> Iterator[str]:
    entities = [
        {
            "label": entity.label,
            "score": score_number(entity.score),
            "text": entity.text,
            "start": entity.start,
            "end": entity.end,
        }
        for entity in result.entities
    ]
    yield json_row(text=text, token_count=result.token_count, entities=entities)
