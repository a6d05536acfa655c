"""Distillation: whole, in parts, and resumed after a kill."""

import gzip
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from triptych_training.checkpoints.translation import Checkpoint, load_checkpoint, save_checkpoint
from triptych_training.data.corpus import read_pairs
from triptych_training.data.languages import ModelLanguages
from triptych_training.decoding.batch_beam import BeamHypothesis, SearchOptions
from triptych_training.decoding.greedy import greedy
from triptych_training.errors import CheckpointError, CorpusError, RecipeError
from triptych_training.tasks import distillation as distillation_module
from triptych_training.tasks.distillation import DistillationRecipe, DistillationResult, Shard, distill

from ..runs import Killed
from ..toy import PAIRS, TOKENIZER, make_model, write_pairs

CPU = torch.device("cpu")
MODEL = make_model(vocabulary_size=290)


@pytest.fixture
def teacher(tmp_path: Path) -> Path:
    save_checkpoint(Checkpoint(MODEL, TOKENIZER, "en", "xx"), tmp_path / "teacher")
    return tmp_path / "teacher"


def recipe(folder: Path, **changes: Any) -> DistillationRecipe:
    """Search greedily in chunks of ten; one pair occurs twice, one source has two targets."""
    pairs = write_pairs(folder / "pairs.tsv", [*PAIRS, PAIRS[3], (PAIRS[3][0], "another one!")])
    default = DistillationRecipe(pairs=(pairs,), search=SearchOptions(1, max_length=30), chunk=10)
    return replace(default, **changes)


def run(teacher: Path, recipe: DistillationRecipe, out: Path, index: int = 0, count: int = 1) -> DistillationResult | None:
    return distill(teacher, recipe, out, Shard(index, count), CPU, lambda line: None)


