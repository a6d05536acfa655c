"""Documents with real text and known structure through the embedded model: what comes back has the structure, and other words.

`TRIPTYCH_SEGMENTS` names files of source<TAB>target lines, separated by colons, for the full tier.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ..fixtures.sentences import SENTENCES
from .rebuilt import rebuild
from .shape import shape_of

FILES = [Path(name) for name in os.environ.get("TRIPTYCH_SEGMENTS", "").split(":") if name]


def translate(documents: Path, out: Path) -> dict[str, object]:
    """By the command line; what its report says. A small model has no answer to some segments: 1 is a good end, too."""
    report = out.parent / "report.json"
    command = [sys.executable, "-m", "triptych_cli", "translate-docs", str(documents), "--model", "en-de"]
    done = subprocess.run([*command, "--out", str(out), "--report", str(report)], check=False, timeout=900)
    assert done.returncode in (0, 1)
    told: dict[str, object] = json.loads(report.read_text("utf-8"))
    return told


def check(pairs: Path, folder: Path, count: int) -> None:
    """Translate all four kinds and compare."""
    before, after = folder / "in", folder / "out"
    paths = list(rebuild(pairs, before, count))
    report = translate(before, after)
    assert (report["complete"], report["documents"]) == (True, {"translated": len(paths)})
    for path in paths:
        translated = after / path.name
        assert shape_of(translated) == shape_of(path), path.name
        assert translated.read_text("utf-8") != path.read_text("utf-8")
        assert " der " in translated.read_text("utf-8")


def test_structure_stays(tmp_path: Path) -> None:
    pairs = tmp_path / "sentences.tsv"
    pairs.write_text("".join(f"{sentence}\t\n" for sentence in SENTENCES[:30]), "utf-8")
    check(pairs, tmp_path, 30)


@pytest.mark.full
@pytest.mark.parametrize(
    "pairs", FILES or [pytest.param(Path(), marks=pytest.mark.skip("TRIPTYCH_SEGMENTS names no file"))], ids=str
)
def test_structure_of_real_segments_stays(pairs: Path, tmp_path: Path) -> None:
    check(pairs, tmp_path, 2_000)
