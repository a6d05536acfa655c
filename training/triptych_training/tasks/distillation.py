"""Sequence-level knowledge distillation (Kim and Rush 2016): a teacher's translations as training data of a smaller model.

Sources are divided into chunks of similar length. Each translated chunk is a file in the folder `<out>.work`: an interrupted
run loses at most one chunk, and several processes, also on other machines with the same disk, can share the work without
communication. The process that finds all chunks done writes the result and removes the folder.
"""

import fcntl
import gzip
import json
import lzma
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import torch
from sacrebleu.metrics.chrf import CHRF

from triptych_training.checkpoints.folder import WEIGHTS
from triptych_training.checkpoints.packing import DTYPES
from triptych_training.checkpoints.translation import Checkpoint, load_checkpoint
from triptych_training.checks import at_least, one_of
from triptych_training.data.corpus import Pair, need_items, read_lines, read_pairs
from triptych_training.data.files import replacing
from triptych_training.data.languages import one_language, undirected_files
from triptych_training.decoding.batch_beam import SearchOptions, search
from triptych_training.errors import CheckpointError, CorpusError, RecipeError
from triptych_training.loop.recipe import PRECISIONS
from triptych_training.tasks.translation import ENCODED_AT_ONCE

PICKS = ("best", "closest")
REPORT_SECONDS = 30.0  # between two lines of progress
Report = Callable[[str], None]
Candidates = list[tuple[str, bool]]  # translations of a source, best first, and whether they ended before the limit


@dataclass(frozen=True, kw_only=True)
class DistillationRecipe:
    """Data and options of a distillation; raises RecipeError if a value is out of range."""

    pairs: tuple[str, ...] = ()  # files of sentence pairs, whose sources are translated; en:de=FILE names the target language
    texts: tuple[str, ...] = ()  # files of sentences; of lines with tabs the first column is used
    original: bool = True  # write each pair before its translation
    pick: str = "best"  # or "closest": the hypothesis most similar to the pair's target
    search: SearchOptions = field(default_factory=SearchOptions)  # max_length is an upper limit beside `growth`
    growth: float = 2.0  # a translation's limit in tokens: growth x source + 16
    target_language: str = ""  # required if the teacher has several
    precision: str = "auto"  # of weights and arithmetic: bf16 on a GPU, fp32 on a CPU
    chunk: int = 4_096  # sentences saved at a time

    def __post_init__(self) -> None:
        try:
            one_of(PICKS, self, "pick")
            one_of(PRECISIONS, self, "precision")
            at_least(1, self, "chunk")
        except ValueError as error:
            raise RecipeError(str(error)) from None
        if not self.growth > 0:
            raise RecipeError(f"growth: {self.growth} is not above 0")
        if not (self.pairs or self.texts):
            raise RecipeError("pairs and texts: at least one file is needed")
        if self.pick == "closest" and self.search.hypotheses < 2:
            raise RecipeError(f"hypotheses: {self.search.hypotheses} is below 2, which picking the closest needs")


@dataclass(frozen=True)
class Shard:
    """Part of the work for one process: the chunks whose number modulo `count` is `index`.

    Raises:
        RecipeError: `index` is not from 0 to `count` - 1.
    """

    index: int = 0
    count: int = 1

    def __post_init__(self) -> None:
        if self.count < 1:
            raise RecipeError(f"shard: {self.index}/{self.count} has no parts; write 0/1 for all of the work")
        if not 0 <= self.index < self.count:
            raise RecipeError(f"shard: {self.index} is outside 0 to {self.count - 1}")


@dataclass(frozen=True)
class DistillationResult:
    """Counts of a finished distillation."""

    pairs: int = 0  # written, translations included
    translations: int = 0  # written
    too_long: int = 0  # sources longer than the teacher's positions
    unusable: int = 0  # translations that are empty or did not end before the limit
    known: int = 0  # duplicate pairs and translations


