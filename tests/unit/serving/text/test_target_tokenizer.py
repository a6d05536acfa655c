"""A model whose targets have a tokenizer of their own: here one that writes numbers instead of words."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from triptych.decoding import DecodingOptions
from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.bundle.manifest import BARE, Framing
from triptych_serving.decoding.engine import EngineOptions
from triptych_serving.errors import InvalidInputError
from triptych_serving.models.decode_model import DecodeModelOptions
from triptych_serving.models.translation.postprocess import Translation
from triptych_serving.models.translation.translator import Translator
from triptych_serving.text.translation_tokenizer import TranslationTokenizer
from triptych_text.steps import finish

from ....fixtures.toy import SOURCE, TARGET, copy_bundle, edit_manifest

NAME = "target.json"
END = 2


def numbers(size: int) -> Tokenizer:
    """Token 17 is "w17"."""
    pieces = {"</s>" if index == END else f"w{index}": index for index in range(size)}
    tokenizer = Tokenizer(models.WordLevel(pieces, unk_token="w3"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", END)])
    return tokenizer


def spell(ids: list[int]) -> str:
    return " ".join(f"w{index}" for index in ids)


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory, codec: TranslationTokenizer) -> Iterator[Translator]:
    folder = copy_bundle(tmp_path_factory.mktemp("two-tokenizers"))
    content = numbers(codec.vocabulary).to_str().encode()
    (folder / NAME).write_bytes(content)

    def edit(manifest: dict[str, Any]) -> None:
        manifest["target_tokenizer"] = NAME
        manifest["files"][NAME] = {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}

    edit_manifest(folder, edit)
    translator = Translator("toy", 1, open_bundle(folder), DecodeModelOptions("fp32", EngineOptions(workers=1, slots=4)))
    yield translator
    translator.close()


@pytest.fixture(scope="module")
def expected(codec: TranslationTokenizer) -> list[int]:
    """Ids of the translation."""
    return codec.encode([TARGET])[0][:-1]


def test_translations_use_the_target_tokenizer(translator: Translator, expected: list[int]) -> None:
    assert translator.translate([SOURCE])[0].text == spell(expected)
    *pieces, output = translator.stream(SOURCE)
    assert isinstance(output, Translation)
    assert "".join(map(str, pieces)) == output.text == spell(expected)


def test_options_use_the_target_tokenizer(translator: Translator, codec: TranslationTokenizer, expected: list[int]) -> None:
    prefix, unwanted = spell(list(finish(codec.encode_prefix_steps(["Die Frau"], 64))[0])), spell(expected[2:4])
    [output] = translator.translate([SOURCE], DecodingOptions(target_prefix=(prefix,)))
    assert output.text.startswith(f"{prefix} w")
    [output] = translator.translate([SOURCE], DecodingOptions(suppress_sequences=(unwanted,)))
    assert unwanted not in output.text


def test_scored_translations_use_the_target_tokenizer(translator: Translator, expected: list[int]) -> None:
    good, bad = translator.score([(SOURCE, spell(expected)), (SOURCE, spell(expected[::-1]))])
    assert len(good.token_log_probabilities) == len(expected) + 1
    assert good.log_probability > -0.1 > -5 > bad.log_probability


def test_byte_tokens_come_from_the_target_tokenizer(tmp_path: Path) -> None:
    """Streams wait for what follows single bytes of the target's side."""
    bytes_of_target = {"<unk>": 0, "a": 1, "<0xC3>": 2}
    for name, pieces in (("source.json", {"<unk>": 0, "a": 1, "b": 2}), ("target.json", bytes_of_target)):
        Tokenizer(models.WordLevel(pieces, unk_token="<unk>")).save(str(tmp_path / name))
    codec = TranslationTokenizer(tmp_path / "source.json", 9, 9, tmp_path / "target.json")
    assert codec.decode_stable([1, 2]) == "a"


def test_a_text_without_tokens_is_rejected_where_sources_have_no_end(tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    tokenizer.normalizer = normalizers.Replace("\u200b", "")
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    bare = TranslationTokenizer(tmp_path / "tokenizer.json", 8)
    assert bare.encode(["b", "\u200ba"]) == [[1], [0]]
    for framing in (BARE, Framing(forced=(1,))):
        with pytest.raises(InvalidInputError, match=r"^contents\[1\]: the text has no tokens"):
            finish(bare.encode_source_steps(["b", "\u200b"], framing))