@pytest.fixture
def ending(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Replace the search by one that reverses each sentence's words; returns the sources of each call."""
    calls: list[list[str]] = []

    def search(model: object, sources: Sequence[list[int]], options: SearchOptions) -> list[list[BeamHypothesis]]:
        texts = TOKENIZER.decode_batch([list(source) for source in sources])
        calls.append(texts)
        return [[BeamHypothesis(TOKENIZER.encode(turn(text)).ids[:-1], 0.0, True)] for text in texts]

    monkeypatch.setattr(distillation_module, "search", search)
    return calls


def turn(text: str) -> str:
    return " ".join(reversed(text.rstrip(".").split()))


def test_each_pair_is_followed_by_its_translation_without_duplicates(
    tmp_path: Path, teacher: Path, ending: list[list[str]]
) -> None:
    report = run(teacher, recipe(tmp_path), tmp_path / "out.tsv")
    written = read_pairs([str(tmp_path / "out.tsv")])
    expected = [pair for source, target in PAIRS for pair in ((source, target), (source, turn(source)))]
    assert written == [*expected, (PAIRS[3][0], "another one!")]
    assert report == DistillationResult(pairs=2 * len(PAIRS) + 1, translations=len(PAIRS), known=3)
    assert sum(map(len, ending)) == len(PAIRS)  # each source once
    assert not (tmp_path / "out.tsv.work").exists()
    assert not (tmp_path / "out.tsv.work.lock").exists()


def test_translations_only_sentences_without_targets_and_tabs(tmp_path: Path, teacher: Path, ending: list[list[str]]) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("eins zwei\nsieben\tseven\n\neins zwei\n")
    asked = recipe(tmp_path, original=False, texts=(str(texts),), pairs=(write_pairs(tmp_path / "two.tsv", PAIRS[:2]),))
    run(teacher, asked, tmp_path / "out.tsv.gz")
    with gzip.open(tmp_path / "out.tsv.gz", "rt") as file:
        lines = file.read().splitlines()
    assert lines == [f"{text}\t{turn(text)}" for text in (PAIRS[0][0], PAIRS[1][0], "eins zwei", "sieben")]
    source, target = tmp_path / "source.txt", tmp_path / "target.txt"
    source.write_text("eins\tzwei\n")
    target.write_text("one two\n")
    run(teacher, recipe(tmp_path, pairs=(f"{source}::{target}",)), tmp_path / "out.tsv.xz")
    assert read_pairs([str(tmp_path / "out.tsv.xz")])[0] == ("eins zwei", "one two")


def test_translations_are_the_model_s_and_their_length_is_limited(tmp_path: Path, teacher: Path) -> None:
    assert run(teacher, recipe(tmp_path, growth=0.5), tmp_path / "out.tsv", 4, 5) is None
    lines = (tmp_path / "out.tsv.work/chunk-00004.jsonl").read_text().splitlines()
    sizes = {source: len(TOKENIZER.encode(source).ids) for source, _ in PAIRS}
    shortest = sorted(sizes, key=lambda source: sizes[source])[:10]
    longest = max(sizes[source] for source in shortest)
    ids = greedy(MODEL, [TOKENIZER.encode(source).ids for source in shortest], round(0.5 * longest) + 16)
    assert [json.loads(line) for line in lines] == [[[" ".join(text.split()), False]] for text in TOKENIZER.decode_batch(ids)]


def test_shards_write_the_same_file_as_one_process(tmp_path: Path, teacher: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = write_pairs(tmp_path / "some.tsv", PAIRS[:21])
    asked = recipe(tmp_path, pairs=(pairs,), search=SearchOptions(1, max_length=8), chunk=5)
    run(teacher, asked, tmp_path / "whole.tsv")
    monkeypatch.setattr(distillation_module, "ENCODED_AT_ONCE", 7)
    assert [run(teacher, asked, tmp_path / "shared.tsv", index, 3) is None for index in (2, 0, 1)] == [True, True, False]
    assert (tmp_path / "shared.tsv").read_bytes() == (tmp_path / "whole.tsv").read_bytes()


def test_chunks_done_before_a_kill_are_not_repeated(
    tmp_path: Path, teacher: Path, ending: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    search, texts = distillation_module.search, tmp_path / "texts.txt"
    texts.write_text("".join(f"{' '.join(['one'] * size)}\n" for size in (3, 9, 1, 6)))
    asked = DistillationRecipe(texts=(str(texts),), chunk=2)

    def deadly(*arguments: Any) -> Any:
        if ending:
            raise Killed
        return search(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(distillation_module, "search", deadly)
        with pytest.raises(Killed):
            run(teacher, asked, tmp_path / "out.tsv")
    assert not (tmp_path / "out.tsv").exists()
    run(teacher, asked, tmp_path / "out.tsv")
    assert [[len(text.split()) for text in call] for call in ending] == [[6, 9], [1, 3]]  # the longest sentences come first


def test_no_break_spaces_of_targets_and_translations_are_kept(
    tmp_path: Path, teacher: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = TOKENIZER.encode("deux\u202f! \u3000 oui\n  non").ids[:-1]
    monkeypatch.setattr(
        distillation_module, "search", lambda model, sources, _: [[BeamHypothesis(ids, 0.0, True)] for _ in sources]
    )
    (tmp_path / "a.en").write_text("two!\n")
    (tmp_path / "a.fr").write_text("deux\u00a0!\tvraiment  deux\n")
    asked = recipe(tmp_path, pairs=(f"{tmp_path}/a.en::{tmp_path}/a.fr",))
    run(teacher, asked, tmp_path / "out.tsv")
    assert (tmp_path / "out.tsv").read_text() == "two!\tdeux\u00a0! vraiment deux\ntwo!\tdeux\u202f! \u3000 oui non\n"


def test_a_damaged_chunk_is_named_and_can_be_made_again(tmp_path: Path, teacher: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, out = recipe(tmp_path, pairs=(write_pairs(tmp_path / "some.tsv", PAIRS[:6]),), chunk=3), tmp_path / "out.tsv"
    run(teacher, asked, tmp_path / "whole.tsv")
    assert run(teacher, asked, out, 0, 2) is None
    chunk = tmp_path / "out.tsv.work/chunk-00000.jsonl"
    text = chunk.read_text()
    for damaged in ("", text[:-1], text[1:]):  # cut short by the end of the machine, or edited
        chunk.write_text(damaged)
        with pytest.raises(CheckpointError, match=r"chunk-00000\.jsonl: damaged .*; remove it, and the same command"):
            run(teacher, asked, out)
    chunk.unlink()
    run(teacher, asked, out)
    assert out.read_bytes() == (tmp_path / "whole.tsv").read_bytes()


def test_the_hypothesis_closest_to_the_target_is_picked(tmp_path: Path, teacher: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["something else", "nearly this", "this one here", ""]

    def search(model: object, sources: Sequence[object], options: SearchOptions) -> list[list[BeamHypothesis]]:
        ids = [TOKENIZER.encode(text).ids[:-1] for text in texts]
        return [[BeamHypothesis(row, -float(rank), rank != 2) for rank, row in enumerate(ids)] for _ in sources]

    monkeypatch.setattr(distillation_module, "search", search)
    pairs = write_pairs(tmp_path / "own.tsv", [("one", "this one here"), ("two", "something")])
    asked = recipe(tmp_path, pairs=(pairs,), pick="closest", original=False, search=SearchOptions(4, 4))
    run(teacher, asked, tmp_path / "out.tsv")
    assert read_pairs([str(tmp_path / "out.tsv")]) == [("one", "nearly this"), ("two", "something else")]


def test_a_chunk_that_cannot_be_written_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "chunk.jsonl").mkdir()
    with pytest.raises(CheckpointError, match=r"chunk\.jsonl: cannot be written \(Is a directory\)"):
        distillation_module._replace(tmp_path / "chunk.jsonl", "text")
    assert [path.name for path in tmp_path.iterdir()] == ["chunk.jsonl"]


def test_a_teacher_of_several_targets_translates_to_the_given_one(tmp_path: Path, ending: list[list[str]]) -> None:
    languages = ModelLanguages(("en", "xx"), {"xx": 7, "en": 9})
    save_checkpoint(Checkpoint(MODEL, TOKENIZER, "en", "xx", languages=languages), tmp_path / "teacher")
    assert load_checkpoint(tmp_path / "teacher").languages == languages
    run(tmp_path / "teacher", recipe(tmp_path, target_language="en"), tmp_path / "out.tsv")
    first = TOKENIZER.decode([9])
    assert all(text.startswith(first) for call in ending for text in call)


def test_sources_that_are_too_long_are_left_out_and_counted(tmp_path: Path, teacher: Path, ending: list[list[str]]) -> None:
    long = " ".join(["three"] * 40)
    pairs = write_pairs(tmp_path / "own.tsv", [*PAIRS[:2], (long, "long")])
    report = run(teacher, recipe(tmp_path, pairs=(pairs,)), tmp_path / "out.tsv")
    assert report == DistillationResult(pairs=5, translations=2, too_long=1)
    pairs = write_pairs(tmp_path / "own.tsv", [(long, "long")])
    with pytest.raises(CorpusError, match="no translation can be used: 1 sources are longer than the teacher's positions"):
        run(teacher, recipe(tmp_path, pairs=(pairs,), original=False), tmp_path / "none.tsv")
    assert not (tmp_path / "none.tsv").exists()


def test_folders_files_and_shards_are_checked(tmp_path: Path, teacher: Path, ending: list[list[str]]) -> None:
    assert run(teacher, recipe(tmp_path), tmp_path / "out.tsv", 0, 2) is None
    with pytest.raises(RecipeError, match=r"out: .*out\.tsv\.work was made with other options"):
        run(teacher, recipe(tmp_path, search=SearchOptions(2)), tmp_path / "out.tsv", 1, 2)
    other = recipe(tmp_path, search=SearchOptions(1, max_length=30, batch_tokens=50), precision="fp32")
    assert run(teacher, other, tmp_path / "out.tsv", 1, 2) is not None
    with pytest.raises(RecipeError, match=r"out: .*out\.tsv exists already"):
        run(teacher, recipe(tmp_path), tmp_path / "out.tsv")
    (tmp_path / "texts.txt").write_text("\n\n")
    with pytest.raises(CorpusError, match=r"texts\.txt: contains no sentences"):
        run(teacher, DistillationRecipe(texts=(str(tmp_path / "texts.txt"),)), tmp_path / "none.tsv")


@pytest.mark.parametrize("precision", ["bf16", pytest.param("fp16", marks=pytest.mark.full)])
def test_a_teacher_can_run_in_half_precision(tmp_path: Path, teacher: Path, precision: str) -> None:
    asked = recipe(tmp_path, precision=precision, search=SearchOptions(1, max_length=6))
    report = run(teacher, asked, tmp_path / "out.tsv")
    assert report is not None
    assert report.pairs >= len(PAIRS)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pairs": ()}, "pairs and texts: at least one file is needed"),
        ({"pick": "worst"}, "pick: 'worst' is unknown; choose one of best, closest"),
        ({"pick": "closest"}, "hypotheses: 1 is below 2, which picking the closest needs"),
        ({"precision": "int8"}, "precision: 'int8' is unknown"),
        ({"chunk": 0}, "chunk: 0 is below 1"),
        ({"growth": 0.0}, "growth: 0.0 is not above 0"),
    ],
)
def test_invalid_options_are_rejected(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        recipe(tmp_path, **changes)
