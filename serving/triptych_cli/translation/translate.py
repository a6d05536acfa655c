"""`triptych translate`: translate text, a file or a pipe."""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from triptych_cli.common import options
from triptych_cli.common.decoding import check_json, decoding_options, take_decoding
from triptych_cli.common.errors import needs
from triptych_cli.common.lines import (
    InputLine,
    batches,
    count_finished,
    fail_fast,
    json_row,
    open_writer,
    read_lines,
    reported_failures,
    score_number,
    unfinished,
)
from triptych_cli.common.progress import ProgressLine
from triptych_cli.translation.backend import Backend, Candidate, TextTranslation, open_backend
from triptych_embedded.request import InputError, TranslationRequest

if TYPE_CHECKING:
    from triptych_documents.rules import Term


@click.command(name="translate")
@click.argument("texts", nargs=-1, metavar="[TEXT]...")
@options.input_file
@options.line_file("-o", "--output", "target", help="Write lines to this file; - is standard output.")
@click.option(
    "--resume",
    is_flag=True,
    help="Continue where an interrupted command with the same -i and -o stopped; the exit code is that of the remaining lines.",
)
@options.model_choice
@options.languages
@decoding_options
@options.optional("--glossary", type=options.EXISTING_FILE, metavar="FILE", help="Terms: source, tab, target on each line.")
@click.option("--stream", is_flag=True, help="Show text while it is decoded.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object per line, with all translations and their details."
)
@fail_fast
def command(
    texts: tuple[str, ...],
    source: Path | None,
    target: Path | None,
    resume: bool,
    glossary: Path | None,
    stream: bool,
    as_json: bool,
    fail_fast: bool,
    **values: Any,
) -> None:
    """Translate each TEXT, or each line of a file or a pipe: one line in, one line out.

    With --glossary, terms get the given translations, and placeholders such as {name} stay.

    Sentences that are too long for the model are translated in parts, except with --json, --target-prefix, --max-length or
    --split-sentences off. A line that cannot be translated is reported and has an empty line in the output; the exit code is
    then 1.

    Without --server (or TRIPTYCH_SERVER) the engine runs in this process, on the embedded model.
    """
    if source and target and target.exists() and source.exists() and target.samefile(source):
        raise click.UsageError("--output is the --input file")
    decoding = take_decoding(values)
    check_json(decoding, as_json)
    if stream and as_json:
        raise click.UsageError("--stream shows text, not --json")
    if glossary and (stream or as_json or decoding.target_prefix):
        raise click.UsageError("--glossary is not for --stream, --json or --target-prefix")
    terms = _terms(glossary) if glossary else ()
    lines = read_lines(texts, source)
    size = _skip_done(lines, source, target, as_json) if resume else 0
    request = TranslationRequest(**values, decoding=decoding)
    with reported_failures(fail_fast) as report, open_backend(request) as backend, open_writer(target, resume) as output:
        job = TranslateJob(request, backend, output, report, as_json, terms)
        if stream:
            job.stream(lines)
        else:
            job.run(lines, size, _progress(source, target))


def _terms(file: Path) -> "Sequence[Term]":
    """Read a glossary. Raises click.ClickException: it cannot be used."""
    needs("triptych_documents.rules", "documents")
    from triptych_documents.errors import DocumentError
    from triptych_documents.rules import read_glossary

    try:
        return read_glossary(file.read_bytes(), str(file))
    except (DocumentError, OSError) as error:
        raise click.ClickException(str(error)) from error


def _skip_done(lines: Iterator[InputLine], source: Path | None, target: Path | None, as_json: bool) -> int:
    """Skip the lines that an interrupted command has translated; return their size."""
    if source is None or target is None:
        raise click.UsageError("--resume needs --input and --output")
    part = unfinished(target)
    if part is None or not part.exists():
        return 0
    again = "run the command without --resume"
    if source.stat().st_mtime > part.stat().st_mtime:
        raise click.ClickException(f"{source} has changed since {part} was written; {again}")
    done = count_finished(part)
    with open(part, "rb") as file:
        is_json = file.readline().startswith(b'{"text": ')
    if done and is_json != as_json:
        raise click.ClickException(f"{part} was written with{'' if is_json else 'out'} --json; {again}")
    sizes = [line.size for line in islice(lines, done)]
    if len(sizes) < done:
        raise click.ClickException(f"{part} has {done:,} lines, {source} only {len(sizes):,}; {again}")
    return sum(sizes)


