"""A job of `triptych translate-docs` against the engine's own offline speed on the same segments.

    python tests/benchmarks/documents.py FILE... [--segments 50000] [--rounds 20] [--models REPOSITORY] [--precision int8]
        [--formats text,markdown,html,json,po,csv] [--per-document 250] [--json FILE]

FILE has source<TAB>target lines, .gz and .xz too; different sources are taken in a fixed random order until there are enough.

Job and engine take turns in this process, on one loaded model: in every round each translates the same part of
the segments, in alternating order, so that a noisy machine disturbs both equally. The engine receives the sentences of the job,
all of a part in one call. The job reads documents, checks its journal, translates, writes documents and records the results.
"ratio" is the engine's time for all parts divided by the job's; "median" is the median of the rounds' ratios. The ratio of CPU
times shows the cost of the job besides the engine, independent of other work of the machine.
"""

import csv
import gzip
import html
import io
import json
import lzma
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import click
from report import machine

from triptych.decoding import DecodingOptions, SplitSentences
from triptych_cli.common.progress import ProgressLine
from triptych_cli.documents.discovery import Selection, discover
from triptych_cli.documents.document_files import FilePolicy
from triptych_cli.documents.job import DocumentJob, run_job
from triptych_cli.documents.stored import Database
from triptych_documents.format import ReadOptions
from triptych_documents.rules import TranslationRules
from triptych_documents.translation.units import UnitTranslator
from triptych_embedded.engine import EngineSentenceTranslator, open_sentence_translator
from triptych_embedded.request import TranslationRequest, embedded_repository

Result = TypeVar("Result")

OPENERS = {".gz": gzip.open, ".xz": lzma.open}
WARM_UP = 256
WHOLE = DecodingOptions(split_sentences=SplitSentences.OFF)


def read_segments(files: Sequence[Path], count: int, seed: int) -> list[str]:
    """Read different sources, in random order."""
    found: dict[str, None] = {}
    for file in files:
        with OPENERS.get(file.suffix, open)(file, "rt", encoding="utf-8") as lines:
            found.update((line.partition("\t")[0].strip(), None) for line in lines)
    segments = [text for text in found if any(map(str.isalpha, text))]
    random.Random(seed).shuffle(segments)
    if len(segments) < count:
        raise click.UsageError(f"the files have {len(segments):,} different segments, {count:,} are wanted")
    return segments[:count]


