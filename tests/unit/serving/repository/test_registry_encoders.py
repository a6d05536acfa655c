"""Which model of which task a request means."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from triptych_serving.decoding.engine import EngineOptions
from triptych_serving.encoding.options import EncoderOptions
from triptych_serving.errors import InvalidInputError, NotFoundError, UnavailableError, UnsupportedError
from triptych_serving.models.decode_model import DecodeModelOptions
from triptych_serving.repository.loading import load_registry
from triptych_serving.repository.registry import ModelSelector, Registry

from ....fixtures.encoders import write_image_bundle, write_text_bundle
from ....fixtures.toy import copy_bundle, tamper

OPTIONS = DecodeModelOptions(engine=EngineOptions(workers=1, slots=2))
ENCODERS = EncoderOptions(runs=1)


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    repository = tmp_path_factory.mktemp("models")
    copy_bundle(repository, "translate")
    write_text_bundle(repository, "fill-mask", "bert")
    write_text_bundle(repository, "fill-mask", "pretrained", next_sentence=True)
    write_text_bundle(repository, "token-classification", "ner")
    write_image_bundle(repository, "vit")
    tamper(write_text_bundle(repository, "question-answering", "squad") / "model.fp32.onnx")
    with closing(load_registry(repository, OPTIONS, encoders=ENCODERS)) as registry:
        yield registry


def test_the_only_capable_model_is_selected(registry: Registry) -> None:
    assert registry.find(ModelSelector()).name == "translate"
    assert registry.find_image(ModelSelector()).name == "vit"
    assert registry.find_text(ModelSelector(), "token-classification").name == "ner"
    assert registry.find_text(ModelSelector(), "text-classification").name == "pretrained"
    assert registry.find_text(ModelSelector("ner"), "embedding").name == "ner"


def test_several_capable_models_are_ambiguous(registry: Registry) -> None:
    with pytest.raises(InvalidInputError, match=r"several models match, set `model` to one of: bert, pretrained$") as error:
        registry.find_text(ModelSelector(), "fill-mask")
    assert error.value.field == "model"
    with pytest.raises(InvalidInputError, match=r"set `model` to one of: bert, ner, pretrained$"):
        registry.find_text(ModelSelector(), "embedding")
    assert registry.find_text(ModelSelector("bert", "1"), "fill-mask").name == "bert"


def test_an_incapable_model_names_its_capabilities(registry: Registry) -> None:
    with pytest.raises(UnsupportedError, match="model 'vit' is not one that translates; it classifies images"):
        registry.find(ModelSelector("vit"))
    with pytest.raises(UnsupportedError, match="model 'translate' is not one that classifies images; it translates"):
        registry.find_image(ModelSelector("translate"))
    with pytest.raises(UnsupportedError, match="model 'bert' is not one that labels tokens; it fills masks, embeds text"):
        registry.find_text(ModelSelector("bert"), "token-classification")


def test_missing_and_broken_models_are_reported(registry: Registry) -> None:
    with pytest.raises(UnavailableError, match=r"model 'squad' cannot be served: .*SHA-256"):
        registry.find_text(ModelSelector("squad"), "question-answering")
    with pytest.raises(NotFoundError, match=r"no model answers questions; available: bert \(fill-mask\), ner \(token-"):
        registry.find_text(ModelSelector(), "question-answering")


def test_no_translation_model_is_reported(repository: Path) -> None:
    write_image_bundle(repository)
    with (
        closing(load_registry(repository, OPTIONS, encoders=ENCODERS)) as registry,
        pytest.raises(NotFoundError, match="no model translates any language to de; no translation model is loaded"),
    ):
        registry.find(ModelSelector(target_language="de"))
