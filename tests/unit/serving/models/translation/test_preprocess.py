"""Requests become rows."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from triptych.decoding import DecodingOptions, SplitSentences
from triptych_serving.bundle.manifest import TranslationManifest
from triptych_serving.errors import InvalidInputError, OverloadedError
from triptych_serving.models.translation.preprocess import MAX_CHARACTERS, PreparedRequest, Preprocessor
from triptych_serving.scheduling.admission import QueueLimits
from triptych_serving.text.translation_tokenizer import TranslationTokenizer
from triptych_text.steps import finish

from .....fixtures.toy import SOURCE, SOURCES, TARGET

DEFAULTS, OFF = DecodingOptions(), DecodingOptions(split_sentences=SplitSentences.OFF)
LONG = " ".join("1" * 40)  # more tokens than the toy takes


@pytest.fixture(scope="module")
def preparer(codec: TranslationTokenizer, manifest: TranslationManifest) -> Preprocessor:
    return Preprocessor(codec, manifest, slots=8, limits=QueueLimits())


def prepare(preparer: Preprocessor, texts: Sequence[str], options: DecodingOptions, language: str = "") -> PreparedRequest:
    return finish(preparer.prepare_steps(texts, options, language))


def test_every_sentence_is_a_row(preparer: Preprocessor, codec: TranslationTokenizer) -> None:
    prepared = prepare(preparer, [f"{SOURCES[0]} {SOURCES[1]}", SOURCES[2]], DEFAULTS)
    assert [len(text.rows) for text in prepared.texts] == [2, 1]
    assert [row.source for text in prepared.texts for row in text.rows] == codec.encode(SOURCES[:3])
    # In the queue the first sentences of all texts come first.
    assert [row.source for row in prepared.rows] == codec.encode([SOURCES[0], SOURCES[2], SOURCES[1]])


def test_a_text_of_one_sentence_is_the_same_row_either_way(preparer: Preprocessor) -> None:
    for source in SOURCES:
        [split], [whole] = (prepare(preparer, [source], options).rows for options in (DEFAULTS, OFF))
        assert split.source == whole.source


def test_a_paragraph_may_be_longer_than_a_sentence(preparer: Preprocessor) -> None:
    text = "\n".join(SOURCES * 4)
    assert len(prepare(preparer, [text], DEFAULTS).rows) == len(SOURCES) * 4
    with pytest.raises(InvalidInputError, match=r"^contents\[0\]: 53,055 characters are too long"):
        prepare(preparer, [text], OFF)


def test_what_never_fits_is_rejected_before_what_does_not_fit_now(
    codec: TranslationTokenizer, manifest: TranslationManifest
) -> None:
    def admit(_: object) -> None:
        raise OverloadedError("the queue is full", 1.0)

    preparer = Preprocessor(codec, manifest, slots=8, limits=QueueLimits(waiting_rows=5, request_characters=50))
    for texts, fault in ((["a"] * 6, "at least 6 rows in one request"), (["a" * 51], "51 characters in one request")):
        with pytest.raises(InvalidInputError, match=fault):
            finish(preparer.prepare_steps(texts, DEFAULTS, admit=admit))
    with pytest.raises(OverloadedError):
        finish(preparer.prepare_steps(["a"], DEFAULTS, admit=admit))


@pytest.mark.parametrize(("text", "fault"), [("", "empty"), (" \n", "empty"), ("a \udcff b", "not Unicode")])
@pytest.mark.parametrize("options", [DEFAULTS, OFF], ids=["auto", "off"])
def test_an_unreadable_text_is_rejected_with_its_index(
    preparer: Preprocessor, text: str, fault: str, options: DecodingOptions
) -> None:
    with pytest.raises(InvalidInputError, match=rf"^contents\[1\]: the text is {fault}"):
        prepare(preparer, [SOURCE, text], options)


def test_a_text_that_is_too_long_is_rejected(preparer: Preprocessor) -> None:
    message = r"^contents\[1\]: 81 tokens are too long for one sentence, the model takes at most 64 tokens; it begins '1 1 "
    with pytest.raises(InvalidInputError, match=message):
        prepare(preparer, [SOURCE, f"{SOURCE} {SOURCE}\n{LONG}\n{SOURCE}"], DEFAULTS)
    with pytest.raises(InvalidInputError, match=r"^contents\[0\]: 1,000,001 characters are too long, at most 1,000,000"):
        prepare(preparer, ["a" * (MAX_CHARACTERS + 1)], DEFAULTS)


def test_a_prefix_begins_the_first_sentence(preparer: Preprocessor, codec: TranslationTokenizer) -> None:
    options = DecodingOptions(target_prefix=("Der", ""))
    prepared = prepare(preparer, [f"{SOURCE} {SOURCE}", SOURCE], options)
    assert [row.prefix for row in prepared.rows] == [finish(codec.encode_prefix_steps(["Der"], 64))[0], (), ()]
    with pytest.raises(InvalidInputError, match=r"^options\.target_prefix\[0\]: 14 tokens are too long"):
        prepare(preparer, [SOURCE], DecodingOptions(target_prefix=(TARGET,), max_length=14))


def test_bullets_are_no_words_of_a_sentence_without_a_prefix(preparer: Preprocessor, codec: TranslationTokenizer) -> None:
    text = f"- {SOURCES[0]}\n- {SOURCES[1]}"
    for prefix, first in (("", SOURCES[0]), ("- D", f"- {SOURCES[0]}")):
        [prepared] = prepare(preparer, [text], DecodingOptions(target_prefix=(prefix,))).texts
        assert [row.source for row in prepared.rows] == codec.encode([first, SOURCES[1]])
        assert prepared.sentences.join(prepared.sentences.texts) == text


@pytest.mark.parametrize("languages", [("en", "de"), ("und",)])
def test_sentences_are_split_by_the_requested_language(
    codec: TranslationTokenizer, manifest: TranslationManifest, languages: tuple[str, ...]
) -> None:
    preparer = Preprocessor(codec, replace(manifest, source_languages=languages), slots=8, limits=QueueLimits())
    text = "Er kam am 3. Mai. Gut."
    assert [len(prepare(preparer, [text], DEFAULTS, code).rows) for code in ("en", "deu_Latn")] == [3, 2]


def test_a_model_may_disable_splitting(codec: TranslationTokenizer, manifest: TranslationManifest) -> None:
    text = f"{SOURCES[0]} {SOURCES[1]}"
    languages = ("und",)
    whole = replace(manifest, splits=False, source_languages=languages, target_languages=languages)
    preparer = Preprocessor(codec, whole, slots=8, limits=QueueLimits())
    assert len(prepare(preparer, [text], DEFAULTS).rows) == 1
    assert len(prepare(preparer, [text], DecodingOptions(beam_size=2)).rows) == 1
    assert len(prepare(preparer, [text], DecodingOptions(split_sentences=SplitSentences.AUTO)).rows) == 2


def test_a_huge_alignment_is_rejected(preparer: Preprocessor) -> None:
    options = DecodingOptions(return_alignment=True)
    prepare(preparer, [" ".join(SOURCES[:50])], options)
    with pytest.raises(InvalidInputError, match=r"^options\.return_alignment: the 384 sentences of contents\[1\] may need"):
        prepare(preparer, [SOURCE, " ".join(SOURCES)], options)


def test_options_may_be_lists(preparer: Preprocessor) -> None:
    lists = DecodingOptions(target_prefix=[], suppress_sequences=[])
    [row], [plain] = (prepare(preparer, [SOURCE], options).rows for options in (lists, DEFAULTS))
    assert row.search == plain.search


def test_memoized_options_do_not_leak(preparer: Preprocessor) -> None:
    for _ in range(2):
        for size in (1, 2):
            options = DecodingOptions(beam_size=size, max_length=size + 3)
            [first, second] = prepare(preparer, SOURCES[:2], options).rows
            assert first.search.beam_size == second.search.beam_size == size
            assert first.max_tokens == size + 3
            assert first.source != second.source
    with pytest.raises(InvalidInputError, match="beam_size"):
        prepare(preparer, [SOURCE], DecodingOptions(beam_size=9))


def test_samples_without_a_seed_differ(preparer: Preprocessor) -> None:
    options = DecodingOptions(sampling_topk=3)
    [first], [second] = (prepare(preparer, [SOURCE], options).rows for _ in range(2))
    assert first.search.seed != second.search.seed
