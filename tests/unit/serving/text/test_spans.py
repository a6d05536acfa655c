"""Spans of tokens in texts."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triptych.decoding import DecodingOptions, SplitSentences
from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.bundle.manifest import BARE
from triptych_serving.decoding.engine import EngineOptions
from triptych_serving.models.decode_model import DecodeModelOptions
from triptych_serving.models.translation.translator import Translator
from triptych_serving.text.spans import Span, joined_spans, source_spans, target_spans
from triptych_serving.text.translation_tokenizer import TranslationTokenizer
from triptych_text.sentences import Splitter
from triptych_text.steps import finish

from ....fixtures.framed import copy_framed
from ....fixtures.toy import BUNDLE, SOURCES, TARGETS

ALIGNED = DecodingOptions(return_alignment=True)
CODEC = TranslationTokenizer(BUNDLE / "tokenizer.json", 512)
TEXT = f"  {SOURCES[0]}  {SOURCES[1]}\n\n{SOURCES[2]}\t"


def texts_at(spans: tuple[Span, ...], text: str) -> list[str]:
    return [text[start:end] for start, end in spans]


def spans_of(text: str) -> tuple[Span, ...]:
    [source] = finish(CODEC.encode_source_steps([text], BARE, spans=True))
    assert len(source.spans) == len(source)
    return source.spans


def test_offsets_are_code_points_and_of_the_text_without_its_frame() -> None:
    assert source_spans("a 🙂b", [(0, 3), (3, 4), (4, 6), (6, 7), (0, 0)], 3) == ((0, 0), (0, 1), (2, 3), (3, 4), (4, 4))
    text = "der  Mann sieht."
    spans = spans_of(text)
    assert "".join(texts_at(spans, text)) == "derMannsieht."
    assert spans[-1] == (len(text), len(text)), "the end of the sentence stands behind it"


@given(text=st.text(st.characters(codec="utf-8"), min_size=1, max_size=40).filter(str.strip))
def test_spans_of_tokens_cover_the_text(text: str) -> None:
    covered = {place for start, end in spans_of(text) for place in range(start, end)}
    assert {text[place] for place in set(range(len(text))) - covered if not text[place].isspace()} == set()
    tokens = CODEC.encode([text])[0][:-1]
    [spoken] = CODEC.decode([tokens])
    spans = target_spans(spoken, tokens, CODEC.decode)
    assert len(spans) == len(tokens)
    assert all(one[1] <= two[0] for one, two in pairwise(spans))
    assert "".join(texts_at(spans, spoken)) == "".join(spoken.split())


def test_spans_of_sentences_are_shifted_to_their_places() -> None:
    text = f"  {TARGETS[0]}\n\n{TARGETS[1]}\t"
    sentences = Splitter("de", lambda _: True).split(text)
    spans = joined_spans(sentences, sentences.texts, [[(0, 3)], [(0, 3), (4, 5)]])
    second = text.index(TARGETS[1])
    assert spans == ((2, 5), (second, second + 3), (second + 4, second + 5))


@pytest.fixture(scope="module", params=["plain", "framed"])
def translator(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Translator]:
    folder: Path = BUNDLE if request.param == "plain" else copy_framed(tmp_path_factory.mktemp("framed"))
    translator = Translator("toy", 1, open_bundle(folder), DecodeModelOptions("fp32", EngineOptions(workers=1, slots=4)))
    yield translator
    translator.close()


@pytest.mark.parametrize("split", [SplitSentences.AUTO, SplitSentences.OFF])
def test_spans_of_a_translated_text(translator: Translator, split: SplitSentences) -> None:
    text, languages = (
        (TEXT if split is SplitSentences.AUTO else SOURCES[0]),
        ("en", "it") if len(translator.manifest.target_languages) > 1 else ("", ""),
    )
    options = DecodingOptions(return_alignment=True, beam_size=2, num_hypotheses=2, split_sentences=split)
    [output] = translator.translate([text], options, *languages)
    assert len(output.source_spans) == output.source_token_count
    assert "".join(texts_at(output.source_spans, text)) == "".join(text.split())
    for hypothesis in output.hypotheses:
        assert len(hypothesis.spans) == hypothesis.token_count
        assert "".join(texts_at(hypothesis.spans, hypothesis.text)) == "".join(hypothesis.text.split())
