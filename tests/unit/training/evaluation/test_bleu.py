"""The literature's BLEU: what the rules of Moses make of a text, written down."""

import pytest
import sacrebleu

from triptych_training.evaluation.bleu import LANGUAGES, Tokenizer, cased_score, literature_score, normalise, prepare

# Of captions and everyday sentences; each is what sacremoses 0.2.0, a port of the scripts, writes too.
PREPARED = [
    ("en", "A man's dog, 3,000 km away...", "a man 's dog , 3,000 km away ..."),
    ("en", "Dogs' owners don't say “no”.", "dogs ' owners don 't say \" no . \""),
    ("en", "The 1990's (vs. today): 5 % more!", "the 1990 's ( vs. today ) : 5 % more !"),
    ("en", "Two-year-old in the U.S. of A.", "two-year-old in the u.s. of a ."),
    ("en", "It is so-called e.g. Fido.", "it is so-called e.g. fido ."),
    ("de", "Ein Mann, der „nein“ sagt.", 'ein mann , der " nein " sagt .'),
    ("de", "Das war's: Hausnummer 16.", "das war ' s : hausnummer 16."),
    ("de", "Es kostet 3,50 € usw. und mehr …", "es kostet 3,50 € usw. und mehr ..."),
    ("fr", "L'homme d’en face dit « non ».", "l' homme d' en face dit \" non \" ."),
    ("fr", "Aujourd'hui, qu'est-ce que c'est ?", "aujourd' hui , qu' est-ce que c' est ?"),
]


@pytest.mark.parametrize(("language", "text", "expected"), PREPARED)
def test_texts_are_prepared_as_the_scripts_do(language: str, text: str, expected: str) -> None:
    assert prepare([text], language) == [expected]


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_is_prepared_stays_so(language: str) -> None:
    """Tokens are not cut again, but for what stands at a sentence's end."""
    text = 'a b , " c " - ( d ) e-f ; 3,000 : ...'
    assert Tokenizer(language)(text) == text


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_character_is_lost(language: str) -> None:
    text = "Ωmega_ß@example.com 50% «x» a.b.c... d'e'f, 1,2 , 3. Ende."
    plain = normalise(text, language)
    assert "".join(Tokenizer(language)(plain).split()) == "".join(plain.split())


def test_a_language_without_rules_is_refused() -> None:
    with pytest.raises(ValueError, match="language: 'ja' has no rules; there are those of en, fr, de"):
        prepare(["x"], "ja")


OUTPUTS = ["Ein Mann fährt Rad.", "Zwei Hunde spielen im „Schnee“ ."]
REFERENCES = ["ein Mann fährt Rad.", 'Zwei Hunde spielen im "Schnee".']


def test_case_and_punctuation_count_in_one_convention_only() -> None:
    cased, literature = cased_score(OUTPUTS, REFERENCES), literature_score(OUTPUTS, REFERENCES, "de-DE")
    assert cased.bleu == pytest.approx(sacrebleu.corpus_bleu(OUTPUTS, [REFERENCES]).score)
    assert cased.bleu < 90
    assert literature is not None
    assert literature.bleu == pytest.approx(100)
    assert "tok:13a" in cased.signature
    assert literature.signature.endswith("text:lower-cased, normalised, tokenised (de)")
    assert "tok:none" in literature.signature


def test_there_is_no_literature_on_languages_without_rules() -> None:
    assert literature_score(OUTPUTS, REFERENCES, "ja") is None
