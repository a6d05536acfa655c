"""Selection of models of every task, and isolation of broken bundles."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from triptych_serving.bundle.manifest import FILL_MASK
from triptych_serving.decoding.engine import EngineOptions
from triptych_serving.encoding.options import EncoderOptions
from triptych_serving.errors import InvalidInputError, NotFoundError, UnavailableError, UnsupportedError
from triptych_serving.models.decode_model import DecodeModelOptions
from triptych_serving.repository.loading import Loader, load_registry
from triptych_serving.repository.registry import ModelSelector, ModelVersion, Registry, State
from triptych_serving.repository.repository import VersionFolder

from ....fixtures.encoders import write_image_bundle, write_text_bundle
from ....fixtures.toy import SOURCE, TARGET, copy_bundle, edit_manifest, tamper, truncate

OPTIONS = DecodeModelOptions(engine=EngineOptions(workers=1, slots=2))


def loaded(repository: Path, only: str = "") -> closing[Registry]:
    return closing(load_registry(repository, OPTIONS, only, EncoderOptions(runs=1)))


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """A translation model, four others, and a broken one."""
    repository = tmp_path_factory.mktemp("models")
    copy_bundle(repository, "toy")
    write_text_bundle(repository, "fill-mask", "bert")
    write_text_bundle(repository, "fill-mask", "pretrained", next_sentence=True)
    write_text_bundle(repository, "token-classification", "ner")
    write_image_bundle(repository, "vit")
    tamper(write_text_bundle(repository, "question-answering", "squad") / "model.fp32.onnx")
    with loaded(repository) as registry:
        yield registry


@pytest.mark.parametrize(
    "wish",
    [
        ModelSelector(),
        ModelSelector(model="toy"),
        ModelSelector(model="toy", version="1"),
        ModelSelector(version="1"),
        ModelSelector(source_language="en", target_language="de"),
        ModelSelector(model="toy", source_language="en-GB"),
        ModelSelector(target_language="deu_Latn"),
        ModelSelector(source_language="auto"),
    ],
)
def test_open_selectors_match_the_only_model(toy: Registry, wish: ModelSelector) -> None:
    assert toy.find(wish).name == "toy"


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        (ModelSelector(model="foo"), "model 'foo' not found; available: bert, ner, pretrained, squad, toy, vit"),
        (ModelSelector(model="toy", version="7"), "version '7' of toy not found; available: toy version 1"),
        (ModelSelector(version="7"), "version '7' of any model not found; available: bert version 1, .*, toy version 1"),
        (ModelSelector(model="toy", version="01"), "version '01' of toy not found"),
        (ModelSelector(target_language="fr"), r"no model translates any language to fr; available: en to de \(toy\)"),
        (ModelSelector(source_language="de", target_language="en"), "no model translates de to en"),
        (
            ModelSelector(model="toy", target_language="fr"),
            r"model 'toy' does not translate any language to fr; available: en to de \(toy\)",
        ),
    ],
)
def test_unknown_models_name_the_available_ones(toy: Registry, wish: ModelSelector, message: str) -> None:
    with pytest.raises(NotFoundError, match=message):
        toy.find(wish)


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_malformed_code_names_its_field(toy: Registry, side: str) -> None:
    wish: dict[str, Any] = {f"{side}_language": "deutsch!"}
    with pytest.raises(InvalidInputError, match=f"^{side}_language_code: "):
        toy.find(ModelSelector(**wish))


def test_the_only_capable_model_is_selected(toy: Registry) -> None:
    assert toy.find_image(ModelSelector()).name == "vit"
    assert toy.find_text(ModelSelector(), "token-classification").name == "ner"
    assert toy.find_text(ModelSelector(), "text-classification").name == "pretrained"
    assert toy.find_text(ModelSelector("ner"), "embedding").name == "ner"


def test_several_capable_models_are_ambiguous(toy: Registry) -> None:
    with pytest.raises(InvalidInputError, match=r"^model: several models match, set `model` to one of: bert, pretrained$"):
        toy.find_text(ModelSelector(), "fill-mask")
    with pytest.raises(InvalidInputError, match=r"set `model` to one of: bert, ner, pretrained$"):
        toy.find_text(ModelSelector(), "embedding")
    assert toy.find_text(ModelSelector("bert", "1"), "fill-mask").name == "bert"


def test_an_incapable_model_names_its_capabilities(toy: Registry) -> None:
    with pytest.raises(UnsupportedError, match="model 'vit' is not one that translates; it classifies images"):
        toy.find(ModelSelector("vit"))
    with pytest.raises(UnsupportedError, match="model 'toy' is not one that classifies images; it translates"):
        toy.find_image(ModelSelector("toy"))
    with pytest.raises(UnsupportedError, match="model 'bert' is not one that labels tokens; it fills masks, embeds text"):
        toy.find_text(ModelSelector("bert"), "token-classification")


def test_missing_and_broken_models_are_reported(toy: Registry, repository: Path) -> None:
    with pytest.raises(UnavailableError, match=r"model 'squad' cannot be served: .*SHA-256"):
        toy.find_text(ModelSelector("squad"), "question-answering")
    with pytest.raises(NotFoundError, match=r"no model answers questions; available: bert \(fill-mask\), ner \(token-"):
        toy.find_text(ModelSelector(), "question-answering")
    write_image_bundle(repository)
    none = "no model translates any language to de; no translation model is loaded"
    with loaded(repository) as registry, pytest.raises(NotFoundError, match=none):
        registry.find(ModelSelector(target_language="de"))


def test_two_models_for_one_pair_need_a_name(repository: Path) -> None:
    copy_bundle(repository, "first")
    copy_bundle(repository, "second")
    with loaded(repository) as registry:
        with pytest.raises(InvalidInputError, match=r"^model: several models match, set `model` to one of: first, second"):
            registry.find(ModelSelector(target_language="de"))
        assert registry.find(ModelSelector(model="second")).name == "second"
    with loaded(repository, only="second") as registry:
        assert [model.entry.name for model in registry.models] == ["second"]
    with pytest.raises(NotFoundError, match=r"model 'third' is not in .*; available: first, second"):
        load_registry(repository, OPTIONS, "third")


def test_the_pair_chooses_among_models(repository: Path) -> None:
    copy_bundle(repository, "a", source_languages=["en"], target_languages=["de"])
    copy_bundle(repository, "b", source_languages=["de"], target_languages=["en"])
    with loaded(repository) as registry:
        assert registry.find(ModelSelector(target_language="deu_Latn")).name == "a"
        assert registry.find(ModelSelector(source_language="de-AT")).name == "b"


CODES = [f"{first}{second}_Latn" for first in "bcdfghj" for second in "aeiou"]


def test_a_many_to_many_model(repository: Path) -> None:
    copy_bundle(repository, "many", source_languages=CODES, target_languages=CODES)
    with loaded(repository) as registry:
        assert registry.find(ModelSelector(source_language="de_Latn", target_language="de_Latn")).name == "many"
        for source in ("", "auto"):
            with pytest.raises(
                InvalidInputError, match=r"languages are not detected; the model has several, name one of: ba_Latn, "
            ):
                registry.find(ModelSelector(source_language=source))
        with pytest.raises(InvalidInputError) as error:
            registry.find(ModelSelector(source_language="de"))
        assert str(error.value) == (
            f"target_language_code: the model has several, name one of: {', '.join(CODES[:8])}, ... (35 in all)"
        )
        with pytest.raises(NotFoundError, match=r"any language to xx; available: 35 languages to 35 languages \(many\)"):
            registry.find(ModelSelector(target_language="xx"))
        assert registry.translators[0].describe().startswith("35 languages to 35 languages, CPU")


def test_a_specific_model_precedes_an_undetermined_one(repository: Path) -> None:
    copy_bundle(repository, "summary", source_languages=["und"], target_languages=["und"])
    copy_bundle(repository, "pair", source_languages=["en"], target_languages=["de"])
    with loaded(repository) as registry:
        assert registry.find(ModelSelector(target_language="de")).name == "pair"
        assert registry.find(ModelSelector(target_language="fr")).name == "summary"
        assert registry.find(ModelSelector(model="summary")).name == "summary"
        assert registry.find(ModelSelector(model="summary", source_language="en")).name == "summary"
        with pytest.raises(InvalidInputError, match="several models match, set `model` to one of: pair, summary"):
            registry.find(ModelSelector())


def test_a_broken_bundle_does_not_stop_the_others(repository: Path) -> None:
    copy_bundle(repository, "good")
    tamper(copy_bundle(repository, "tampered") / "tokenizer.json")
    fault = truncate(copy_bundle(repository, "truncated") / "weights.fp32.bin")
    edit_manifest(copy_bundle(repository, "misshapen"), lambda manifest: manifest["decoder"].update(heads=3))
    edit_manifest(copy_bundle(repository, "huge"), lambda manifest: manifest["limits"].update(max_target_tokens=10**13))
    (repository / "no-bundle" / "1").mkdir(parents=True)
    with loaded(repository) as registry:
        assert [translator.name for translator in registry.translators] == ["good"]
        assert registry.find(ModelSelector()).translate([SOURCE])[0].text == TARGET
        faults = {model.entry.name: model.fault for model in registry.models if model.model is None}
    assert faults.keys() == {"tampered", "truncated", "misshapen", "huge", "no-bundle"}
    assert "SHA-256" in faults["tampered"]
    assert fault in faults["truncated"]
    assert "bundle.json is missing" in faults["no-bundle"]
    assert all(str(repository / name) in fault and "\n" not in fault for name, fault in faults.items())


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """Four versions of one model, whose third is not loaded; another one that translates the other way about."""
    repository = tmp_path_factory.mktemp("models")
    for version in (1, 2, 4):
        copy_bundle(repository, "toy", version)
    copy_bundle(repository, "back", source_languages=["de"], target_languages=["en"])
    loader = Loader(OPTIONS, EncoderOptions())
    labels = {1: ("old", "stable"), 4: ("canary",)}
    entries = [VersionFolder("toy", version, repository / "toy" / str(version)) for version in (1, 2, 4)]
    entries.append(VersionFolder("back", 1, repository / "back" / "1"))
    ready = [
        ModelVersion(e, State.READY, loader.attempt(e)[0], labels=labels.get(e.version, ()) if e.name == "toy" else ())
        for e in entries
    ]
    registry = Registry([*ready, ModelVersion(VersionFolder("toy", 3, repository), State.UNLOADED)])
    yield registry
    registry.close()


@pytest.mark.parametrize(
    ("wish", "found"),
    [
        (ModelSelector(target_language="de"), 1),
        (ModelSelector(model="toy"), 1),
        (ModelSelector(model="toy", version="stable"), 1),
        (ModelSelector(model="toy", version="old"), 1),
        (ModelSelector(model="toy", version="2"), 2),
        (ModelSelector(target_language="de", version="2"), 2),
        (ModelSelector(version="canary"), 4),
        (ModelSelector(version="canary", source_language="en"), 4),
    ],
)
def test_versions_of_one_model_are_not_ambiguous(versions: Registry, wish: ModelSelector, found: int) -> None:
    model = versions.find(wish)
    assert (model.name, model.version) == ("toy", found)


def test_without_a_stable_version_the_newest_serves(versions: Registry) -> None:
    registry = Registry([loaded for loaded in versions.models if "stable" not in loaded.labels])
    assert registry.find(ModelSelector(target_language="de")).version == 4
    registry = Registry([loaded for loaded in registry.models if loaded.version != "4"])
    assert registry.find(ModelSelector("toy")).version == 2
    assert registry.default("toy").version == "2"
    assert registry.default("toy", "3").state is State.UNLOADED


@pytest.mark.parametrize(
    ("state", "kind", "message"),
    [
        (State.LOADING, UnavailableError, "model 'toy' is still being loaded"),
        (State.FAILED, UnavailableError, "model 'toy' cannot be served: torn"),
        (State.UNLOADED, NotFoundError, "model 'toy': version 7 is in the repository, but not loaded"),
        (State.UNLOADING, NotFoundError, "model 'toy': version 7 is in the repository, but not loaded"),
    ],
)
def test_a_version_that_is_not_ready_names_the_reason(
    versions: Registry, tmp_path: Path, state: State, kind: type[Exception], message: str
) -> None:
    registry = Registry(
        [*versions.models, ModelVersion(VersionFolder("toy", 7, tmp_path), state, fault="torn", labels=("next",))]
    )
    for name, version in product(("toy", ""), ("7", "next")):
        with pytest.raises(kind, match=message):
            registry.find(ModelSelector(name, version))
    assert registry.find(ModelSelector("toy")).version == 1


def test_a_label_whose_version_is_still_being_loaded_is_unavailable(versions: Registry, tmp_path: Path) -> None:
    """Another model serves with the same label, but for other languages."""
    loading = ModelVersion(VersionFolder("toy", 7, tmp_path), State.LOADING, labels=("next",))
    back = next(replace(each, labels=("next",)) for each in versions.models if each.name == "back")
    registry = Registry([loading, back, *(each for each in versions.models if each.name == "toy")])
    with pytest.raises(UnavailableError, match=r"no model translates any language to de; .*; loading or failed: toy$"):
        registry.find(ModelSelector(version="next", target_language="de"))


@pytest.mark.parametrize(
    ("name", "state", "broken", "kind"),
    [
        ("other", State.LOADING, False, UnavailableError),
        ("other", State.FAILED, True, UnavailableError),
        ("other", State.FAILED, False, NotFoundError),
        ("toy", State.LOADING, False, NotFoundError),  # a new version of a model that serves
    ],
)
def test_without_a_match_a_model_that_loads_or_has_failed_may_become_one(
    versions: Registry, tmp_path: Path, name: str, state: State, broken: bool, kind: type[Exception]
) -> None:
    registry = Registry([*versions.models, ModelVersion(VersionFolder(name, 7, tmp_path), state, broken=broken)])
    with pytest.raises(kind, match="no model translates fr to any language; available: de to en"):
        registry.find(ModelSelector(source_language="fr"))
    with pytest.raises(kind, match="no model fills masks; available: back"):
        registry.find_text(ModelSelector(), FILL_MASK)
    named = ModelSelector("back", source_language="fr")  # it serves, and will not become another one
    with pytest.raises(NotFoundError, match=r"model .back. does not translate fr to any language; available: de to en .back.$"):
        registry.find(named)
