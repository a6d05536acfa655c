"""`triptych evaluate`."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from unittest.mock import Mock

import pytest
from click import ClickException
from tokenizers import Tokenizer, decoders, processors

from triptych_cli.common.connection import PatientClient
from triptych_cli.training import accuracy
from triptych_cli.translation.backend import EmbeddedBackend, RemoteBackend
from triptych_embedded.request import TranslationRequest
from triptych_serving.models.image.image_model import ImageModel
from triptych_serving.text.tokenizers import read_tokenizer

from ....fixtures.toy import MODELS, PAIRS, SOURCE, TARGET
from ...training.toy_pictures import COLOURS, write_picture
from ..conftest import Run

pytest.importorskip("sacrebleu")
Toy = ("evaluate", "translation", "--models", MODELS)


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS[:20]), encoding="utf-8")
    return path


def test_memorised_sentences_score_100(run: Run, pairs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triptych_cli.translation.backend.EmbeddedBackend.batch", 7)
    text = run(*Toy, pairs, "--beam-size", "4", "--length-penalty", "0.6").success
    assert text.startswith("BLEU 100.00  (20 sentences in ")
    assert "tok:13a" in text
    result = json.loads(run(*Toy, pairs, "--precision", "int8", "--json").success)
    assert (result["bleu"], result["sentences"]) == (100.0, 20)
    assert {"signature", "seconds"} < result.keys()
    named = json.loads(run(*Toy, f"en:de={pairs}", "--precision", "int8", "--json").success)
    assert named["bleu"] == 100.0
    assert "target_language: fr, de are several" in run(*Toy, f"en:de={pairs}", "--target-language", "fr").error


def test_words_are_found_by_the_rules_of_the_models_language(run: Run, pairs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    original = EmbeddedBackend.target_language
    monkeypatch.setattr(EmbeddedBackend, "target_language", lambda self: asked.append(original(self)) or "zh")
    assert "tok:zh" in run(*Toy, pairs).success
    assert asked == ["de"]

    def language(model: str, *offered: tuple[str, str]) -> str:
        models = [SimpleNamespace(name=name, target_languages=(code,)) for name, code in offered]
        client = SimpleNamespace(client=SimpleNamespace(models=lambda: models))
        return RemoteBackend(cast(PatientClient, client), TranslationRequest(model=model)).target_language()

    assert language("", ("a", "ja")) == language("a", ("a", "ja"), ("b", "ko")) == "ja"
    assert language("", ("a", "ja"), ("b", "ko")) == language("c", ("a", "ja")) == ""


def test_a_failed_score_of_a_checkpoint_keeps_the_file(run: Run, pairs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triptych_cli.training.checkpoint.needs", Mock(side_effect=ClickException("no torch")))
    before = pairs.read_bytes()
    assert run("checkpoint", "score", pairs.parent, pairs, "--out", pairs).error == "no torch"
    assert pairs.read_bytes() == before


def test_a_dash_writes_the_translations_of_a_checkpoint_to_standard_output(
    run: Run, pairs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fakes = {"decoding.batch_beam": {"SearchOptions": Mock()}, "evaluation.checkpoint_score": {"score_checkpoint": Mock()}}
    fakes["evaluation.checkpoint_score"]["score_checkpoint"].return_value = ["a  b", "c"], None, None
    for name, members in fakes.items():  # without torch
        monkeypatch.setitem(sys.modules, f"triptych_training.{name}", SimpleNamespace(**members))
    for name in ("needs", "show_scores"):
        monkeypatch.setattr(f"triptych_cli.training.checkpoint.{name}", Mock())
    assert run("checkpoint", "score", pairs.parent, pairs, "--out", "-").success == "a b\nc\n"


def test_case_and_the_bleu_of_the_literature(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "loud.tsv"
    path.write_text(f"{SOURCE}\t{TARGET.upper()}\n", encoding="utf-8")
    assert json.loads(run(*Toy, path, "--json", "--lowercase").out)["bleu"] == 100.0
    result = json.loads(run(*Toy, path, "--json", "--literature", "de").out)
    assert result["bleu"] < result["literature"] == 100.0
    assert result["literature_signature"].endswith("text:lower-cased, normalised, tokenised (de)")
    lines = run(*Toy, path, "--literature", "de").out.splitlines()
    assert lines[1] == f"BLEU 100.00  ({result['literature_signature']})"


def test_errors_name_the_pair_the_file_or_the_option(run: Run, pairs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every source is translated in one piece."""
    monkeypatch.setattr("triptych_cli.translation.backend.EmbeddedBackend.batch", 7)
    assert "options.beam_size: 99" in run(*Toy, pairs, "--beam-size", "99").error
    missing = pairs.with_name("missing.tsv")
    assert str(missing) in run(*Toy, missing).error
    with open(pairs, "a", encoding="utf-8") as file:
        file.write(" ".join(source for source, _ in PAIRS[:8]) + "\tx\n")
    error = run(*Toy, pairs).error
    assert error.startswith("pair 21: ")
    assert "too long, the model takes at most 64 tokens" in error


