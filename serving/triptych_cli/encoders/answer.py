"""`triptych answer`: answers to questions, found in a text."""

from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import click

from triptych_cli.common import options
from triptych_cli.common.lines import parts, read_lines
from triptych_cli.common.scores import score_number, score_text
from triptych_cli.encoders.backends import AnsweredQuestion
from triptych_cli.encoders.texts import json_row, run_texts, text_verb
from triptych_embedded.request import InputError

NO_CONTEXT = "there is no context: give --context, or a tab and the context behind the question"


@click.command(name="answer")
@text_verb
@click.option("-c", "--context", default="", metavar="TEXT", help="Where to look for the answers.")
@click.option(
    "--context-file", type=click.File(encoding="utf-8"), default=None, help="The same in a file; - is standard input."
)
@options.option("--top-k", type=click.IntRange(min=1), default=1, help="Answers to each question.")
@options.option("--max-answer-length", type=click.IntRange(min=1), default=15, help="Tokens.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def command(
    texts: tuple[str, ...],
    source: Path | None,
    context: str,
    context_file: TextIO | None,
    top_k: int,
    max_answer_length: int,
    as_json: bool,
    **asked: str,
) -> None:
    """Answer each question TEXT, or each line of a file or a pipe, from the context.

    Without a context each line has its own: question, tab, context.

    Without --server (or TRIPTYCH_SERVER) the engine runs in this process, on a model of --models.
    """
    if context and context_file:
        raise click.UsageError("give --context or --context-file, not both")
    shared = context_file.read() if context_file else context
    run_texts(
        asked,
        "question-answering",
        read_lines(texts, source),
        lambda models, some: models.answer([_pair(i, text, shared) for i, text in enumerate(some)], top_k, max_answer_length),
        _json if as_json else _table,
        as_json,
    )


def _pair(index: int, text: str, shared: str) -> tuple[str, str]:
    if shared:
        return text, shared
    pair = parts(text)
    if isinstance(pair, str):
        raise InputError(index, NO_CONTEXT)
    return pair


def _table(text: str, result: "AnsweredQuestion") -> Iterator[str]:
    """The question, a line for each answer, a blank line."""
    yield text.partition("\t")[0]
    for answer in result.answers:
        yield f"{score_text(answer.score):>7}  {' '.join(answer.text.split())}"
    yield ""


def _json(text: str, result: "AnsweredQuestion") -> Iterator[str]:
    answers = [
        {"text": answer.text, "score": score_number(answer.score), "start": answer.start, "end": answer.end}
        for answer in result.answers
    ]
    yield json_row(text=text.partition("\t")[0], token_count=result.token_count, answers=answers)
