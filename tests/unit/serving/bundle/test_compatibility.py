"""Bundles that were written once are read for good, as serving/docs/compatibility.md says.

tests/fixtures/manifests/<format>/ has manifests as releases have written them: `least` without all that may be left out, `most`
with all of it. They are added to, and never changed.
"""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.bundle.manifest import FILE_NAME, FORMAT, OLDEST_FORMAT, TASKS, Manifest, read_manifest
from triptych_serving.decoding.engine import EngineOptions
from triptych_serving.models.decode_model import DecodeModelOptions
from triptych_serving.models.translation.translator import Translator

from ....fixtures.toy import SOURCE, TARGET, copy_bundle, edit_manifest

MANIFESTS = Path(__file__).parents[3] / "fixtures/manifests"
PATHS = sorted(MANIFESTS.glob("*/*.json"))


def read(path: Path, folder: Path) -> Manifest:
    (folder / FILE_NAME).write_bytes(path.read_bytes())
    return read_manifest(folder)


def test_fixtures_cover_every_format_and_task() -> None:
    written = {(int(path.parent.name), json.loads(path.read_text(encoding="utf-8"))["task"]) for path in PATHS}
    assert written == {(number, task) for number in range(OLDEST_FORMAT, FORMAT + 1) for task in TASKS}


@pytest.mark.parametrize("path", PATHS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_manifest_of_an_earlier_release_is_read(path: Path, tmp_path: Path) -> None:
    """Members that this release does not know are ignored."""
    raw = json.loads(path.read_text(encoding="utf-8"))
    known = read(path, tmp_path)
    assert str(raw["format"]) == path.parent.name
    assert path.stem.startswith(known.task)
    (tmp_path / FILE_NAME).write_text(json.dumps(_with_more(raw)), encoding="utf-8")
    more = read_manifest(tmp_path)
    assert vars(more).keys() == vars(known).keys()
    assert (more.task, more.default_precision, more.precisions) == (known.task, known.default_precision, known.precisions)


def _with_more(raw: dict[str, Any]) -> dict[str, Any]:
    """Members that this release does not know, in every object but those whose members are names."""
    graphs = {name: {**one, "colour": "green"} for name, one in raw["precisions"].items()}
    files = {name: {**one, "colour": "green"} for name, one in raw["files"].items()}
    objects = {
        name: {**raw[name], "colour": [1]} for name in ("tokens", "limits", "decoder", "generation", "image") if name in raw
    }
    return {**raw, **objects, "precisions": graphs, "files": files, "colour": {"hue": 120}}


def test_a_bundle_of_the_first_release_translates(repository: Path) -> None:
    folder = copy_bundle(repository)

    def edit(raw: dict[str, Any]) -> None:
        least = json.loads((MANIFESTS / "1/translation-least.json").read_text(encoding="utf-8"))
        files = {name: raw["files"][name] for name in least["files"]}  # the graphs are today's
        raw.clear()
        raw |= {**least, "files": files}

    edit_manifest(folder, edit)
    options = DecodeModelOptions("fp32", EngineOptions(workers=1, slots=2))
    with closing(Translator("toy", 1, open_bundle(folder), options)) as translator:
        assert [output.text for output in translator.translate([SOURCE])] == [TARGET]