@pytest.mark.parametrize(("task", "text"), [("fill-mask", "\u200b\n"), ("text-generation", "a\n\nb\n")])
def test_texts_without_anything_to_predict_are_an_error(run: Run, tmp_path: Path, task: str, text: str) -> None:
    path = tmp_path / "short.txt"
    path.write_text(text, encoding="utf-8")
    assert run("evaluate", task, path).error.startswith("texts: ")


def test_an_image_that_cannot_be_used_is_named(run: Run, tmp_path: Path) -> None:
    for label in ("cat", "dog"):
        (tmp_path / label).mkdir()
        (tmp_path / label / "bad.png").write_bytes(b"no image")
    assert run("evaluate", "image-classification", tmp_path).error.startswith(f"{tmp_path}/cat/bad.png: it is not an image")
    assert "x>=0" in run("evaluate", "image-classification", tmp_path, "--hold-out", "-1").err
    assert "x>=0" in run("evaluate", "image-classification", tmp_path, "--hold-out", "nan").err


def test_few_files_are_in_memory_and_others_are_counted(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for label in ("cat", "dog"):
        picture = write_picture(tmp_path / label / "0.png", COLOURS["red"])
        for number in range(1, 40):
            picture.with_stem(str(number)).symlink_to(picture)
    for name in ("notes.txt", "scan.tiff", ".hidden"):
        (tmp_path / "cat" / name).touch()
    sizes: list[int] = []
    original = ImageModel.classify
    monkeypatch.setattr(ImageModel, "classify", lambda self, files: sizes.append(len(files)) or original(self, files))
    result = run("evaluate", "image-classification", tmp_path, "--json")
    assert json.loads(result.out)["images"] == sum(sizes) == 80
    assert result.err == "2 other files and folders in the folders of classes are ignored\n"
    assert max(sizes) == 64


def test_the_perplexity_is_of_all_tokens_but_the_first(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "texts.txt"
    path.write_text("The war ended in the last century.\n\nShe was born in the north.\n", encoding="utf-8")
    whole, cut = (
        json.loads(run("evaluate", "text-generation", path, "--sequence-length", length, "--json").success)
        for length in ("256", "3")
    )
    assert cut["tokens"] == 4
    assert whole["tokens"] > 8
    assert 1 < whole["perplexity"] < 1000


def test_the_perplexity_does_not_depend_on_how_tokens_are_decoded(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tokenizer may lose spaces, and the cut may fall inside a character, which is left out then."""
    path = tmp_path / "texts.txt"
    path.write_text("The war ended in the last century. \U0001f600\n\n\U0001f600\n", encoding="utf-8")
    command = ("evaluate", "text-generation", path, "--json", "--sequence-length")
    whole, cut = (json.loads(run(*command, length).success) for length in ("10", "11"))
    assert whole == cut
    assert whole["tokens"] == 9 + 3

    def read(file: Path) -> Tokenizer:
        tokenizer = read_tokenizer(file)
        tokenizer.decoder = decoders.Strip(" ", 1, 0)
        return tokenizer

    monkeypatch.setattr("triptych_serving.models.generation.generator.read_tokenizer", read)
    assert json.loads(run(*command, "10").success) == whole


def test_a_start_token_counts_for_the_longest_sequence(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(file: Path) -> Tokenizer:
        tokenizer = read_tokenizer(file)
        start = next(token for token, id in tokenizer.get_vocab().items() if id == 0)
        tokenizer.post_processor = processors.TemplateProcessing(single=f"{start} $A", special_tokens=[(start, 0)])
        return tokenizer

    monkeypatch.setattr("triptych_serving.models.generation.generator.read_tokenizer", read)
    path = tmp_path / "texts.txt"
    path.write_text("a b c " * 2000, encoding="utf-8")
    command = ("evaluate", "text-generation", path, "--json", "--sequence-length")
    assert run(*command, "1023").error == "sequence-length: 1023 is outside 2 to 1022, the model's limit"
    whole = json.loads(run(*command, "1022").success)
    assert whole["tokens"] == 1022  # the start token is not predicted
    monkeypatch.setattr(accuracy, "DOCUMENT_TOKENS", 2000)
    assert json.loads(run(*command[:-1]).success) == whole


def test_the_usual_row_is_no_longer_than_the_model_s_limit(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (path := tmp_path / "texts.txt").write_text("The war ended in the last century.\n" * 40, encoding="utf-8")
    monkeypatch.setattr(accuracy, "ROW_TOKENS", 10_000)
    assert json.loads(run("evaluate", "fill-mask", path, "--json").success)["masked_tokens"] > 0
