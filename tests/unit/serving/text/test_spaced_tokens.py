"""Tokenizers whose tokens carry the space before their word: SentencePiece's and RoBERTa's kind."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.errors import InvalidInputError
from triptych_serving.models.text.task import continued
from triptych_serving.models.text.tasks import FILL_MASK_TASK, QUESTION_ANSWERING_TASK, TOKEN_CLASSIFICATION_TASK
from triptych_serving.models.text.text_model import TextModel
from triptych_serving.text.tokenizers import KeptEncoding

from ....fixtures.encoders import CLS, MASK, SEP, SPECIALS, VOCABULARY, sign, write_text_bundle
from ..encoders import OPTIONS

WORDS = [word.removeprefix("##") if word.startswith("##") else f" {word}" for word in VOCABULARY[len(SPECIALS) :]]


def unigram(last: str = "▁?") -> Tokenizer:
    """U+2581 for the space; `last` stands in for the question mark."""
    words = [word.replace(" ", "▁").replace("▁?", last) for word in WORDS]
    pieces = [(token, 0.0) for token in SPECIALS] + [(word, -1.0) for word in words]
    made = Tokenizer(models.Unigram(pieces, unk_id=1))
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Metaspace()
    return made


def stripped() -> Tokenizer:
    """DeBERTa's: the text before a mask is stripped, although the mask does not say so."""
    made = unigram("▁")
    made.normalizer = normalizers.Strip(left=False)
    return made


def byte_level() -> Tokenizer:
    """U+0120 for the space."""
    vocabulary = {token: index for index, token in enumerate([*SPECIALS, *(word.replace(" ", "Ġ") for word in WORDS)])}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.ByteLevel(add_prefix_space=False), pre_tokenizers.Punctuation("isolated")]
    )
    made.decoder = decoders.ByteLevel()
    return made


@contextmanager
def load(repository: Path, tokenizer: Tokenizer, task: str = "fill-mask") -> Iterator[TextModel]:
    mask = AddedToken("[MASK]", lstrip=tokenizer.normalizer is None, normalized=False)
    tokenizer.add_special_tokens([*SPECIALS[:MASK], mask])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", CLS), ("[SEP]", SEP)]
    )
    folder = write_text_bundle(repository, task)
    tokenizer.save(str(folder / "tokenizer.json"))
    sign(folder)
    model = TextModel("spaced", 1, open_bundle(folder), OPTIONS)
    try:
        yield model
    finally:
        model.close(drain=False)


@pytest.mark.parametrize(("make", "space"), [(unigram, ""), (stripped, ""), (byte_level, " ")])
def test_a_mask_replaces_the_space_before_it(repository: Path, make: Callable[[], Tokenizer], space: str) -> None:
    with load(repository, make()) as model:
        for text, options, token, sequence in (
            (" two [MASK] seven", {"top_k": 1}, f"{space}three", " two three seven"),
            (" two[MASK] seven", {"top_k": 1}, f"{space}three", " two three seven"),
            (" two  \n[MASK].", {"top_k": 1}, f"{space}three", " two three."),
            ("[MASK] seven", {"targets": [" one"]}, f"{space}one", "one seven"),
            (" six [MASK]!", {"targets": ["teen"]}, "teen", " sixteen!"),
        ):
            [filled] = model.run(FILL_MASK_TASK, [text], **options)
            first = filled.masks[0].candidates[0]
            assert (first.token_str, first.sequence) == (token, sequence)


def test_a_target_may_lack_its_space(repository: Path) -> None:
    with load(repository, unigram()) as model:
        [filled] = model.run(FILL_MASK_TASK, [" two [MASK]"], targets=["three", " nine", "▁one"])
        assert [each.token_str for each in filled.masks[0].candidates] == ["three", "one", "nine"]
        with pytest.raises(InvalidInputError, match=r"targets\[0\]: 'berlin' is not in the model's vocabulary"):
            model.run(FILL_MASK_TASK, [" two [MASK]"], targets=["berlin"])
        with pytest.raises(InvalidInputError, match=r"targets\[1\]: 'twenty' is 2 tokens of the model"):
            model.run(FILL_MASK_TASK, [" two [MASK]"], targets=["two", "twenty"])


@pytest.mark.parametrize("make", [unigram, byte_level])
def test_entities_and_answers_have_no_space_around_them(repository: Path, make: Callable[[], Tokenizer]) -> None:
    with load(repository, make(), "token-classification") as model:
        [labelled] = model.run(TOKEN_CLASSIFICATION_TASK, [" anna smith lives in  paris"])
        found = [(entity.label, entity.text, entity.start) for entity in labelled.entities]
        assert found == [("PER", "anna smith", 1), ("LOC", "paris", 22)]
    with load(repository, make(), "question-answering") as model:
        [result] = model.run(QUESTION_ANSWERING_TASK, [(" where does anna smith lives", " anna smith lives in paris")])
        [answer] = result.answers
        assert (answer.text, answer.start, answer.end) == ("paris", 21, 26)


@pytest.mark.parametrize("by_space", [False, True])
def test_the_bytes_of_a_character_are_of_one_word(by_space: bool) -> None:
    tokenizer = Tokenizer(models.BPE({sign: index for index, sign in enumerate(pre_tokenizers.ByteLevel.alphabet())}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    text = "中文 öl"
    inner = continued(text, KeptEncoding(tokenizer.encode(text)), by_space)
    assert inner == [False, True, True, False, True, True, False, not by_space, True, True]
