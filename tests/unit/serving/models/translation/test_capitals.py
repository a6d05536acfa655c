"""Sentences in capitals, for a model that gets them in lower case."""

import sys
from collections.abc import Iterator

import pytest

from triptych.decoding import DecodingOptions
from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.decoding.engine import EngineOptions
from triptych_serving.models.decode_model import DecodeModelOptions
from triptych_serving.models.translation.postprocess import Translation
from triptych_serving.models.translation.translator import Translator
from triptych_serving.text.capitals import in_capitals, is_sentence_in_capitals, lower_capitals, raise_capitals

from .....fixtures.toy import PAIRS, copy_bundle

KNOWN = [(source, target) for source, target in PAIRS if source.capitalize() == source and sum(map(str.isalpha, source)) > 4]
(ONE, ONE_TARGET), (TWO, TWO_TARGET) = KNOWN[:2]


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Translator]:
    folder = copy_bundle(tmp_path_factory.mktemp("capitals"), lowers_capitals=True)
    translator = Translator("toy", 1, open_bundle(folder), DecodeModelOptions("fp32", EngineOptions(workers=1, slots=4)))
    yield translator
    translator.close()


def best(translator: Translator, text: str, **options: object) -> str:
    return translator.translate([text], DecodingOptions(**options))[0].text  # type: ignore[arg-type]


def test_each_sentence_is_written_as_its_source(translator: Translator) -> None:
    assert (
        best(translator, f"{ONE.upper()}\n{TWO}\n{TWO.upper()}") == f"{ONE_TARGET.upper()}\n{TWO_TARGET}\n{TWO_TARGET.upper()}"
    )
    *pieces, output = translator.stream(f"{ONE.upper()}\n{TWO}")
    assert isinstance(output, Translation)
    assert "".join(map(str, pieces)) == output.text == f"{ONE_TARGET.upper()}\n{TWO_TARGET}"


def test_prefixes_are_in_capitals_too_or_nothing_is(translator: Translator) -> None:
    word = ONE_TARGET.split()[0]
    assert best(translator, ONE.upper(), target_prefix=(word.upper(),)) == ONE_TARGET.upper()
    assert best(translator, ONE.upper(), target_prefix=(" ",)) == ONE_TARGET.upper()
    assert best(translator, ONE.upper(), target_prefix=(word,)).startswith(word)


def test_placeholders_stay_as_they_are(translator: Translator) -> None:
    source = f"{ONE.upper().rstrip('.')} {{userName}}."
    text = best(translator, source)
    assert text.replace("{userName}", "").isupper() or text.isupper()
    *pieces, output = translator.stream(source)
    assert isinstance(output, Translation)
    assert "".join(map(str, pieces)) == output.text == text


def test_alignments_relate_the_texts_as_written(translator: Translator) -> None:
    [plain, loud] = translator.translate([ONE, ONE.upper()], DecodingOptions(return_alignment=True))
    assert loud.source_spans == plain.source_spans
    for one, other in zip(plain.hypotheses[0].spans, loud.hypotheses[0].spans, strict=True):
        assert loud.text[slice(*other)] == plain.text[slice(*one)].upper()


@pytest.mark.parametrize("text", ["CLOSE THE DOOR.", "WARNING!", "HOW ARE YOU?", "3 APPLES", "ÖFFNEN SIE DIE STRASSE"])
def test_sentences_in_capitals(text: str) -> None:
    assert is_sentence_in_capitals(text)


@pytest.mark.parametrize(
    "text", ["NATO", "USB-C", "MAX_SIZE", "HTTPS://A.ORG", "Stop it now", "PRESS Enter", "", "123 456 789", "你好世界你好"]
)
def test_acronyms_codes_and_others(text: str) -> None:
    assert not is_sentence_in_capitals(text)


def test_spans_fit_because_lowering_keeps_the_length() -> None:
    letters = [chr(code) for code in range(sys.maxunicode + 1) if in_capitals(chr(code))]
    assert len(letters) > 1500
    for letter in letters:
        text = f"A{letter}A"
        assert not in_capitals(text) or len(lower_capitals(text)) == len(text)


@pytest.mark.parametrize(
    ("source", "lowered"),
    [
        ("HELLO {userName}, YOU HAVE %d OF %(total)s", "Hello {userName}, you have %d of %(total)s"),
        ("PRESS <b>ENTER</b> OR ${key}\\n", "Press <b>enter</b> or ${key}\\n"),
        ("%s IS 50 % OFF, 50%OFF, A < B AND C > D", "%s is 50 % off, 50%off, a < b and c > d"),
    ],
)
def test_sentences_with_placeholders(source: str, lowered: str) -> None:
    assert is_sentence_in_capitals(source)
    assert lower_capitals(source) == lowered
    assert raise_capitals(lowered, lowered) == source
