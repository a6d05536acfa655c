"""What the verbs that ask a model about each text have in common."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from triptych_cli.common import options
from triptych_cli.common.batch import batches, run_each
from triptych_cli.common.errors import one_line
from triptych_cli.common.lines import Line
from triptych_cli.common.scores import score_number, score_text
from triptych_cli.common.writer import open_writer
from triptych_cli.encoders.backends import Encoders, Labels, open_encoders
from triptych_embedded.request import BackendError, InputError, Place

BATCH = 256  # texts handed over at once

Function = TypeVar("Function", bound=Callable[..., Any])
Result = TypeVar("Result")
Ask = Callable[[Encoders, Sequence[str]], Sequence[Result]]
Show = Callable[[str, Result], Iterable[str]]


def text_verb(function: Function) -> Function:
    """The arguments and options of such a verb; the command gets `texts`, `source` and what makes a Place."""
    for decorate in (
        options.running,
        options.server,
        options.model,
        options.models,
        click.option(
            "-i", "--input", "source", type=click.Path(path_type=Path, dir_okay=False), help="Read lines from this file."
        ),
        click.argument("texts", nargs=-1, metavar="[TEXT]..."),
    ):
        function = decorate(function)
    return function


def run_texts(
    asked: Mapping[str, Any], capability: str, lines: Iterable[Line], ask: "Ask[Result]", show: "Show[Result]", as_json: bool
) -> None:
    """Ask about every line that is not blank, and print what `show` makes of each answer, in order.

    A line that the model cannot take is named on standard error, and makes the command end with 1; with `as_json` it has an
    object of its own in the output as well.

    Raises:
        click.ClickException: the models cannot be opened or fail.
    """
    bad = False
    filled = (line for line in lines if line.text.strip())
    with one_line(BackendError), open_encoders(Place(**asked), capability) as models, open_writer() as output:
        for batch in batches(filled, BATCH):
            results = run_each(lambda some: ask(models, some), [line.text for line in batch])
            for line, result in zip(batch, results, strict=True):
                if isinstance(result, InputError):
                    bad = True
                    click.echo(f"{line.place}: {result}", err=True)
                    rows: Iterable[str] = [json_row(text=line.text, error=str(result))] if as_json else ()
                else:
                    rows = show(line.text, result)
                output.writelines(f"{row}\n" for row in rows)
            output.flush()
    if bad:
        click.get_current_context().exit(1)


def json_row(**values: object) -> str:
    """One line of JSON."""
    return json.dumps(values, ensure_ascii=False)


def label_rows(title: str, labels: "Labels") -> Iterator[str]:
    """The title, then a line for each label; all in one line where there is one label."""
    rows = [f"{score_text(label.score):>7}  {label.label}" for label in labels]
    if len(rows) == 1:
        yield f"{title}  {rows[0].lstrip()}"
        return
    yield title
    yield from rows


def label_values(labels: "Labels") -> list[dict[str, object]]:
    """For JSON."""
    return [{"label": label.label, "score": score_number(label.score), "index": label.index} for label in labels]
