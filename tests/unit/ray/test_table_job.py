"""Table jobs without Ray and without a model."""

import dataclasses
import json
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyarrow")

from triptych.decoding import DecodingOptions
from triptych_documents.rules import TranslationRules
from triptych_documents.sentences import Refusal, SentenceRequest, SentenceTranslation
from triptych_documents.translation.units import UnitTranslator
from triptych_embedded.request import BackendError, TranslationRequest
from triptych_embedded.sentences import SentenceOutcome
from triptych_ray.tables import job, parts, worker
from triptych_ray.tables.files import Chunk
from triptych_ray.tables.job import ClusterError, TableReport, find_identity, run
from triptych_ray.tables.options import TableOptions
from triptych_ray.tables.storage import Storage
from triptych_ray.tables.worker import Worker

from ...fixtures.toy import MODELS, copy_bundle, edit_manifest
from ..cli.documents.fakes import UpperCaseTranslator

TOY = TranslationRequest(models=MODELS)


def open_translator(request: TranslationRequest, cpus: int) -> AbstractContextManager[UpperCaseTranslator]:
    return nullcontext(UpperCaseTranslator(identity=find_identity(request), window=8, at_once=3))


@pytest.fixture(autouse=True)
def _without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    def translated(options: TableOptions, chunks: Sequence[Chunk]) -> Iterator[tuple[str, dict[str, Any]]]:
        working = Worker(options, 1)
        for chunk in chunks:
            batch = {name: np.array([value]) for name, value in dataclasses.asdict(chunk).items()}
            row = working(batch)
            yield row["path"][0], json.loads(row["report"][0])

    monkeypatch.setattr(worker, "open_sentence_translator", open_translator)
    monkeypatch.setattr(job, "_translated", translated)


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "a.txt"
    path.write_text("one\ntwo\nthree\n", encoding="utf-8")
    return path


def options(*paths: Path, **others: Any) -> TableOptions:
    files = tuple((str(path), path.name) for path in paths)
    defaults = {"rows": 2, "request": TOY, "rules": TranslationRules(source_language="en")}
    return TableOptions(files=files, **{**defaults, "out": str(paths[0].parent / "out"), **others})


def output(path: Path) -> Path:
    return path.parent / "out" / path.name


def complete(report: TableReport) -> tuple[list[str], list[str], list[str]]:
    """Names of files that were translated, were done before, and failed."""
    named = report.files, report.skipped, report.failed
    made, skipped, failed = ([Path(path).name for path in each] for each in named)
    return made, skipped, failed


def test_a_done_file_is_left_alone(lines: Path) -> None:
    assert complete(run(options(lines))) == (["a.txt"], [], [])
    assert output(lines).read_text(encoding="utf-8") == "ONE\nTWO\nTHREE\n"
    written = output(lines).stat().st_mtime_ns
    assert complete(run(options(lines))) == ([], ["a.txt"], [])
    assert output(lines).stat().st_mtime_ns == written


def test_a_file_that_no_job_wrote_is_kept(lines: Path) -> None:
    output(lines).parent.mkdir()
    output(lines).write_text("mine\n", encoding="utf-8")
    report = run(options(lines))
    assert report.failed == {str(lines): [f"{output(lines)}: {parts.NOT_OURS}"]}
    assert output(lines).read_text(encoding="utf-8") == "mine\n"
    assert complete(run(options(lines, overwrite=True)))[0] == ["a.txt"]
    assert complete(run(options(lines)))[1] == ["a.txt"]  # `overwrite` makes no other job
    output(lines).write_text("edited\n", encoding="utf-8")
    assert parts.NOT_OURS in run(options(lines)).failed[str(lines)][0]


