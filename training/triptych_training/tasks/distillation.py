"""Sequence-level knowledge distillation (Kim and Rush 2016): a teacher's translations, for a smaller model to learn from.

The work is cut into chunks of sentences of like length. A chunk that was translated is a file in the folder `<out>.work`, so a
run that ends early loses one chunk at most, and several processes, here or on other machines with the same disk, can share the
work without talking to each other. Whoever finds all chunks there writes the result and removes the folder.
"""

import fcntl
import gzip
import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from itertools import chain
from pathlib import Path

import torch
from sacrebleu.metrics.chrf import CHRF

from triptych_training.checkpoints.folder import WEIGHTS
from triptych_training.checkpoints.translation import Checkpoint, load_checkpoint
from triptych_training.data.corpus import Pair, read_lines, read_pairs
from triptych_training.decoding.batch_beam import SearchOptions, search
from triptych_training.errors import CorpusError, RecipeError
from triptych_training.loop.recipe import at_least, one_of

PICKS = ("best", "closest")
PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
SAY_SECONDS = 30.0  # between two lines about how far it has come
Say = Callable[[str], None]
Found = list[tuple[str, bool]]  # hypotheses, best first, and whether the model ended them itself


@dataclass(frozen=True, kw_only=True)
class DistillationRecipe:
    """What to translate, and how.

    Raises:
        RecipeError: a value is out of range; the message names option, value and limit.
    """

    pairs: tuple[str, ...] = ()  # files of sentence pairs, whose sources are translated
    texts: tuple[str, ...] = ()  # files of sentences alone; of lines with tabs the first column
    original: bool = True  # the pairs themselves are part of the result, each in front of its translation
    pick: str = "best"  # or "closest": of the hypotheses the one most like the pair's own target
    search: SearchOptions = field(default_factory=SearchOptions)  # max_length: at most, whatever `growth` says
    growth: float = 2.0  # a translation has at most so many tokens for each of its source's, and 16
    target_language: str = ""  # of a teacher that has several
    precision: str = "auto"  # of weights and arithmetic: bf16 on a GPU, fp32 on a CPU
    chunk: int = 4_096  # sentences that are saved at a time

    def __post_init__(self) -> None:
        one_of("pick", self.pick, PICKS)
        one_of("precision", self.precision, ("auto", *PRECISIONS))
        at_least("chunk", self.chunk, 1)
        if not self.growth > 0:
            raise RecipeError(f"growth: {self.growth} is not above 0")
        if not (self.pairs or self.texts):
            raise RecipeError("pairs and texts: at least one file is needed")
        if self.pick == "closest" and self.search.hypotheses < 2:
            raise RecipeError(f"hypotheses: of {self.search.hypotheses} there is nothing to pick the closest from")


@dataclass(frozen=True)
class Shard:
    """The part of the work that this process does: every chunk whose number leaves `index` when divided by `count`.

    Raises:
        RecipeError: there is no such part.
    """

    index: int = 0
    count: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.count:
            raise RecipeError(f"shard: {self.index} is outside 0 to {self.count - 1}")


@dataclass(frozen=True)
class Distilled:
    """What was written."""

    pairs: int = 0  # in all
    translations: int = 0  # among them
    too_long: int = 0  # sources that the teacher cannot take
    unusable: int = 0  # translations that are empty, or that did not come to an end
    known: int = 0  # pairs and translations that were there already


