"""Inputs from files and of the package, and the quality of outputs."""

import gzip
import io
import sys
from pathlib import Path

import pytest
from PIL import Image

from triptych_bench.inputs.reading import SIDE, bundled, masked, read_inputs
from triptych_bench.quality import QualityError, quality_of
from triptych_bench.target import Sample, TargetError
from triptych_bench.tasks import TASKS, InputKind, QualityMetric


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_lines_are_texts_or_pairs_with_references(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "\ufefffirst\ttab\r\n\n  second \n")
    found = read_inputs(path, InputKind.TEXT, None)
    assert [(one.data, one.name, one.reference) for one in found] == [
        ("first\ttab", "a.txt:1", None),
        ("  second ", "a.txt:3", None),
    ]
    path = tmp_path / "a.tsv.gz"
    path.write_bytes(gzip.compress(b"one\teins\ntwo\n"))
    assert [(one.data, one.reference) for one in read_inputs(path, InputKind.TEXT, None)] == [("one", "eins"), ("two", None)]
    path = write(tmp_path / "a.tsv", "one\teins\tright\ntwo\tzwei\n")
    found = read_inputs(path, InputKind.PAIR, None)
    assert [(one.data, one.reference) for one in found] == [(("one", "eins"), "right"), (("two", "zwei"), None)]
    mixed = read_inputs(write(tmp_path / "b.txt", "one\ntwo\tzwei\n"), InputKind.TEXT_OR_PAIR, None)
    assert [one.data for one in mixed] == ["one", ("two", "zwei")]
    path, references = write(tmp_path / "a.txt", "one\n\nthree\n"), write(tmp_path / "b.txt", "1\n2\n3\n")
    assert [one.reference for one in read_inputs(path, InputKind.TEXT, references)] == ["1", "3"]
    with pytest.raises(TargetError, match=r"b\.txt: 2 references for the 3 lines of .*a\.txt"):
        read_inputs(path, InputKind.TEXT, write(references, "1\n2\n"))


def test_an_image_is_named_by_its_folder(tmp_path: Path) -> None:
    for name in ("cat/1.png", "dog/2.JPG", "3.webp", "notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    found = read_inputs(tmp_path, InputKind.IMAGE, None)
    assert {(one.name, one.reference, one.data) for one in found} == {
        ("3.webp", None, b"3.webp"),
        ("cat/1.png", "cat", b"cat/1.png"),
        ("dog/2.JPG", "dog", b"dog/2.JPG"),
    }
    assert [one.data for one in read_inputs(tmp_path / "3.webp", InputKind.IMAGE, None)] == [b"3.webp"]


@pytest.mark.parametrize(
    ("content", "kind", "problem"),
    [
        (b"", InputKind.TEXT, "no inputs"),
        (b"\n \n", InputKind.TEXT, "no inputs"),
        (b"good\n\xff\n", InputKind.TEXT, r"a\.txt:2: not UTF-8"),
        (b"\xef\xbb\xbfgood\n\xff\n", InputKind.TEXT, r"a\.txt:2: not UTF-8"),
        (b"good\tgut\nbad\n", InputKind.PAIR, r"a\.txt:2: expected two texts separated by a tab"),
        (b"bad\t \n", InputKind.TEXT_OR_PAIR, r"a\.txt:1: expected two texts separated by a tab"),
    ],
)
def test_unusable_files_are_named(tmp_path: Path, content: bytes, kind: InputKind, problem: str) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    with pytest.raises(TargetError, match=problem):
        read_inputs(path, kind, None)


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match=r"nothing\.txt: cannot be read: No such file"):
        read_inputs(tmp_path / "nothing.txt", InputKind.TEXT, None)
    with pytest.raises(TargetError, match=r"nothing\.png: cannot be read: No such file"):
        read_inputs(tmp_path / "nothing.png", InputKind.IMAGE, None)
    cut = tmp_path / "cut.txt.gz"
    cut.write_bytes(gzip.compress(b"text" * 1_000)[:-20])
    with pytest.raises(TargetError, match=r"cut\.txt\.gz: cannot be read"):
        read_inputs(cut, InputKind.TEXT, None)


@pytest.mark.parametrize(
    "task", [name for name, task in TASKS.items() if task.kind not in (InputKind.TENSORS, InputKind.IMAGE)]
)
def test_every_task_has_bundled_inputs(task: str) -> None:
    samples = bundled(task)
    assert len(samples) >= 8
    assert len({sample.data for sample in samples}) == len(samples)
    pairs = TASKS[task].kind in (InputKind.PAIR, InputKind.TEXT_OR_PAIR)
    assert all(isinstance(sample.data, tuple if pairs else str) for sample in samples)
    assert all(sample.reference is None for sample in samples)


def test_bundled_images_are_valid_and_texts_single() -> None:
    first, second = bundled("classify"), bundled("classify")
    assert first == second
    for sample in first:
        with Image.open(io.BytesIO(sample.data)) as image:
            image.load()
            assert (image.format, image.size, image.mode) == ("PNG", (SIDE, SIDE), "RGB")
            assert len(image.getcolors(SIDE * SIDE) or ()) > 1_000
    assert all(isinstance(sample.data, str) for sample in bundled("classify-text", takes_pairs=False))


def test_a_word_is_masked_and_is_the_reference() -> None:
    samples = [Sample("Die größte Stadt."), Sample("She [MASK] home.", reference="went"), Sample("1 + 1 = 2")]
    first, second = masked(samples, "[MASK]", seed=1)
    assert first.reference is not None
    assert first.data.replace("[MASK]", first.reference) == "Die größte Stadt."
    assert second == samples[1]
    assert masked(samples, "[MASK]", seed=1) == [first, second]


def test_quality_needs_references() -> None:
    found = quality_of(QualityMetric.ACCURACY, ["Cat", "dog ", "cow"], ["cat", "Dog", "pig"])
    assert found is not None
    assert (found.metric, round(found.value, 3), found.signature) == ("accuracy", 0.667, "n:3")
    right = "the cat sat on the mat"
    found = quality_of(QualityMetric.BLEU, [right, right], [right, right])
    assert found is not None
    assert found.value == pytest.approx(100.0)
    assert "n:2|" in found.signature
    assert "version:" in found.signature
    assert quality_of(QualityMetric.BLEU, [], []) is None
    assert quality_of(QualityMetric.NONE, ["a"], ["b"]) is None


def test_bleu_without_sacrebleu_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics.bleu", None)
    with pytest.raises(QualityError, match=r"run: pip install sacrebleu$"):
        quality_of(QualityMetric.BLEU, ["a"], ["a"])