def test_a_file_that_appears_during_the_job_is_kept(lines: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = UpperCaseTranslator.take

    def take(self: UpperCaseTranslator, patience_seconds: float) -> list[SentenceOutcome]:
        output(lines).write_text("mine\n", encoding="utf-8")
        return read(self, patience_seconds)

    output(lines).parent.mkdir()
    monkeypatch.setattr(UpperCaseTranslator, "take", take)
    assert parts.NOT_OURS in run(options(lines)).failed[str(lines)][0]
    assert output(lines).read_text(encoding="utf-8") == "mine\n"


@pytest.mark.parametrize("moved", [False, True])
def test_a_driver_that_dies_while_renaming(tmp_path: Path, moved: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next job recognises the output, whether or not it was renamed."""
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "one"}\n', encoding="utf-8")
    run(options(path, output_column="earlier"))
    write = parts._write

    def write_(file: Storage, told: Any) -> None:
        if file.place.endswith(".done") and told["stamp"]:
            raise KeyboardInterrupt
        write(file, told)
        if file.place.endswith(".done") and not moved:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(parts, "_write", write_)
        with pytest.raises(KeyboardInterrupt):
            run(options(path))
    assert complete(run(options(path))) == (([], ["a.jsonl"], []) if moved else (["a.jsonl"], [], []))
    assert output(path).read_text(encoding="utf-8") == '{"text": "one", "translation": "ONE"}\n'


def test_half_a_surrogate_pair_is_kept_and_reported(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "half \\ud800"}\n{"text": "whole", "other": "\\udfff"}\n', encoding="utf-8")
    report = run(options(path))
    assert report.failed == {}
    rows = [json.loads(line) for line in output(path).read_text(encoding="utf-8").splitlines()]
    assert rows == [
        {"text": "half \ud800", "translation": "half \ud800"},
        {"text": "whole", "other": "\udfff", "translation": "WHOLE"},
    ]
    [finding] = report.findings[str(path)]
    assert (finding["row"], finding["severity"]) == (0, "error")


def test_an_unexpected_error_fails_its_file_alone(lines: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine is empty for the next chunk."""
    other = lines.with_name("b.txt")
    other.write_text("four\nfive\nsix\nseven\n", encoding="utf-8")
    answer = UnitTranslator.answer

    def answer_(self: UnitTranslator, ask: SentenceRequest, outcome: SentenceTranslation | Refusal) -> list[SentenceRequest]:
        if ask.text == "two":
            raise KeyError(ask.text)
        return answer(self, ask, outcome)

    monkeypatch.setattr(UnitTranslator, "answer", answer_)
    report = run(options(lines, other, rows=10))
    assert report.failed == {str(lines): [f"{lines}: chunk 0: KeyError: 'two'"]}
    assert output(other).read_text(encoding="utf-8") == "FOUR\nFIVE\nSIX\nSEVEN\n"


def test_another_model_is_another_job(lines: Path, tmp_path: Path) -> None:
    models = tmp_path / "models"
    folder = copy_bundle(models)
    request = TranslationRequest(models=models)
    assert complete(run(options(lines, request=request)))[0] == ["a.txt"]
    assert complete(run(options(lines, request=TOY)))[1] == ["a.txt"], "where a model lies makes no difference"
    edit_manifest(folder, lambda manifest: manifest.update(generation={**manifest["generation"]}))
    assert complete(run(options(lines, request=request)))[0] == ["a.txt"]
    copy_bundle(models, version=2)
    assert complete(run(options(lines, request=request)))[0] == ["a.txt"]
    decoding = DecodingOptions(beam_size=3)
    assert complete(run(options(lines, request=TranslationRequest(models=models, decoding=decoding))))[0] == ["a.txt"]


def test_the_model_is_found_without_loading_it(tmp_path: Path) -> None:
    models = tmp_path / "models"
    copy_bundle(models, "one")
    copy_bundle(models, "two")
    with pytest.raises(BackendError, match="several models match, set `model` to one of: one, two"):
        find_identity(TranslationRequest(models=models))
    copy_bundle(models, "two", version=2)
    assert find_identity(TranslationRequest(models=models, model="two")).version == "2"
    assert find_identity(TranslationRequest(models=models, model="two", model_version="1")).version == "1"
    with pytest.raises(BackendError, match="precision 'fp8' is not in this bundle"):
        find_identity(TranslationRequest(models=models, model="two", precision="fp8"))
    with pytest.raises(BackendError, match="'three' is not in"):
        find_identity(TranslationRequest(models=models, model="three"))


def with_half(tmp_path: Path) -> Path:
    """Return a repository whose model also has graphs for CUDA."""
    folder = copy_bundle(tmp_path / "models")
    edit_manifest(folder, lambda manifest: manifest["precisions"].update(fp16=manifest["precisions"]["fp32"]))
    return tmp_path / "models"


@pytest.mark.parametrize(
    ("device", "precision", "used", "found"),
    [
        ("cuda", None, "cuda", "fp16"),
        ("cuda:1", "fp16", "cuda", "fp16"),
        ("auto", None, "cpu", "fp32"),
        ("cpu", None, "cpu", "fp32"),
        ("auto", "int8", "cpu", "int8"),
    ],
)
def test_device_and_precision_of_engines(
    lines: Path, tmp_path: Path, device: str, precision: str | None, used: str, found: str
) -> None:
    request = TranslationRequest(models=with_half(tmp_path), device=device, precision=precision)
    assert find_identity(request).precision == found
    assert job._with_model(options(lines, request=request)).request.device == used


def test_models_that_no_engine_could_load_are_errors(lines: Path, tmp_path: Path) -> None:
    for request, problem in (
        (TranslationRequest(models=tmp_path / "none"), r"readable where the job is started.*no such model repository"),
        (TranslationRequest(models=MODELS, device="cuda"), "it has no graphs for CUDA, only fp32, int8; export it with"),
    ):
        with pytest.raises(ClusterError, match=problem):
            run(options(lines, request=request))


def test_a_failed_engine_or_another_model_on_a_node_ends_the_job(
    lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def take(self: UpperCaseTranslator, patience_seconds: float) -> list[SentenceOutcome]:
        raise BackendError("the engine is gone")

    with monkeypatch.context() as patch:
        patch.setattr(UpperCaseTranslator, "take", take)
        with pytest.raises(BackendError, match="the engine is gone"):
            run(options(lines))
    copy_bundle(tmp_path / "models", version=2)
    other = TranslationRequest(models=tmp_path / "models")
    monkeypatch.setattr(worker, "open_sentence_translator", lambda _, cpus: open_translator(other, cpus))
    with pytest.raises(BackendError, match=r"the model here is .*\"version\":\"2\".*where the job was started"):
        run(options(lines))


NODES = [
    {"Alive": True, "Resources": {"CPU": 8.0, "GPU": 2.0}},
    {"Alive": True, "Resources": {"CPU": 4.0}},
    {"Alive": False, "Resources": {"CPU": 64.0, "GPU": 8.0}},
]


@pytest.mark.parametrize(
    ("device", "workers", "cpus", "shares"),
    [("auto", 0, 0, (3, 4, 0)), ("cpu", 5, 2, (5, 2, 0)), ("cuda", 0, 0, (2, 1, 1)), ("cuda", 1, 3, (1, 3, 1))],
)
def test_there_is_one_engine_per_device(
    lines: Path, device: str, workers: int, cpus: int, shares: tuple[int, int, int]
) -> None:
    wanted = options(lines, request=TranslationRequest(models=MODELS, device=device), workers=workers, cpus=cpus)
    assert job._shares(wanted, NODES) == shares
    if device == "cuda":
        with pytest.raises(ClusterError, match="--device cuda: no node of the cluster has a GPU"):
            job._shares(wanted, NODES[1:])