def distill(
    teacher: Path, recipe: DistillationRecipe, out: Path, shard: Shard, device: torch.device, say: Say
) -> Distilled | None:
    """Translate this process' part, and write `out` (`source<TAB>target`; packed if its name ends in .gz) if that was the last.

    Args:
        teacher: checkpoint folder of a translation model.
        recipe: what to translate.
        out: file to write.
        shard: this process' part.
        device: where to.
        say: told how far it has come.

    Returns:
        What was written; None while other processes' chunks are missing.

    Raises:
        TrainingError: data, options or checkpoint cannot be used, or the work was begun with other ones.
    """
    if out.exists():
        raise RecipeError(f"out: {out} exists already")
    checkpoint = load_checkpoint(teacher)
    originals, texts = read_pairs(recipe.pairs), list(_read_texts(recipe.texts))
    sources = list(dict.fromkeys(chain((source for source, _ in originals), texts)))
    work = _Work(out, recipe.chunk, _settings(teacher, recipe, sources))
    translator = _Translator(checkpoint, recipe, device)
    fitting = translator.fitting(sources)
    chunks = work.open(fitting)
    _translate(translator, work, chunks, shard, say)
    if missing := work.missing(chunks):
        say(f"{len(chunks) - missing} of {len(chunks)} chunks are there, the others are other processes' work")
        return None
    with work.alone():
        if out.exists():  # another process was quicker
            return None
        report = _write(recipe, work.read(chunks), originals, texts, out, len(sources) - len(fitting))
        work.remove()
        return report


class _Translator:
    """The teacher at work."""

    def __init__(self, checkpoint: Checkpoint, recipe: DistillationRecipe, device: torch.device) -> None:
        name = recipe.precision if recipe.precision != "auto" else ("bf16" if device.type == "cuda" else "fp32")
        self._recipe, self._tokenizer = recipe, checkpoint.tokenizer
        self._model = checkpoint.model.to(device=device, dtype=PRECISIONS[name])
        self._prefix = checkpoint.prefix(recipe.target_language)

    def fitting(self, sources: Sequence[str]) -> list[str]:
        """Those that the model can take, shortest first."""
        limit = self._model.config.max_positions
        sizes = [len(encoding.ids) + len(self._prefix) for encoding in self._tokenizer.encode_batch(list(sources))]
        order = sorted((size, index) for index, size in enumerate(sizes) if size <= limit)
        return [sources[index] for _, index in order]

    def translate(self, sources: Sequence[str]) -> list[Found]:
        ids = [[*self._prefix, *encoding.ids] for encoding in self._tokenizer.encode_batch(list(sources))]
        recipe = self._recipe
        longest = round(recipe.growth * max(map(len, ids))) + 16
        limit = min(longest, recipe.search.max_length, self._model.config.max_positions - 1)
        found = search(self._model, ids, SearchOptions(**{**asdict(recipe.search), "max_length": limit}))
        texts = iter(self._tokenizer.decode_batch([best.tokens for hypotheses in found for best in hypotheses]))
        return [[(" ".join(next(texts).split()), best.ended) for best in hypotheses] for hypotheses in found]


