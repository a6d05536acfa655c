"""`triptych translate`: translate text, a file or a pipe."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO

import click

from triptych_cli.common import options
from triptych_cli.common.decoding import check_json, decoding_options, take_decoding
from triptych_cli.common.errors import one_line
from triptych_cli.common.lines import InputLine, batches, json_row, open_writer, read_lines, score_number
from triptych_cli.translation.backend import Backend, Candidate, TextTranslation, open_backend
from triptych_embedded.request import BackendError, InputError, TranslationRequest


@click.command(name="translate")
@click.argument("texts", nargs=-1, metavar="[TEXT]...")
@options.input_file
@click.option("-o", "--output", "target", type=options.NEW_FILE, help="Write lines to this file.")
@options.model_choice
@options.languages
@decoding_options
@click.option("--stream", is_flag=True, help="Show text while it is decoded.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object per line, with all translations and their details."
)
def command(
    texts: tuple[str, ...], source: Path | None, target: Path | None, stream: bool, as_json: bool, **values: Any
) -> None:
    """Translate each TEXT, or each line of a file or a pipe: one line in, one line out.

    Without --server (or TRIPTYCH_SERVER) the engine runs in this process, on the embedded model.
    """
    if source and target and target.exists() and source.exists() and target.samefile(source):
        raise click.UsageError("--output is the --input file, which would be emptied before it is read")
    decoding = take_decoding(values)
    check_json(decoding, as_json)
    if stream and as_json:
        raise click.UsageError("--stream shows text, not --json")
    lines = read_lines(texts, source)
    request = TranslationRequest(**values, decoding=decoding)
    with one_line(BackendError), open_backend(request) as backend, open_writer(target) as output:
        shown = _json if as_json else _text
        for line, translation in _stream(backend, lines, output) if stream else _translate(backend, lines, output, shown):
            if translation.truncated:
                click.echo(f"{line.origin}: the translation reached its length limit and is incomplete", err=True)


def _translate(
    backend: Backend, lines: Iterable[InputLine], output: TextIO, shown: Callable[[InputLine, TextTranslation | None], str]
) -> Iterator[tuple[InputLine, TextTranslation]]:
    """Translate batch after batch; blank lines stay blank."""
    for batch in batches(lines, backend.batch):
        full = [line for line in batch if line.text.strip()]
        try:
            results = iter(backend.translate([line.text for line in full]) if full else [])
        except InputError as error:
            raise click.ClickException(f"{full[error.index].origin}: {error}") from error
        for line in batch:
            translation = next(results) if line.text.strip() else None
            output.write(shown(line, translation) + "\n")
            if translation is not None:
                yield line, translation
        output.flush()


def _stream(backend: Backend, lines: Iterable[InputLine], output: TextIO) -> Iterator[tuple[InputLine, TextTranslation]]:
    for line in lines:
        try:
            for event in backend.stream(line.text) if line.text.strip() else ():
                if isinstance(event, TextTranslation):
                    yield line, event
                else:
                    output.write(_one_line(event))
                    output.flush()
        except InputError as error:
            raise click.ClickException(f"{line.origin}: {error}") from error
        output.write("\n")


def _text(_: InputLine, translation: TextTranslation | None) -> str:
    return "" if translation is None else _one_line(translation.text)


def _json(line: InputLine, translation: TextTranslation | None) -> str:
    """A blank line has no hypotheses."""
    if translation is None:
        return json_row(text=line.text, translation="", hypotheses=[], source_token_count=0)
    return json_row(
        text=line.text,
        translation=translation.text,
        hypotheses=list(map(_candidate, translation.candidates)),
        source_token_count=translation.source_token_count,
        **({"source_tokens": list(translation.source_spans)} if translation.source_spans else {}),
    )


def _candidate(candidate: Candidate) -> dict[str, object]:
    """Return the members for JSON: score and alignment only if they were requested."""
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
    """Replace line breaks, whatever the model produces: one line in, one line out."""
    return text.replace("\r", " ").replace("\n", " ")
