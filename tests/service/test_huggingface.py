"""Hugging Face folders as a user brings them: exported without a setting, served together, asked by every verb."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import transformers

from triptych_client import Client

from ..fixtures.huggingface import small_model
from ..fixtures.sentences import SENTENCES
from ..parity.test_huggingface_images import QUICK, as_png, pictures
from ..parity.test_huggingface_images import build as build_image
from ..parity.test_huggingface_images import save as save_image
from ..parity.test_huggingface_text import BERT, LABELS, ROBERTA, build, write_sentence_transformer
from ..parity.text_checkpoints import byte_pieces, save_checkpoint, word_pieces
from .support.processes import ServerProcess, run_command

pytestmark = pytest.mark.full

TEXT = SENTENCES[0]
NAMES = {"id2label": LABELS, "label2id": {name: number for number, name in LABELS.items()}}


def run(*arguments: str | Path) -> str:
    """The output of a command that ends well."""
    result = run_command(*arguments)
    assert result.returncode == 0, result.stderr
    return result.stdout


def write_checkpoints(folder: Path) -> Iterator[Path]:
    """One of each kind; the folder's name becomes the model's."""
    yield small_model("nllb", "tied", folder / "nllb")
    yield small_model("marian", "tied", folder / "opus-mt-eng-deu")
    yield small_model("t5", "translator", folder / "t5")
    yield small_model("bart", "tied", folder / "bart")
    for name, family, tokenizer, head, options in (
        ("roberta", ROBERTA, byte_pieces, "ForMaskedLM", {}),
        ("sentiment", BERT, word_pieces, "ForSequenceClassification", NAMES),
        ("places", BERT, word_pieces, "ForTokenClassification", NAMES),
        ("answers", BERT, word_pieces, "ForQuestionAnswering", {}),
    ):
        save_checkpoint(build(family, head, **options), tokenizer(), folder / name)
        yield folder / name
    yield write_sentence_transformer(folder / "vectors", {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False})
    case = QUICK["deit with teacher"]
    save_image(build_image(case), case, folder / "deit")
    yield folder / "deit"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Checkpoints by the name of their model."""
    work = tmp_path_factory.mktemp("checkpoints")
    return {path.relative_to(work).parts[0]: path for path in write_checkpoints(work)}


@pytest.fixture(scope="module")
def repository(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    models = tmp_path_factory.mktemp("models")
    for name, folder in folders.items():
        run("export", folder, "--out", models, "--name", name, "--precision", "fp32")
    return models


@pytest.fixture(scope="module")
def served(repository: Path) -> Iterator[ServerProcess]:
    with ServerProcess(repository) as server:
        yield server


def ask(server: ServerProcess, verb: str, *arguments: str | Path) -> dict[str, Any]:
    """The JSON object of the only input."""
    [line] = run(verb, "--server", server.address, *arguments).splitlines()
    answer: dict[str, Any] = json.loads(line)
    return answer


def test_every_checkpoint_is_served(served: ServerProcess, folders: dict[str, Path]) -> None:
    models = json.loads(run("models", "--server", served.address, "--json"))
    assert {model["name"]: model["state"] for model in models} == dict.fromkeys(folders, "ready")


@pytest.mark.parametrize(
    ("languages", "model"),
    [
        (("--source-language", "en-GB", "--target-language", "zh"), "nllb"),
        (("--source-language", "fra_Latn", "--target-language", "de"), "nllb"),
        (("--model", "nllb", "--source-language", "eng_Latn", "--target-language", "deu_Latn"), "nllb"),
        (("--model", "opus-mt-eng-deu"), "opus-mt-eng-deu"),
        (("--model", "t5", "--target-language", "fr"), "t5"),
        (("--model", "bart",), "bart"),
    ],
)  # fmt: skip
def test_the_model_for_a_pair_of_languages_translates(served: ServerProcess, languages: tuple[str, ...], model: str) -> None:
    answer = ask(served, "translate", *languages, "--json", "--return-scores", TEXT)
    assert answer["hypotheses"][0]["score"] < 0
    with Client(served.address) as client:
        codes = dict(zip(languages[::2], languages[1::2], strict=True))
        translation = client.translate(
            TEXT,
            source_language=codes.get("--source-language"),
            target_language=codes.get("--target-language"),
            model=codes.get("--model"),
        )
    assert (translation.model, translation.text) == (model, answer["translation"])


def test_two_models_for_a_pair_must_be_told_apart(served: ServerProcess) -> None:
    languages = ("--source-language", "en", "--target-language", "de")
    result = run_command("translate", "--server", served.address, *languages, TEXT)
    assert result.returncode == 1
    assert "several models match, set `model` to one of: nllb, opus-mt-eng-deu, t5" in result.stderr


def test_beams_and_scores_of_a_language(served: ServerProcess) -> None:
    languages = ("--model", "nllb", "--source-language", "en", "--target-language", "de")
    answer = ask(served, "translate", *languages, "--beam-size", "4", "--num-hypotheses", "4", "--json", TEXT)
    assert len(answer["hypotheses"]) == 4
    assert ask(served, "score", *languages, "--json", TEXT, "Ein Satz.")["log_probability"] < 0
    streamed = run("translate", "--server", served.address, *languages, "--stream", TEXT)
    assert streamed.strip() == ask(served, "translate", *languages, "--json", TEXT)["translation"].strip()


def test_masks_are_the_models_own(served: ServerProcess) -> None:
    answer = ask(served, "fill", "--model", "roberta", "--json", "The <mask> leaves at noon.")
    assert len(answer["masks"][0]) == 5


def test_labels_are_the_models_own(served: ServerProcess, tmp_path: Path) -> None:
    labels = ask(served, "classify-text", "--json", "--model", "sentiment", TEXT)["labels"]
    assert sorted(label["label"] for label in labels) == sorted(LABELS.values())
    entities = ask(served, "classify-tokens", "--aggregation", "none", "--json", TEXT)["entities"]
    assert {entity["label"] for entity in entities} <= set(LABELS.values())
    answers = ask(served, "answer", "--context", " ".join(SENTENCES[:5]), "--json", "Who left?")["answers"]
    assert answers[0]["text"] in " ".join(SENTENCES[:5])
    (tmp_path / "picture.png").write_bytes(as_png(pictures()[0]))
    found = ask(served, "classify", "--json", tmp_path / "picture.png")["labels"]
    assert all(label["label"].startswith("label ") for label in found)


def test_vectors_are_pooled_and_scaled_as_the_checkpoint_has_it(served: ServerProcess, folders: dict[str, Path]) -> None:
    model = transformers.AutoModel.from_pretrained(folders["vectors"])
    tokenizer = transformers.AutoTokenizer.from_pretrained(folders["vectors"])
    first = model(**tokenizer(TEXT, return_tensors="pt")).last_hidden_state[0, 0]
    expected = (first / first.norm()).tolist()
    assert ask(served, "embed", "--model", "vectors", TEXT)["values"] == pytest.approx(expected, abs=1e-4)
    with Client(served.address) as client:
        assert client.embed(TEXT, model="vectors").values == pytest.approx(expected, abs=1e-4)
        assert client.embed(TEXT, model="vectors", normalize=False).values == pytest.approx(first.tolist(), abs=1e-3)
