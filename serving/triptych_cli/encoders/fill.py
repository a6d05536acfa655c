"""`triptych fill`: what may stand at [MASK]."""

from collections.abc import Iterator
from pathlib import Path

import click

from triptych_cli.common import options
from triptych_cli.common.lines import read_lines
from triptych_cli.common.scores import score_number, score_text
from triptych_cli.encoders.backends import FilledText
from triptych_cli.encoders.texts import json_row, run_texts, text_verb


@click.command(name="fill")
@text_verb
@options.option("--top-k", type=click.IntRange(min=1), default=5, help="Candidates of each mask.")
@click.option("--targets", default="", metavar="WORD,...", help="Rank these words alone.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def command(texts: tuple[str, ...], source: Path | None, top_k: int, targets: str, as_json: bool, **asked: str) -> None:
    """Rank what may stand at each mask of each TEXT, or of each line of a file or a pipe.

    A mask is written as the model's own mask token: [MASK], or <mask> for RoBERTa and its like.

    Without --server (or TRIPTYCH_SERVER) the engine runs in this process, on the embedded model.
    """
    words = [word.strip() for word in targets.split(",") if word.strip()]
    run_texts(
        asked,
        "fill-mask",
        read_lines(texts, source),
        lambda models, some: models.fill_mask(some, top_k, words),
        _json if as_json else _table,
        as_json,
    )


def _table(_text: str, result: "FilledText") -> Iterator[str]:
    """A line for each candidate; a blank line after each mask."""
    for mask in result.masks:
        width = max((len(candidate.token_str) for candidate in mask.candidates), default=0)
        for candidate in mask.candidates:
            sequence = " ".join(candidate.sequence.split())
            yield f"{score_text(candidate.score):>7}  {candidate.token_str:<{width}}  {sequence}"
        yield ""


def _json(text: str, result: "FilledText") -> Iterator[str]:
    masks = [
        [
            {
                "score": score_number(candidate.score),
                "token": candidate.token,
                "token_str": candidate.token_str,
                "sequence": candidate.sequence,
            }
            for candidate in mask.candidates
        ]
        for mask in result.masks
    ]
    yield json_row(text=text, token_count=result.token_count, masks=masks)