def distill(
    teacher: Path, recipe: DistillationRecipe, out: Path, shard: Shard, device: torch.device, report: Report
) -> DistillationResult | None:
    """Translate this process' part; write `out` if all parts are done.

    Args:
        teacher: checkpoint folder of a translation model.
        out: file to write, `source<TAB>target` lines; compressed if its name ends in .gz or .xz.
        report: called with lines of progress.

    Returns:
        Counts; None while other processes' chunks are missing.

    Raises:
        TrainingError: data, options or checkpoint cannot be used, or differ from those of the work folder.
    """
    if out.exists():
        raise RecipeError(f"out: {out} exists already")
    recipe = replace(recipe, target_language=one_language(recipe.pairs, "target", recipe.target_language))
    checkpoint = load_checkpoint(teacher)
    checkpoint.check_source(one_language(recipe.pairs, "source", ""))
    originals, texts = read_pairs(undirected_files(recipe.pairs)), list(_read_texts(recipe.texts))
    sources = list(dict.fromkeys(chain((source for source, _ in originals), texts)))
    work = _WorkFolder(out, recipe.chunk, _settings(teacher, recipe, sources))
    translator = _Translator(checkpoint, recipe, device)
    fitting = translator.fitting(sources)
    chunks = work.open(fitting)
    _translate(translator, work, chunks, shard, report)
    if missing := sum(not work.path(number).exists() for number in range(len(chunks))):
        report(f"{len(chunks) - missing} of {len(chunks)} chunks done; the others belong to other processes")
        return None
    with work.locked():
        if out.exists():  # another process has written it
            return None
        pairs = [*originals, *((text, None) for text in texts)]
        result = _write(recipe, work.read(chunks), pairs, out, len(sources) - len(fitting))
        if not result.pairs:
            raise CorpusError(
                f"pairs and texts: no translation can be used: {result.too_long:,} sources are longer than the teacher's "
                f"positions and {result.unusable:,} translations did not end before the limit; "
                "use shorter sources, or raise max_length"
            )
        work.remove()
    return result


class _Translator:
    """Teacher model with its tokenizer and search options."""

    def __init__(self, checkpoint: Checkpoint, recipe: DistillationRecipe, device: torch.device) -> None:
        name = recipe.precision if recipe.precision != "auto" else ("bf16" if device.type == "cuda" else "fp32")
        self._recipe, self._tokenizer = recipe, checkpoint.tokenizer
        self._model = checkpoint.model.to(device=device, dtype=DTYPES[name])
        self._prefix = checkpoint.prefix(recipe.target_language)

    def fitting(self, sources: Sequence[str]) -> list[str]:
        """Return the sources that fit the model's positions, shortest first."""
        limit = self._model.config.max_positions
        parts = (list(sources[start : start + ENCODED_AT_ONCE]) for start in range(0, len(sources), ENCODED_AT_ONCE))
        encodings = (encoding for part in parts for encoding in self._tokenizer.encode_batch_fast(part))
        sizes = [len(encoding.ids) + len(self._prefix) for encoding in encodings]
        order = sorted((size, index) for index, size in enumerate(sizes) if size <= limit)
        return [sources[index] for _, index in order]

    def translate(self, sources: Sequence[str]) -> list[Candidates]:
        ids = [[*self._prefix, *encoding.ids] for encoding in self._tokenizer.encode_batch(list(sources))]
        recipe = self._recipe
        longest = round(recipe.growth * max(map(len, ids))) + 16
        limit = min(longest, recipe.search.max_length, self._model.config.max_positions - 1)
        found = search(self._model, ids, replace(recipe.search, max_length=limit))
        texts = iter(self._tokenizer.decode_batch([best.tokens for hypotheses in found for best in hypotheses]))
        return [[(_line(next(texts)), best.ended) for best in hypotheses] for hypotheses in found]