def _progress(source: Path | None, target: Path | None) -> ProgressLine:
    shows = source is not None and sys.stderr.isatty() and (target is not None or not (sys.stdout and sys.stdout.isatty()))
    return ProgressLine(sys.stderr if shows else None, 0, source.stat().st_size if source else 0, unit="lines")


@dataclass(frozen=True)
class TranslateJob:
    """Translates lines and writes the results."""

    request: TranslationRequest  # how to decode
    backend: Backend  # translates
    output: TextIO  # one line for each line
    report: Callable[[str, object], None]  # called with the origin and the problem of a bad line
    as_json: bool  # write JSON; texts are then never translated in parts
    glossary: "Sequence[Term]" = ()  # terms with their translations

    def run(self, lines: Iterator[InputLine], size: int, progress: ProgressLine) -> None:
        """Translate batch after batch; blank lines stay blank. `size` is that of the lines before."""
        count = 0
        try:
            progress.show(0, size)
            for batch in batches(lines, self.backend.batch):
                outcomes = self._translate(batch)
                progress.clear()
                for line, outcome in zip(batch, outcomes, strict=True):
                    self._write(line, outcome)
                self.output.flush()
                count, size = count + len(batch), size + sum(line.size for line in batch)
                progress.show(count, size)
        finally:
            progress.clear()

    def stream(self, lines: Iterator[InputLine]) -> None:
        """Write pieces of each translation as they come."""
        for line in lines:
            try:
                if line.text.strip():
                    self._stream(line)
                else:
                    self._write(line, *self._translate([line]))
            except InputError as error:
                self._write(line, *self._in_parts([line], [error]))
            self.output.flush()

    def _stream(self, line: InputLine) -> None:
        for event in self.backend.stream(line.text):
            self.output.write(_one_line(event) if isinstance(event, str) else "\n")
            self.output.flush()
            if not isinstance(event, str):
                self._warn(line, event)

    def _translate(self, batch: Sequence[InputLine]) -> list[TextTranslation | InputError | None]:
        """Return None for blank lines."""
        full = [line for line in batch if line.text.strip()]
        outcomes = iter(self._translate_full(full) if full else [])
        bad: list[InputError | None] = [InputError(0, line.problem) if line.problem else None for line in batch]
        return [next(outcomes) if line.text.strip() else error for line, error in zip(batch, bad, strict=True)]

    def _translate_full(self, lines: Sequence[InputLine]) -> list[TextTranslation | InputError]:
        """Translate lines that are not blank."""
        texts = [line.text for line in lines]
        if not self.glossary:
            return self._in_parts(lines, self.backend.translate(texts))
        from triptych_cli.translation.in_parts import translate_in_parts

        def warn(index: int, problem: str) -> None:
            click.echo(f"{lines[index].origin}: {problem}", err=True)

        return translate_in_parts(self.backend, texts, self.request, self.glossary, warn)

    def _in_parts(
        self, lines: Sequence[InputLine], outcomes: Sequence[TextTranslation | InputError]
    ) -> list[TextTranslation | InputError]:
        """Translate those that failed, or were cut off by the model's own limit, again in parts."""
        decoding = self.request.decoding
        again = [index for index, each in enumerate(outcomes) if isinstance(each, InputError) or each.truncated]
        if not again or self.as_json or decoding.target_prefix or decoding.max_length or decoding.split_sentences == "off":
            return list(outcomes)
        try:
            from triptych_cli.translation.in_parts import translate_in_parts
        except ModuleNotFoundError:  # the extra `documents` is not installed
            return list(outcomes)
        found = dict(
            zip(again, translate_in_parts(self.backend, [lines[index].text for index in again], self.request), strict=True)
        )
        return [found.get(index, outcome) for index, outcome in enumerate(outcomes)]

    def _write(self, line: InputLine, outcome: TextTranslation | InputError | None) -> None:
        if isinstance(outcome, InputError):
            self.report(line.origin, outcome)
        elif outcome is not None:
            self._warn(line, outcome)
        shown = _json if self.as_json else _text
        self.output.write(shown(line, outcome) + "\n")

    def _warn(self, line: InputLine, translation: TextTranslation) -> None:
        if translation.truncated:
            click.echo(f"{line.origin}: the translation reached its length limit and is incomplete", err=True)


def _text(_: InputLine, translation: TextTranslation | InputError | None) -> str:
    return _one_line(translation.text) if isinstance(translation, TextTranslation) else ""


def _json(line: InputLine, translation: TextTranslation | InputError | None) -> str:
    """A blank line has no hypotheses, a bad one its error."""
    if isinstance(translation, InputError):
        return json_row(text=line.text, error=str(translation))
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