def _csv(segments: Sequence[str]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows([("id", "text"), *enumerate(segments)])
    return text.getvalue()


def _po(segments: Sequence[str]) -> str:
    head = 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n'
    return head + "".join(
        f'\nmsgctxt "{i}"\nmsgid {json.dumps(each, ensure_ascii=False)}\nmsgstr ""\n' for i, each in enumerate(segments)
    )


def _html(segments: Sequence[str]) -> str:
    paragraphs = "\n".join(f"<p>{html.escape(each, quote=False)}</p>" for each in segments)
    return f"<!DOCTYPE html>\n<html><body>\n{paragraphs}\n</body></html>\n"


WRITERS: dict[str, tuple[str, Callable[[Sequence[str]], str]]] = {
    "text": (".txt", lambda segments: "".join(f"{each}\n" for each in segments)),
    "markdown": (".md", lambda segments: "".join(f"{each}\n\n" for each in segments)),
    "html": (".html", _html),
    "json": (".json", lambda segments: json.dumps({str(i): each for i, each in enumerate(segments)}, ensure_ascii=False)),
    "po": (".po", _po),
    "csv": (".csv", _csv),
}


def write_documents(folder: Path, segments: Sequence[str], formats: Sequence[str], per_document: int) -> None:
    """Write documents with these segments, in each format in turn."""
    folder.mkdir(parents=True)
    for number, start in enumerate(range(0, len(segments), per_document)):
        suffix, write = WRITERS[formats[number % len(formats)]]
        content = write(segments[start : start + per_document])
        (folder / f"{number:05}{suffix}").write_text(content, encoding="utf-8")


@dataclass(frozen=True)
class Spent:
    """Seconds."""

    wall: float
    cpu: float  # of all threads


@dataclass(frozen=True)
class Round:
    """Durations of engine and job."""

    segments: int
    engine: Spent
    job: Spent


def timed(action: Callable[[], Result]) -> tuple[Result, Spent]:
    """Return the result and the duration of an action."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = action()
    return result, Spent(time.perf_counter() - wall, time.process_time() - cpu)


class Contest:
    """Document job and engine, alternating on one model."""

    def __init__(self, translating: EngineSentenceTranslator, work: Path, formats: Sequence[str], per_document: int) -> None:
        self._translating, self._work = translating, work
        self._formats, self._per_document = formats, per_document

    def run(self, name: str, segments: Sequence[str], engine_first: bool) -> Round:
        """Run both on the same segments."""
        source = self._work / name
        write_documents(source, segments, self._formats, self._per_document)
        with Database(self._work / f"{name}.journal", alone=True) as journal:
            found = discover([source], self._work / f"{name}.out", Selection())
            options = ReadOptions(columns=("text",)) if "csv" in self._formats else ReadOptions()
            job = DocumentJob(found, FilePolicy(self._work / f"{name}.out", options), TranslationRules(), journal)
            texts = self._texts(job)
            if engine_first:
                engine, own = self._engine(texts), self._job(job)
            else:
                own, engine = self._job(job), self._engine(texts)
        return Round(len(segments), engine, own)

    def _texts(self, job: DocumentJob) -> list[str]:
        """Return the texts that the job will translate."""
        identity = self._translating.identity
        job = job.in_languages(identity.source_language, identity.target_language)
        work = UnitTranslator(job.rules)
        documents = [
            found.format.read(found.source.read_bytes(), job.policy.options)
            for found in job.documents
            if found.format is not None
        ]
        return [ask.text for document in documents for unit in document.units for ask in work.add(None, unit)]

    def _engine(self, texts: Sequence[str]) -> Spent:
        _, spent = timed(lambda: self._translating.translator.translate(texts, WHOLE))
        return spent

    def _job(self, job: DocumentJob) -> Spent:
        outcome, spent = timed(lambda: run_job(job, self._translating, ProgressLine(None, len(job.documents), 0)))
        if outcome.errors or not outcome.is_complete:
            raise RuntimeError(f"the job has {outcome.errors} errors")
        return spent


def throughput(
    segments: Sequence[str],
    rounds: int,
    request: TranslationRequest,
    repository: Path,
    formats: Sequence[str],
    per_document: int,
) -> list[Round]:
    """Measure job and engine, part by part."""
    size = -(-len(segments) // rounds)
    results = []
    with tempfile.TemporaryDirectory() as work, open_sentence_translator(replace(request, models=repository)) as translating:
        contest = Contest(translating, Path(work), formats, per_document)
        contest.run("warm-up", segments[:WARM_UP], engine_first=True)
        translating.translator.translate(segments[:1], replace(WHOLE, return_alignment=True))  # loads what markup needs
        for number in range(rounds):
            part = segments[number * size : (number + 1) * size]
            result = contest.run(str(number), part, engine_first=number % 2 == 0)
            results.append(result)
            speeds = f"engine {len(part) / result.engine.wall:8,.1f}/s  job {len(part) / result.job.wall:8,.1f}/s"
            ratios = f"ratio {result.engine.wall / result.job.wall:.3f}  of CPU time {result.engine.cpu / result.job.cpu:.3f}"
            click.echo(f"round {number:3}  {speeds}  {ratios}")
    return results


def summarize(results: Sequence[Round]) -> dict[str, object]:
    """Print and return the summary."""
    segments = sum(result.segments for result in results)
    engine, job = sum(result.engine.wall for result in results), sum(result.job.wall for result in results)
    cpu = sum(result.engine.cpu for result in results) / sum(result.job.cpu for result in results)
    ratios = [result.engine.wall / result.job.wall for result in results]
    about: dict[str, object] = {
        "machine": machine.describe(),
        "segments": segments,
        "engine segments/s": round(segments / engine, 1),
        "job segments/s": round(segments / job, 1),
        "ratio": round(engine / job, 4),
        "median": round(statistics.median(ratios), 4),
        "least": round(min(ratios), 4),
        "ratio of CPU times": round(cpu, 4),
    }
    click.echo("\n".join(f"{name}: {value}" for name, value in about.items()))
    return about


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
@click.option("--segments", default=50_000, show_default=True)
@click.option("--rounds", default=20, show_default=True)
@click.option("--models", type=click.Path(path_type=Path), default=None, help="[default: the embedded models]")
@click.option("--model", default="")
@click.option("--precision", default=None)
@click.option("--formats", default=",".join(WRITERS), show_default=True)
@click.option("--per-document", default=250, show_default=True, help="Segments.")
@click.option("--seed", default=1, show_default=True)
@click.option("--json", "json_file", type=click.Path(path_type=Path), default=None)
def main(  # noqa: PLR0917 - click passes them by name
    files: tuple[Path, ...],
    segments: int,
    rounds: int,
    models: Path | None,
    model: str,
    precision: str | None,
    formats: str,
    per_document: int,
    seed: int,
    json_file: Path | None,
) -> None:
    texts, names = read_segments(files, segments, seed), formats.split(",")
    request = TranslationRequest(models, model, "", precision)
    about = summarize(throughput(texts, rounds, request, models or embedded_repository(), names, per_document))
    if json_file:
        json_file.write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
