"""Changes of the protos that would break callers are found before a release."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from ...fixtures.contracts import ADDITIONS, BREAKS, CONTRACT, OTHER, Change, write

PROTOS = Path(__file__).resolve().parents[3] / "protos"


def load(path: Path, name: str) -> Any:
    """Import a script."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


breaking = load(PROTOS / "breaking.py", "breaking")


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> FileDescriptorSet:
    return breaking.compiled(write(CONTRACT, tmp_path_factory.mktemp("old")))


@pytest.mark.parametrize("change", [*ADDITIONS, *BREAKS], ids=lambda change: change.name)
def test_a_change_breaks_what_it_breaks(change: Change, old: FileDescriptorSet, tmp_path: Path) -> None:
    new = breaking.compiled(write(change.apply(), tmp_path))
    assert sorted(one.rule for one in breaking.compare(old, new)) == sorted(change.rules)


def test_a_file_and_a_package_stay(old: FileDescriptorSet) -> None:
    new = FileDescriptorSet()
    new.CopyFrom(old)
    [renamed] = [file for file in new.file if file.name == OTHER]
    renamed.package = "triptych.v2"
    assert [one.rule for one in breaking.compare(old, new)] == ["FILE_SAME_PACKAGE"]
    new.file.remove(renamed)
    assert [str(one) for one in breaking.compare(old, new)] == [f"FILE_NO_DELETE: {OTHER}: it was removed"]


def test_a_file_keeps_its_syntax_and_a_field_its_default(old: FileDescriptorSet) -> None:
    new = FileDescriptorSet()
    new.CopyFrom(old)
    [file] = [file for file in new.file if file.name == OTHER]
    file.syntax = "proto2"
    file.message_type[0].field[0].default_value = "x"
    assert [one.rule for one in breaking.compare(old, new)] == ["FILE_SAME_SYNTAX", "FIELD_SAME_DEFAULT"]


def test_a_break_says_where_and_what(old: FileDescriptorSet, tmp_path: Path) -> None:
    change = Change("", "repeated string tags", "string tags")
    [one] = breaking.compare(old, breaking.compiled(write(change.apply(), tmp_path)))
    expected = "FIELD_SAME_CARDINALITY: triptych.v1.GetThingRequest.tags: the cardinality was 'repeated', is 'implicit'"
    assert str(one) == expected


def test_the_protos_do_not_break_the_contract() -> None:
    result = subprocess.run([sys.executable, PROTOS / "breaking.py"], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_the_contract_has_every_service_of_the_release() -> None:
    contract = breaking.read_contract()
    services = {f"{file.package}.{service.name}" for file in contract.file for service in file.service}
    assert len(services) == 8
    assert not any(file.HasField("source_code_info") for file in contract.file)


def test_a_break_is_reported_until_it_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command itself, over a copy."""
    script = tmp_path / "breaking.py"
    script.write_bytes((PROTOS / "breaking.py").read_bytes())
    (tmp_path / "contract").mkdir()
    copy = load(script, "breaking_copy")

    def run(*arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", [str(script), *arguments])
        return int(copy.main())

    write(CONTRACT, tmp_path)
    assert run("--accept") == 0
    assert run() == 0
    first = (tmp_path / "contract/triptych.v1.txtpb").read_text(encoding="utf-8")
    assert text_format.Parse(first, FileDescriptorSet()) == breaking.compiled(tmp_path)
    write(Change("", "int64 size = 10;", "string size = 10;").apply(), tmp_path)
    assert run() == 1
    assert capsys.readouterr().err == "FIELD_SAME_TYPE: triptych.v1.GetThingRequest.size: the type was 'int64', is 'string'\n"
    assert run("--accept") == 0
    assert run() == 0
