"""Framed sentences of language pairs."""

from collections.abc import Mapping

import pytest
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

from triptych_export.parity.sentences import LONGEST, SHORTEST, FramedPair, draw_sentences
from triptych_export.translation_source import TranslationSource
from triptych_serving.bundle.manifest import SourceFrame, TargetFrame
from triptych_training.models.transformer import Transformer, TransformerConfig

PAD, START, END = 0, 1, 2
SPECIAL = ("<pad>", "<s>", "</s>", "<en>", "<de>", "<fr>")
WORDS = 30


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    words = (*SPECIAL, *(f"word{index}" for index in range(WORDS)))
    tokenizer = Tokenizer(WordLevel({word: index for index, word in enumerate(words)}, unk_token="<pad>"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
    tokenizer.post_processor = TemplateProcessing(single="$A </s>", special_tokens=[("</s>", END)])
    return tokenizer


def make(
    tokenizer: Tokenizer, sources: Mapping[str, SourceFrame], targets: Mapping[str, TargetFrame], max_source: int = 64
) -> TranslationSource:
    shape = TransformerConfig(64, 8, 1, 8, 1, 1, pad_id=PAD, bos_id=START, eos_id=END)
    return TranslationSource(Transformer(shape), tokenizer, sources, targets, max_source, 64)


def test_frames_are_put_around_a_text_and_its_end(tokenizer: Tokenizer) -> None:
    source = make(
        tokenizer,
        {"en": SourceFrame((3,), (4,))},
        {"de": TargetFrame("word9 ", (5,), (4,))},
    )
    [ids] = FramedPair.first(source).encode(tokenizer, ["word0 word1"])
    assert ids == [5, 3, 15, 6, 7, END, 4]


def test_random_sentences_are_framed_and_of_many_lengths(tokenizer: Tokenizer) -> None:
    targets = {"de": TargetFrame(forced=(4,)), "fr": TargetFrame("word9 ", (5,))}
    sources, prefixes = draw_sentences(make(tokenizer, {"en": SourceFrame((3,))}, targets), 100)
    german = [ids for ids, prefix in zip(sources, prefixes, strict=True) if prefix == (4,)]
    french = [ids for ids, prefix in zip(sources, prefixes, strict=True) if prefix == ()]
    assert len(german) == len(french) == 50
    assert all((ids[0], ids[-1]) == (3, END) for ids in german)
    assert all((ids[:3], ids[-1]) == ([5, 3, 15], END) for ids in french)
    assert {len(ids) - 2 for ids in german} > {SHORTEST, LONGEST}
    own = {token for ids in german for token in ids[1:-1]}
    assert own == set(range(len(SPECIAL), len(SPECIAL) + WORDS))
    assert draw_sentences(make(tokenizer, {"en": SourceFrame((3,))}, targets), 100) == (sources, prefixes)


def test_random_sentences_fit_the_model(tokenizer: Tokenizer) -> None:
    source = make(tokenizer, {"en": SourceFrame((3,))}, {"de": TargetFrame("word9 word8 ")}, max_source=7)
    sources, _ = draw_sentences(source, 50)
    assert {len(ids) for ids in sources} == {7}


def test_source_and_target_languages_differ_if_possible(tokenizer: Tokenizer) -> None:
    codes = {"en": 3, "de": 4, "fr": 5}
    sources = {code: SourceFrame((token,)) for code, token in codes.items()}
    targets = {code: TargetFrame(forced=(token,)) for code, token in codes.items()}
    drawn = list(zip(*draw_sentences(make(tokenizer, sources, targets), 60), strict=True))
    pairs = {(ids[0], *prefix) for ids, prefix in drawn}
    assert {pair for pair in pairs if pair[0] != pair[1]} == {(a, b) for a in (3, 4, 5) for b in (3, 4, 5) if a != b}
