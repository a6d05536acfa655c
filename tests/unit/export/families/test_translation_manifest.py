"""Manifest and description of a translation model."""

from dataclasses import replace
from typing import Any

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from triptych_export.errors import SourceError
from triptych_export.families.translation import TranslationFamily, suppressed_tokens, translation_manifest
from triptych_export.translation_source import TranslationSource
from triptych_serving.bundle.manifest import SourceFrame, TargetFrame
from triptych_training.models.transformer import Transformer, TransformerConfig


@pytest.fixture(scope="module")
def source() -> TranslationSource:
    shape = TransformerConfig(40, 24, 3, 8, 1, 2, decoder_heads=4, bos_id=2, max_positions=99)
    frames = {"en": SourceFrame()}, {"de": TargetFrame()}
    return TranslationSource(
        Transformer(shape), Tokenizer(WordLevel({})), *frames, max_source=30, max_target=20, family="marian"
    )


def test_the_manifest_of_one_pair(source: TranslationSource) -> None:
    manifest = translation_manifest(source)
    assert (manifest["source_languages"], manifest["target_languages"]) == (["en"], ["de"])
    assert not {"frames", "splits", "target_tokenizer"} & manifest.keys()
    assert manifest["family"] == "marian"
    assert manifest["tokens"] == {"pad": 0, "start": 2, "end": 2}
    assert manifest["limits"] == {"max_source_tokens": 30, "max_target_tokens": 20}
    assert manifest["decoder"] == {"layers": 2, "heads": 4, "head_dim": 8}  # of 6, filled up
    assert manifest["generation"] == {"max_length": 19}


def test_members_that_differ_from_the_defaults(source: TranslationSource) -> None:
    other = replace(
        source,
        sources={"en": SourceFrame((1,)), "de": SourceFrame((), (3, 4)), "fr": SourceFrame()},
        targets={"de": TargetFrame("to German: "), "fr": TargetFrame("", (5,), (6,)), "en": TargetFrame()},
        target_tokenizer=Tokenizer(WordLevel({})),
        splits=False,
        generation={"max_length": 7, "rules": "transformers", "suppressed_tokens": [[3], [4, 5], [6]]},
    )
    manifest = translation_manifest(other)
    assert manifest["frames"] == {
        "sources": {"en": {"before": (1,)}, "de": {"after": (3, 4)}},
        "targets": {"de": {"text": "to German: "}, "fr": {"before": (5,), "forced": (6,)}},
    }
    assert (manifest["splits"], manifest["target_tokenizer"]) == (False, "target_tokenizer.json")
    assert manifest["generation"] == other.generation
    assert suppressed_tokens(other) == (3, 6)


@pytest.mark.parametrize(
    ("changes", "name", "sentence"),
    [
        ({}, "en-de", "Translates en to de."),
        ({"targets": {"de": TargetFrame(), "fr": TargetFrame()}}, "marian", "Translates en to 2 languages."),
        ({"sources": {"und": SourceFrame()}, "targets": {"und": TargetFrame()}}, "marian", "Turns texts into other texts."),
    ],
)
def test_name_and_description(source: TranslationSource, changes: dict[str, Any], name: str, sentence: str) -> None:
    family = TranslationFamily(replace(source, **changes))
    assert family.default_name == name
    assert family.describe().sentence == sentence
    assert family.describe().rows["longest source, target (tokens)"] == "30, 20"


def test_an_unsupported_shortlist_is_rejected_early(source: TranslationSource) -> None:
    many = replace(source, targets={"de": TargetFrame(), "fr": TargetFrame(forced=(5,))})
    assert TranslationFamily(source, lexicon_pairs=[("a", "b")])
    with pytest.raises(SourceError, match="shortlist"):
        TranslationFamily(many, lexicon_pairs=[("a", "b")])
