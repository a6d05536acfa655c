"""The commands of text tasks: `rerank`, `neighbors`, and one entry each for the other ones, such as `fill` and `embed`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import click

from triptych_cli.common import options
from triptych_cli.common.lines import (
    InputLine,
    batches,
    fail_fast,
    json_row,
    open_writer,
    read_lines,
    reported_failures,
    run_valid,
    score_number,
    score_text,
    split_pair,
)
from triptych_cli.encoders.backend import Run, open_encoder, open_reranker
from triptych_embedded.request import InputError

BATCH = 256  # texts per call
WHERE = "Without --server (or TRIPTYCH_SERVER) the engine runs in this process, on {}."
EMPTY = "the text is empty"
NO_CONTEXT = "there is no context: give --context, or a tab and the context behind the question"

ToInput = Callable[[str], Any]  # may return an InputError
Report = Callable[[str, object], None]
# Results are those of the engine or of the client: both have the members of the wire's messages.
Rows = Callable[[str, Any], Iterator[str]]

truncate = click.option("--truncate", is_flag=True, help="Cut off the end of texts that are too long for the model.")


@dataclass(frozen=True)
class TextCommand:
    """One command."""

    capability: str  # name of the task in `TEXT_TASKS` of triptych_serving
    client_method: str  # name of the client's method, which takes the same arguments
    help: str  # the command's help text
    flags: Callable[[Any], Any]  # of the task's own options, which become the arguments of its methods
    values: Callable[[Any], Mapping[str, object]]  # makes the members for JSON of a result
    rows: Rows | None  # makes the lines of the table of a text and its result; None: the command prints JSON only
    prepare: Callable[[dict[str, Any]], ToInput] = lambda _: lambda text: text
    """Changes the arguments in place; returns a function that turns the text of a line into an input."""
    titles_questions: bool = False  # the output repeats only the question of a line, without the context behind the tab

    def make(self, name: str) -> click.Command:
        """Make the command."""
        flags = options.several(self.flags, *([options.json_lines] if self.rows else []), fail_fast)

        @click.command(name=name, help=self.help)
        @click.argument("texts", nargs=-1, metavar="[TEXT]...")
        @options.input_file
        @options.model_choice
        @flags
        def command(
            texts: tuple[str, ...], source: Path | None, fail_fast: bool, as_json: bool = True, **arguments: Any
        ) -> None:
            choice = options.take_choice(arguments)
            to_input = self.prepare(arguments)
            lines = read_lines(texts, source)
            opened = open_encoder(choice, self.capability, self.client_method)
            with reported_failures(fail_fast) as report, opened as run, open_writer() as output:
                self._run(partial(run, **arguments), lines, to_input, report, output, as_json)

        made: click.Command = command
        return made

    def _run(
        self, run: Run, lines: Iterator[InputLine], to_input: ToInput, report: Report, output: TextIO, as_json: bool
    ) -> None:
        """Run the task on all lines and print the results in order; JSON has an object for each bad line too."""
        for batch in batches(lines, BATCH):
            inputs = [to_input(line.text) if line.text.strip() else InputError(0, line.problem or EMPTY) for line in batch]
            for line, given, result in zip(batch, inputs, run_valid(run, inputs), strict=True):
                if isinstance(result, InputError):
                    report(line.origin, result)
                    if as_json:
                        output.write(json_row(text=line.text, error=str(result)) + "\n")
                else:
                    title = given[0] if self.titles_questions and isinstance(given, tuple) else line.text
                    row = json_row(text=title, **_token_count(line.origin, result), **self.values(result))
                    rows = [row] if as_json or self.rows is None else self.rows(title, result)
                    output.writelines(f"{row}\n" for row in rows)
            output.flush()


def _token_count(origin: str, result: Any) -> dict[str, object]:
    """Return the number of tokens of an input for JSON. Say so if more of them were cut off."""
    if not getattr(result, "truncated", False):
        return {"token_count": result.token_count}
    click.echo(f"{origin}: only the first {result.token_count:,} tokens were read", err=True)
    return {"token_count": result.token_count, "truncated": True}


def label_rows(title: str, labels: Sequence[Any]) -> Iterator[str]:
    """Yield the title, then a line for each label; one line for both if there is a single label."""
    rows = [f"{score_text(label.score):>7}  {label.label}" for label in labels]
    yield from [f"{title}  {rows[0].lstrip()}"] if len(rows) == 1 else [title, *rows]


def label_values(result: Any) -> dict[str, object]:
    """Return the labels of a result for JSON."""
    labels = [{"label": label.label, "score": score_number(label.score), "index": label.index} for label in result.labels]
    return {"labels": labels}


def _members(item: Any, *names: str) -> dict[str, object]:
    return {name: score_number(item.score) if name == "score" else getattr(item, name) for name in names}


def _vectors(result: Any) -> dict[str, object]:
    """Return a text's vector for JSON, and its tokens' if there are any. Nine digits distinguish all float32 values."""
    values, tokens = ([float(f"{value:.9g}") for value in part] for part in (result.values, result.token_values))
    width, places = len(values), zip(result.token_starts, result.token_ends, strict=True)
    rows = [
        {"start": start, "end": end, "values": tokens[number * width : (number + 1) * width]}
        for number, (start, end) in enumerate(places)
    ]
    return {"values": values, **({"tokens": rows} if rows else {})}


def _fill_rows(_: str, result: Any) -> Iterator[str]:
    for mask in result.masks:
        width = max((len(candidate.token_str) for candidate in mask.candidates), default=0)
        for candidate in mask.candidates:
            sequence = " ".join(candidate.sequence.split())
            yield f"{score_text(candidate.score):>7}  {candidate.token_str:<{width}}  {sequence}"
        yield ""


def _entity_rows(text: str, result: Any) -> Iterator[str]:
    yield text
    width = max((len(entity.label) for entity in result.entities), default=0)
    for entity in result.entities:
        yield f"{score_text(entity.score):>7}  {entity.label:<{width}}  {' '.join(entity.text.split())}"
    yield ""


def _answer_rows(question: str, result: Any) -> Iterator[str]:
    yield question
    for answer in result.answers:
        yield f"{score_text(answer.score):>7}  {' '.join(answer.text.split())}"
    yield ""


def _split_targets(arguments: dict[str, Any]) -> ToInput:
    arguments["targets"] = [word.strip() for word in arguments["targets"].split(",") if word.strip()]
    return lambda text: text


def _with_context(arguments: dict[str, Any]) -> ToInput:
    context, file = arguments.pop("context"), arguments.pop("context_file")
    if context and file:
        raise click.UsageError("give --context or --context-file, not both")
    shared = file or context

    def to_input(text: str) -> tuple[str, str] | InputError:
        pair = (text, shared) if shared else split_pair(text)
        return InputError(0, NO_CONTEXT) if isinstance(pair, str) else pair

    return to_input


fill = TextCommand(
    "fill-mask",
    "fill_mask_many",
    f"""Rank the words that fit each mask of each TEXT, or of each line of a file or a pipe.

    A mask is written as the model's own mask token: [MASK], or <mask> for RoBERTa and similar models.

    {WHERE.format("the embedded model")}
    """,
    options.several(
        options.option("--top-k", type=click.IntRange(min=1), default=5, help="Candidates for each mask."),
        click.option("--targets", default="", metavar="WORD,...", help="Rank only these words."),
    ),
    lambda result: {
        "masks": [
            [_members(each, "score", "token", "token_str", "sequence") for each in mask.candidates] for mask in result.masks
        ]
    },
    _fill_rows,
    _split_targets,
).make("fill")
embed = TextCommand(
    "embedding",
    "embed_many",
    f"""Print a vector for each TEXT, or for each line of a file or a pipe: one JSON object per line.

    {WHERE.format("the embedded model")}
    """,
    options.several(
        options.pooling,
        click.option(
            "--normalize/--no-normalize", default=None, help="Scale vectors to length 1.  [default: as the model was trained]"
        ),
        click.option(
            "--token-vectors", is_flag=True, help="Add the vector and the place of each token, from models that have them."
        ),
        click.option("--prompt-name", default="", help="Put this prompt of the model before every text, such as query."),
        truncate,
    ),
    _vectors,
    None,
).make("embed")
classify_text = TextCommand(
    "text-classification",
    "classify_text_many",
    f"""Rank the model's labels for each TEXT, or for each line of a file or a pipe.

    For a model that takes pairs of texts, separate the two with a tab.

    {WHERE.format("a model of --models")}
    """,
    options.several(
        options.optional("--top-k", type=click.IntRange(min=1), help="Labels for each text.  [default: all]"), truncate
    ),
    label_values,
    lambda text, result: label_rows(text, result.labels),
    lambda _: split_pair,
).make("classify-text")
classify_tokens = TextCommand(
    "token-classification",
    "classify_tokens_many",
    f"""Find the entities of each TEXT, or of each line of a file or a pipe.

    {WHERE.format("a model of --models")}
    """,
    options.several(options.aggregation, truncate),
    lambda result: {"entities": [_members(each, "label", "score", "text", "start", "end") for each in result.entities]},
    _entity_rows,
).make("classify-tokens")
answer = TextCommand(
    "question-answering",
    "answer_many",
    f"""Answer each question TEXT, or each line of a file or a pipe, from the context.

    Without a context each line must have its own: question, tab, context.

    {WHERE.format("a model of --models")}
    """,
    options.several(
        click.option("-c", "--context", default="", metavar="TEXT", help="Text to search for the answers."),
        click.option(
            "--context-file", callback=options.text_of, metavar="FILE", help="File with the context; - is standard input."
        ),
        options.option("--top-k", type=click.IntRange(min=1), default=1, help="Answers to each question."),
        options.option("--max-answer-length", type=click.IntRange(min=1), default=15, help="Longest answer, in tokens."),
    ),
    lambda result: {"answers": [_members(each, "text", "score", "start", "end") for each in result.answers]},
    _answer_rows,
    _with_context,
    titles_questions=True,
).make("answer")


@click.command("rerank")
@click.argument("query")
@click.argument("texts", nargs=-1, metavar="[DOCUMENT]...")
@options.input_file
@options.model_choice
@options.optional("--top-k", type=click.IntRange(min=1), help="Documents to print, best first.  [default: all]")
@click.option("--raw-scores", is_flag=True, help="Print the model's logits instead of scores from 0 to 1.")
@truncate
@options.json_lines
def rerank(query: str, texts: tuple[str, ...], source: Path | None, as_json: bool, **arguments: Any) -> None:
    """Rank each DOCUMENT, or each line of a file or a pipe, by its relevance to the QUERY; the best comes first.

    All documents are read first, and compared in one request. Without --server (or TRIPTYCH_SERVER) the engine runs in this
    process, on a model of --models.
    """
    choice = options.take_choice(arguments)
    numbered = [(number, line) for number, line in enumerate(read_lines(texts, source)) if not line.is_blank]
    lines = [line for _, line in numbered]
    if problem := next((f"{line.origin}: {line.problem}" for line in lines if line.problem), ""):
        raise click.ClickException(problem)
    with open_reranker(choice) as run, open_writer() as output:
        try:
            results = run(query, [line.text for line in lines], **arguments) if lines else []
        except InputError as error:
            raise click.ClickException(f"{lines[error.index].origin}: {error}") from error
        for result in results:
            number, line = numbered[result.index]
            row = json_row(text=line.text, **_token_count(line.origin, result), index=number, **_members(result, "score"))
            output.write(f"{row if as_json else f'{score_text(result.score):>7}  {line.text}'}\n")


@click.command("neighbors", context_settings={"ignore_unknown_options": True, "help_option_names": ["--help"]})
@click.argument("words", nargs=-1, required=True, metavar="WORD...")
@options.model_choice
@options.option("--top-k", type=click.IntRange(min=1), default=10, help="Words to print, best first.")
@options.json_lines
def neighbors(words: tuple[str, ...], as_json: bool, **arguments: Any) -> None:
    """Find the words most similar to a sum: each WORD is added, or with a hyphen before it subtracted.

    Such as: triptych neighbors --models models king -man +woman

    The model is a table of vectors, such as Word2Vec's. Without --server (or TRIPTYCH_SERVER) the engine runs in this process,
    on a model of --models.
    """
    if mistyped := next((word for word in words if word.startswith("--")), ""):
        raise click.NoSuchOption(mistyped)
    choice = options.take_choice(arguments)
    with open_encoder(choice, "neighbors", "neighbors_many") as run:
        [result] = run([" ".join(words)], **arguments)
    if isinstance(result, InputError):
        raise click.ClickException(str(result))
    with open_writer() as output:
        for one in result.neighbors:
            row = json_row(**_members(one, "score", "token", "token_str"))
            output.write(f"{row if as_json else f'{score_text(one.score):>7}  {one.token_str}'}\n")
