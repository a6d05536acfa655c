"""Cased BLEU and BLEU on Moses tokens."""

import pytest
import sacrebleu

from triptych_text.translation_scores import score_translations
from triptych_training.evaluation.bleu import LANGUAGES, literature_score, normalise, prepare, tokenise

# sacremoses 0.2.0, a port of the Moses scripts, gives the same results.
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
def test_preparation_follows_the_moses_scripts(language: str, text: str, expected: str) -> None:
    assert prepare([text], language) == [expected]


@pytest.mark.parametrize("language", LANGUAGES)
def test_tokenised_text_and_all_characters_are_kept(language: str) -> None:
    text = "Ωmega_ß@example.com 50% «x» a.b.c... d'e'f, 1,2 , 3. Ende."
    plain = normalise(text, language)
    assert "".join(tokenise(plain, language).split()) == "".join(plain.split())
    text = 'a b , " c " - ( d ) e-f ; 3,000 : ...'
    assert tokenise(text, language) == text


def test_a_language_without_rules_has_no_score() -> None:
    assert literature_score(OUTPUTS, REFERENCES, "ja") is None


OUTPUTS = ["Ein Mann fährt Rad.", "Zwei Hunde spielen im „Schnee“ ."]
REFERENCES = ["ein Mann fährt Rad.", 'Zwei Hunde spielen im "Schnee".']


def test_only_cased_bleu_counts_case_and_punctuation_spelling() -> None:
    cased, literature = score_translations(OUTPUTS, REFERENCES, "de-DE"), literature_score(OUTPUTS, REFERENCES, "de-DE")
    assert cased.bleu == pytest.approx(sacrebleu.corpus_bleu(OUTPUTS, [REFERENCES]).score)
    assert cased.bleu < 90
    assert literature is not None
    assert literature.bleu == pytest.approx(100)
    assert "tok:13a" in cased.signature
    assert literature.signature.endswith("text:lower-cased, normalised, tokenised (de)")
    assert "tok:none" in literature.signature


CHINESE = ["我昨天在图书馆看了一本很有意思的书。", "请问去火车站怎么走？"]
NEARLY = ["我昨天在图书馆看了一本很有意义的书。", "请问去火车站该怎么走？"]


@pytest.mark.parametrize(
    ("language", "tokenizer"), [("zh-CN", "zh"), ("zho_Hans", "zh"), ("ja", ("ja-mecab", "char")), ("th", "char"), ("", "char")]
)
def test_words_are_found_by_the_rules_of_the_language(language: str, tokenizer: str | tuple[str, ...]) -> None:
    scores = score_translations(NEARLY, CHINESE, language)
    assert scores.signature.split("tok:")[1].split("|")[0].startswith(tokenizer)
    assert 60 < scores.bleu < 95
    assert 60 < scores.chrf < 95
    assert score_translations(NEARLY, CHINESE, "de").bleu < 10
    assert "tok:13a" in score_translations(OUTPUTS, REFERENCES, "").signature


def test_missing_translations_count() -> None:
    assert score_translations([*REFERENCES, ""], [*REFERENCES, REFERENCES[0]], "de").bleu < 90
