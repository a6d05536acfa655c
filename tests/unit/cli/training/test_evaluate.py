"""`triptych evaluate`."""

import json
from pathlib import Path

import pytest

from ....fixtures.framed import copy_framed
from ....fixtures.toy import MODELS, PAIRS, SOURCE, TARGET
from ..conftest import Run

pytest.importorskip("sacrebleu")
Toy = ("evaluate", "translation", "--models", MODELS)


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS[:50]), encoding="utf-8")
    return path


def test_memorised_sentences_score_100(run: Run, pairs: Path) -> None:
    result = run(*Toy, pairs)
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("BLEU 100.00  (50 sentences in ")
    assert "tok:13a" in result.out


def test_json(run: Run, pairs: Path) -> None:
    result = json.loads(run(*Toy, pairs, "--precision", "int8", "--json").out)
    assert (result["bleu"], result["sentences"]) == (100.0, 50)
    assert {"signature", "seconds"} < result.keys()


def test_lowercase(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "loud.tsv"
    path.write_text(f"{SOURCE}\t{TARGET.upper()}\n", encoding="utf-8")
    scores = [json.loads(run(*Toy, path, "--json", *lowercase).out)["bleu"] for lowercase in ([], ["--lowercase"])]
    assert scores[0] < scores[1] == 100.0


def test_the_bleu_of_the_literature(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "loud.tsv"
    path.write_text(f"{SOURCE}\t{TARGET.upper()}\n", encoding="utf-8")
    result = json.loads(run(*Toy, path, "--json", "--literature", "de").out)
    assert result["bleu"] < result["literature"] == 100.0
    assert result["literature_signature"].endswith("text:lower-cased, normalised, tokenised (de)")
    lines = run(*Toy, path, "--literature", "de").out.splitlines()
    assert lines[1] == f"BLEU 100.00  ({result['literature_signature']})"


def test_more_pairs_than_one_batch(run: Run, pairs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triptych_cli.translation.embedded.EmbeddedBackend.batch", 7)
    assert run(*Toy, pairs).out.startswith("BLEU 100.00")


def test_beams(run: Run, pairs: Path) -> None:
    assert run(*Toy, pairs, "--beam-size", "4", "--length-penalty", "0.6").out.startswith("BLEU 100.00")
    assert "options.beam_size: 99" in run(*Toy, pairs, "--beam-size", "99").error


def test_the_languages_of_a_model_that_has_several(run: Run, pairs: Path, tmp_path: Path) -> None:
    copy_framed(tmp_path)
    scores = [
        json.loads(run(*Toy[:3], tmp_path, "--json", "--source-language", "de", "--target-language", code, pairs).out)["bleu"]
        for code in ("de", "nl")
    ]
    assert scores[0] == 100 > scores[1]


def test_a_source_is_translated_in_one_piece(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "two.tsv"
    path.write_text(" ".join(source for source, _ in PAIRS[:8]) + "\tx\n", encoding="utf-8")
    assert "too long, the model takes at most 64 tokens" in run(*Toy, path).error


def test_a_pair_that_is_too_long_is_named(run: Run, pairs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triptych_cli.translation.embedded.EmbeddedBackend.batch", 7)
    with open(pairs, "a", encoding="utf-8") as file:
        file.write("1 " * 50 + "\tzu lang\n")
    assert run(*Toy, pairs).error.startswith("pair 51: 101 tokens are too long")


def test_a_missing_file_is_named(run: Run, tmp_path: Path) -> None:
    assert str(tmp_path / "missing.tsv") in run(*Toy, tmp_path / "missing.tsv").error


def test_an_unknown_model_is_named(run: Run, pairs: Path) -> None:
    assert run(*Toy, pairs, "--model", "foo").error.startswith("model 'foo' is not in ")