class _Work:
    """The folder of what is done."""

    def __init__(self, out: Path, chunk: int, settings: dict[str, object]) -> None:
        self._folder = out.with_name(f"{out.name}.work")
        self._chunk, self._settings = chunk, settings

    def open(self, sources: Sequence[str]) -> list[list[str]]:
        """Make or find the folder; the chunks, the longest sentences first: what does not fit a GPU shows at once.

        Raises:
            RecipeError: the folder is of another distillation.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        path, text = self._folder / "settings.json", json.dumps(self._settings, indent=2) + "\n"
        if not path.exists():
            _replace(path, text)
        if path.read_text(encoding="utf-8") != text:
            raise RecipeError(f"out: {self._folder} was begun otherwise; remove it, or give the options that settings.json has")
        chunks = [list(sources[start : start + self._chunk]) for start in range(0, len(sources), self._chunk)]
        return chunks[::-1]

    def has(self, number: int) -> bool:
        return self._path(number).exists()

    def missing(self, chunks: Sequence[object]) -> int:
        """How many are not there."""
        return sum(not self.has(number) for number in range(len(chunks)))

    def save(self, number: int, found: Sequence[Found]) -> None:
        _replace(self._path(number), "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in found))

    def read(self, chunks: Sequence[Sequence[str]]) -> dict[str, Found]:
        """What was found for each source."""
        known: dict[str, Found] = {}
        for number, chunk in enumerate(chunks):
            lines = self._path(number).read_text(encoding="utf-8").split("\n")[:-1]
            known |= {source: json.loads(line) for source, line in zip(chunk, lines, strict=True)}
        return known

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Only one process at a time is within."""
        with open(self._folder.with_name(f"{self._folder.name}.lock"), "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def remove(self) -> None:
        shutil.rmtree(self._folder)
        self._folder.with_name(f"{self._folder.name}.lock").unlink(missing_ok=True)

    def _path(self, number: int) -> Path:
        return self._folder / f"chunk-{number:05d}.jsonl"


def _translate(translator: _Translator, work: _Work, chunks: Sequence[Sequence[str]], shard: Shard, say: Say) -> None:
    mine = [number for number in range(shard.index, len(chunks), shard.count) if not work.has(number)]
    total, done, started = sum(len(chunks[number]) for number in mine), 0, time.monotonic()
    said = started
    for number in mine:
        work.save(number, translator.translate(chunks[number]))
        done += len(chunks[number])
        now = time.monotonic()
        if now - said >= SAY_SECONDS or done == total:
            said, speed = now, done / max(1e-9, now - started)
            say(f"{done:,} of {total:,} sentences, {speed:,.0f} a second, {(total - done) / speed / 60:.1f} min left")


def _write(
    recipe: DistillationRecipe,
    found: dict[str, Found],
    originals: Sequence[Pair],
    texts: Sequence[str],
    out: Path,
    too_long: int,
) -> Distilled:
    written: set[Pair] = set()
    counts = {"pairs": 0, "translations": 0, "unusable": 0, "known": 0}
    partial = out.with_name(f"{out.name}.partial")
    with _open_packed(partial, out.suffix == ".gz") as write:

        def put(pair: Pair, kind: str) -> None:
            if pair in written:
                counts["known"] += 1
                return
            written.add(pair)
            counts["pairs"] += 1
            if kind == "translations":
                counts[kind] += 1
            write("\t".join(pair) + "\n")

        for source, target in chain(originals, ((text, None) for text in texts)):
            if target is not None and recipe.original:
                put((source, _plain(target)), "pairs")
            if source not in found:
                continue
            chosen = _choose(found[source], target if recipe.pick == "closest" else None)
            if chosen:
                put((source, chosen), "translations")
            else:
                counts["unusable"] += 1
    partial.replace(out)
    return Distilled(too_long=too_long, **counts)


def _choose(found: Found, target: str | None) -> str:
    """The translation to learn; empty where there is none."""
    usable = [text for text, ended in found if ended and text]
    if target is None or len(usable) < 2:
        return usable[0] if usable else ""
    scorer = CHRF(word_order=2)  # BLEU says nothing of sentences this short
    return max(usable, key=lambda text: scorer.sentence_score(text, [target]).score)


def _read_texts(paths: Sequence[str]) -> Iterator[str]:
    for path in paths:
        empty = True
        for _, line in read_lines(Path(path)):
            if text := line.split("\t")[0].strip():
                empty = False
                yield text
        if empty:
            raise CorpusError(f"{path}: holds no sentences")


def _settings(teacher: Path, recipe: DistillationRecipe, sources: Sequence[str]) -> dict[str, object]:
    """What makes two pieces of work the same one."""
    with open(teacher / WEIGHTS, "rb") as file:
        weights = sha256(file.read()).hexdigest()
    asked = {name: value for name, value in asdict(recipe).items() if name not in ("pairs", "texts", "original", "precision")}
    asked["search"].pop("batch_tokens")
    return {"teacher": weights, "sources": sha256("\n".join(sources).encode()).hexdigest(), **asked}


def _plain(text: str) -> str:
    return " ".join(text.split())


@contextmanager
def _open_packed(path: Path, packed: bool) -> Iterator[Callable[[str], object]]:
    """A way to write text; the same text makes the same file."""
    with open(path, "wb") as file:
        if packed:
            with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as pack:
                yield lambda text: pack.write(text.encode())
        else:
            yield lambda text: file.write(text.encode())


def _replace(path: Path, text: str) -> None:
    """Write in one move; several processes may do so at once."""
    partial = path.with_name(f"{path.name}.{time.monotonic_ns()}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)
