"""`triptych translate`: text, a file or a pipe."""

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO

import click

from triptych_cli.common import options
from triptych_cli.common.batch import batches
from triptych_cli.common.decoding import check_json, decoding_options, take_decoding
from triptych_cli.common.errors import one_line
from triptych_cli.common.languages import language_options
from triptych_cli.common.lines import Line, read_lines
from triptych_cli.common.scores import score_number
from triptych_cli.common.writer import open_writer
from triptych_embedded.request import Backend, BackendError, Candidate, InputError, Request, Translated, open_backend


@click.command(name="translate")
@click.argument("texts", nargs=-1, metavar="[TEXT]...")
@click.option("-i", "--input", "source", type=click.Path(path_type=Path, dir_okay=False), help="Read lines from this file.")
@click.option("-o", "--output", "target", type=click.Path(path_type=Path, dir_okay=False), help="Write lines to this file.")
@options.models
@options.model
@options.server
@options.running
@language_options
@decoding_options
@click.option("--stream", is_flag=True, help="Show text while it is decoded.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, with every translation and what is known of it.")
def command(
    texts: tuple[str, ...], source: Path | None, target: Path | None, stream: bool, as_json: bool, **asked: Any
) -> None:
    """Translate each TEXT, or each line of a file or a pipe: one line in, one line out.

    Without --server (or TRIPTYCH_SERVER) the engine runs in this process, on the embedded model.
    """
    if source and target and target.exists() and source.exists() and target.samefile(source):
        raise click.UsageError("--output is the --input file, which would be emptied before it is read")
    decoding = take_decoding(asked)
    check_json(decoding, as_json)
    if stream and as_json:
        raise click.UsageError("--stream shows text, not --json")
    lines = read_lines(texts, source)
    request = Request(**asked, decoding=decoding)
    with one_line(BackendError), open_backend(request) as backend, open_writer(target) as output:
        shown = _json if as_json else _text
        for line, translated in _stream(backend, lines, output) if stream else _translate(backend, lines, output, shown):
            if translated.truncated:
                click.echo(f"{line.place}: the translation reached its length limit and is incomplete", err=True)


def _translate(
    backend: Backend, lines: Iterable[Line], output: TextIO, shown: Callable[[Line, Translated | None], str]
) -> Iterator[tuple[Line, Translated]]:
    """Translate batch after batch; blank lines stay blank."""
    for batch in batches(lines, backend.batch):
        full = [line for line in batch if line.text.strip()]
        try:
            results = iter(backend.translate([line.text for line in full]) if full else [])
        except InputError as error:
            raise click.ClickException(f"{full[error.index].place}: {error}") from error
        for line in batch:
            translated = next(results) if line.text.strip() else None
            output.write(shown(line, translated) + "\n")
            if translated is not None:
                yield line, translated
        output.flush()


def _stream(backend: Backend, lines: Iterable[Line], output: TextIO) -> Iterator[tuple[Line, Translated]]:
    for line in lines:
        try:
            for event in backend.stream(line.text) if line.text.strip() else ():
                if isinstance(event, Translated):
                    yield line, event
                else:
                    output.write(_one_line(event))
                    output.flush()
        except InputError as error:
            raise click.ClickException(f"{line.place}: {error}") from error
        output.write("\n")


def _text(_: Line, translated: Translated | None) -> str:
    return "" if translated is None else _one_line(translated.text)


def _json(line: Line, translated: Translated | None) -> str:
    """A blank line has no hypotheses."""
    values: dict[str, object] = {"text": line.text, "translation": "", "hypotheses": [], "source_token_count": 0}
    if translated is not None:
        values |= {
            "translation": translated.text,
            "hypotheses": [_candidate(candidate) for candidate in translated.candidates],
            "source_token_count": translated.source_token_count,
        }
        if translated.source_spans:
            values["source_tokens"] = list(translated.source_spans)
    return json.dumps(values, ensure_ascii=False)


def _candidate(candidate: Candidate) -> dict[str, object]:
    """Score and alignment only where they were asked for."""
    values: dict[str, object] = {
        "text": candidate.text,
        "finish_reason": candidate.finish_reason,
        "token_count": candidate.token_count,
    }
    if candidate.score is not None:
        values["score"] = score_number(candidate.score)
    if candidate.alignment is not None:
        values["alignment"] = [[score_number(weight) for weight in weights] for weights in candidate.alignment]
        values["tokens"] = list(candidate.spans)
    return values


def _one_line(text: str) -> str:
    """One line in, one line out, whatever the model says."""
    return text.replace("\r", " ").replace("\n", " ")