class _WorkFolder:
    """Folder of the chunks done so far."""

    def __init__(self, out: Path, chunk: int, settings: dict[str, object]) -> None:
        self._folder = out.with_name(f"{out.name}.work")
        self._chunk, self._settings = chunk, settings

    def open(self, sources: Sequence[str]) -> list[list[str]]:
        """Create or check the folder; return the chunks, longest sentences first so that a lack of memory shows at once.

        Raises:
            RecipeError: the folder belongs to another distillation.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        path, text = self._folder / "settings.json", json.dumps(self._settings, indent=2) + "\n"
        if not path.exists():
            _replace(path, text)
        if path.read_text(encoding="utf-8") != text:
            raise RecipeError(f"out: {self._folder} was made with other options; remove it, or use those in its settings.json")
        chunks = [list(sources[start : start + self._chunk]) for start in range(0, len(sources), self._chunk)]
        return chunks[::-1]

    def path(self, number: int) -> Path:
        """Return the file of a chunk, which exists once the chunk is translated."""
        return self._folder / f"chunk-{number:05d}.jsonl"

    def save(self, number: int, translations: Sequence[Candidates]) -> None:
        _replace(self.path(number), "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in translations))

    def read(self, chunks: Sequence[Sequence[str]]) -> dict[str, Candidates]:
        """Read the translations of every source; raises CheckpointError if a chunk is damaged."""
        known: dict[str, Candidates] = {}
        for number, chunk in enumerate(chunks):
            try:
                lines = self.path(number).read_text(encoding="utf-8").split("\n")[:-1]
                known |= {source: json.loads(line) for source, line in zip(chunk, lines, strict=True)}
            except (OSError, ValueError) as error:
                raise CheckpointError(
                    f"{self.path(number)}: damaged ({error}); remove it, and the same command translates its sentences again"
                ) from error
        return known

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock between processes that want to write the result."""
        with open(self._folder.with_name(f"{self._folder.name}.lock"), "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def remove(self) -> None:
        shutil.rmtree(self._folder)
        self._folder.with_name(f"{self._folder.name}.lock").unlink(missing_ok=True)


def _translate(
    translator: _Translator, work: _WorkFolder, chunks: Sequence[Sequence[str]], shard: Shard, report: Report
) -> None:
    mine = [number for number in range(shard.index, len(chunks), shard.count) if not work.path(number).exists()]
    total, done, started = sum(len(chunks[number]) for number in mine), 0, time.monotonic()
    reported = started
    for number in mine:
        work.save(number, translator.translate(chunks[number]))
        done += len(chunks[number])
        now = time.monotonic()
        if now - reported >= REPORT_SECONDS or done == total:
            reported, speed = now, done / max(1e-9, now - started)
            report(f"{done:,} of {total:,} sentences, {speed:,.0f} per second, {(total - done) / speed / 60:.1f} min left")


def _write(
    recipe: DistillationRecipe,
    translations: dict[str, Candidates],
    pairs: Sequence[tuple[str, str | None]],
    out: Path,
    too_long: int,
) -> DistillationResult:
    lines: dict[Pair, bool] = {}  # pairs in the order of the file; True for translations
    unusable = known = 0
    for source, target in pairs:
        found: list[tuple[Pair, bool]] = []
        if target is not None and recipe.original:
            found.append(((source, _line(target)), False))
        if source in translations:
            chosen = _choose(translations[source], target if recipe.pick == "closest" else None)
            unusable += not chosen
            found += [((source, chosen), True)] if chosen else []
        for pair, is_translation in found:
            known += pair in lines
            lines.setdefault(pair, is_translation)
    if not lines:
        return DistillationResult(too_long=too_long, unusable=unusable)
    with replacing(out) as partial, open(partial, "wb") as file, _compressed(file, out.suffix) as text:
        text.writelines("{}\t{}\n".format(source.replace("\t", " "), target).encode() for source, target in lines)
    return DistillationResult(len(lines), sum(lines.values()), too_long, unusable, known)


def _line(text: str) -> str:
    """Put a text on one line without tabs or double spaces; other spaces, such as no-break ones, are kept."""
    return re.sub(r"[ \t\n\r]+", " ", text).strip()


def _compressed(file: BinaryIO, suffix: str) -> BinaryIO | gzip.GzipFile | lzma.LZMAFile:
    """Compress what is written to `file` if its name ends so that a reader would expect it."""
    if suffix == ".xz":
        return lzma.LZMAFile(file, "wb")
    return gzip.GzipFile("", "wb", fileobj=file, mtime=0) if suffix == ".gz" else file


def _choose(candidates: Candidates, target: str | None) -> str:
    """Choose the translation to learn from; empty if none is usable."""
    usable = [text for text, ended in candidates if ended and text]
    if target is None or len(usable) < 2:
        return usable[0] if usable else ""
    scorer = CHRF(word_order=2)  # BLEU is meaningless on single short sentences
    return max(usable, key=lambda text: scorer.sentence_score(text, [target]).score)


def _read_texts(paths: Sequence[str]) -> Iterator[str]:
    for path in paths:
        columns = (line.split("\t")[0].strip() for _, line in read_lines(Path(path)))
        yield from need_items(filter(None, columns), f"{path}: contains no sentences")


def _settings(teacher: Path, recipe: DistillationRecipe, sources: Sequence[str]) -> dict[str, object]:
    """Return what must be the same for runs that share a work folder."""
    weights = sha256((teacher / WEIGHTS).read_bytes()).hexdigest()
    options = {name: value for name, value in asdict(recipe).items() if name not in ("pairs", "texts", "original", "precision")}
    options["search"].pop("batch_tokens")
    return {"teacher": weights, "sources": sha256("\n".join(sources).encode()).hexdigest(), **options}


def _replace(path: Path, text: str) -> None:
    """Write in one move; several processes may do so at the same time. Raises CheckpointError if it cannot be written."""
    partial = path.with_name(f"{path.name}.{time.monotonic_ns()}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise CheckpointError(f"{path}: cannot be written ({error.strerror})") from error
