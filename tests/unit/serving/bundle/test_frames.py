"""A model whose languages put something around its texts: what it reads is framed, what it says is not."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from triptych.decoding import DecodingOptions, SplitSentences
from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.decoding.engine import EngineOptions
from triptych_serving.errors import InvalidInputError
from triptych_serving.models.decode_model import DecodeModelOptions
from triptych_serving.models.translation.scoring import ScoreRow
from triptych_serving.models.translation.translator import Translator
from triptych_serving.scheduling.engine import run_rows
from triptych_serving.scheduling.request import FrameTokens, Item, Row
from triptych_serving.text.translation_tokenizer import TranslationTokenizer
from triptych_text.steps import finish

from ....fixtures.framed import BEGINNING, INSTRUCTION, copy_framed, forced_ids
from ....fixtures.toy import BUNDLE, SOURCE, SOURCES, TARGETS

OPTIONS = DecodeModelOptions("fp32", EngineOptions(workers=1, slots=4))
FORCED = forced_ids()
SEARCHES = {
    "greedy": DecodingOptions(),
    "beams": DecodingOptions(beam_size=3, num_hypotheses=3, return_scores=True),
    "aligned": DecodingOptions(return_alignment=True),
    "constrained": DecodingOptions(repetition_penalty=1.2, suppress_sequences=("Mann",), return_scores=True),
}


@pytest.fixture(scope="module")
def framed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Translator]:
    bundle = open_bundle(copy_framed(tmp_path_factory.mktemp("framed")))
    with closing(Translator("framed", 1, bundle, OPTIONS)) as translator:
        yield translator


@pytest.fixture(scope="module")
def plain() -> Iterator[Translator]:
    with closing(Translator("toy", 1, open_bundle(BUNDLE), OPTIONS)) as translator:
        yield translator


def row_of(translator: Translator, text: str, source: str, target: str, **options: Any) -> Row:
    [row] = translator.prepare([text], DecodingOptions(split_sentences=SplitSentences.OFF, **options), source, target).rows
    return row


def test_a_source_gets_its_frame(framed: Translator, codec: TranslationTokenizer) -> None:
    [ids] = codec.encode([SOURCE])
    row = row_of(framed, SOURCE, "en", "fr")
    assert row.source == [30, 31, 20, *ids, 21, 22]
    assert (row.prefix, row.frame) == (FORCED, FrameTokens(3, 2, len(FORCED)))
    row = row_of(framed, SOURCE, "de", "de")
    assert (row.source, row.prefix, row.frame) == (ids, (), FrameTokens())
    row = row_of(framed, SOURCE, "deu_Latn", "it")  # an instruction, which is part of the text
    assert row.source == codec.encode([INSTRUCTION + SOURCE])[0]
    assert row.text_size == len(ids)


def test_every_sentence_has_the_frame(framed: Translator, codec: TranslationTokenizer) -> None:
    text = f"{SOURCES[0]} {SOURCES[1]}"
    for target, beginning in (("fra_Latn", [30, 31, 20]), ("ita_Latn", [20])):
        rows = framed.prepare([text], DecodingOptions(), "eng_Latn", target).rows
        assert [row.source[: len(beginning)] for row in rows] == [beginning] * 2
        assert [row.source[-3:] for row in rows] == [[2, 21, 22]] * 2
    rows = framed.prepare([text], DecodingOptions(target_prefix=("Der",)), "en", "nl").rows
    assert [row.prefix for row in rows] == [FORCED + finish(codec.encode_prefix_steps(["Der"], 64))[0], FORCED]


@pytest.mark.parametrize("name", SEARCHES)
def test_forced_tokens_are_hidden_from_callers(framed: Translator, plain: Translator, name: str) -> None:
    options = SEARCHES[name]
    expected = plain.translate(SOURCES[:3], replace(options, target_prefix=(BEGINNING,) * 3))
    found = framed.translate(SOURCES[:3], options, "de", "nl")
    for hidden, shown in zip(found, expected, strict=True):
        for one, other in zip(hidden.hypotheses, shown.hypotheses, strict=True):
            assert f"{BEGINNING} {one.text}" == other.text
            assert one.token_count == other.token_count - len(FORCED)
            assert (one.finish, one.score) == (other.finish, other.score)


def test_an_alignment_excludes_the_frame(framed: Translator, codec: TranslationTokenizer) -> None:
    text = f"{SOURCES[0]} {SOURCES[1]}"
    sources = [len(ids) for ids in codec.encode(SOURCES[:2])]
    for target in ("fra_Latn", "ita_Latn", "deu_Latn"):
        [output] = framed.translate([text], DecodingOptions(return_alignment=True), "eng_Latn", target)
        [hypothesis] = output.hypotheses
        assert hypothesis.alignment is not None
        assert hypothesis.alignment.shape == (hypothesis.token_count, sum(sources))
        assert output.source_token_count == sum(sources)
        np.testing.assert_allclose(hypothesis.alignment.sum(axis=1), 1, atol=1e-5)
        first = hypothesis.alignment[:, : sources[0]].sum(axis=1) > 0.5
        assert first[0]
        assert not first[-1]


def test_lengths_exclude_forced_tokens(framed: Translator) -> None:
    for options in (DecodingOptions(max_length=3), DecodingOptions(max_length=3, min_length=3, beam_size=2)):
        [output] = framed.translate([SOURCE], options, "de", "nl")
        assert output.hypotheses[0].token_count == 3
    with pytest.raises(InvalidInputError, match=r"target_prefix\[0\]: .* less than max_length, which is 2"):
        row_of(framed, SOURCE, "de", "nl", max_length=2, target_prefix=("Der Mann",))


LONG = " ".join("1" * 30)  # 61 tokens


def test_a_frame_reduces_the_maximum_length(framed: Translator, codec: TranslationTokenizer) -> None:
    assert len(codec.encode([LONG])[0]) == 61
    row_of(framed, LONG, "en", "de")
    lead = len(codec.encode([INSTRUCTION.rstrip()])[0]) - 1
    for target, room in (("fra_Latn", 64 - 5), ("ita_Latn", 64 - 3 - lead)):
        message = rf"contents\[0\]: 61 tokens are too long, the model takes at most {room} tokens; split"
        with pytest.raises(InvalidInputError, match=message):
            row_of(framed, LONG, "en", target)
        message = rf"contents\[0\]: 61 tokens are too long for one sentence, the model takes at most {room} tokens"
        with pytest.raises(InvalidInputError, match=message):
            framed.prepare([LONG], DecodingOptions(), "en", target)
        message = rf"pairs\[0\]\.source: 61 tokens are too long, the model takes at most {room} tokens"
        with pytest.raises(InvalidInputError, match=message):
            finish(framed.score_steps(None, [(LONG, TARGETS[0])], "en", target))
    room = 64 - len(FORCED)
    with pytest.raises(InvalidInputError, match=rf"pairs\[0\]\.target: 61 tokens .* at most {room} tokens"):
        finish(framed.score_steps(None, [(SOURCE, LONG)], "de", "nl"))


@pytest.mark.parametrize("target", ["deu_Latn", "nld_Latn", "fra_Latn", "ita_Latn"])
def test_scores_exclude_the_frame(framed: Translator, plain: Translator, codec: TranslationTokenizer, target: str) -> None:
    """The score of a framed pair equals that of a plain model given the frame as context."""
    pair = (SOURCES[5], TARGETS[6])
    [score] = framed.score([pair], "eng_Latn", target)
    [ids] = codec.encode(TARGETS[6:7])
    row = row_of(framed, SOURCES[5], "eng_Latn", target)
    whole = Item(ScoreRow(row.source, [*row.prefix, *ids]), row.size)
    run_rows(plain.scorer.engine, [whole])
    np.testing.assert_allclose(score.token_log_probabilities, whole.result[len(row.prefix) :], atol=1e-5)


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        (("", "de"), "source_language_code: languages are not detected; the model has several, name one of: eng_Latn, deu"),
        (("en", "es"), "target_language_code: 'es' is none of the model's: deu_Latn, nld_Latn, ita_Latn, fra_Latn"),
    ],
)
def test_an_unknown_code_names_its_field_and_the_choices(framed: Translator, pair: tuple[str, str], message: str) -> None:
    with pytest.raises(InvalidInputError, match=f"^{message}"):
        framed.prepare([SOURCE], DecodingOptions(), *pair)
    with pytest.raises(InvalidInputError, match=f"^{message}"):
        finish(framed.score_steps(None, [(SOURCE, TARGETS[0])], *pair))
