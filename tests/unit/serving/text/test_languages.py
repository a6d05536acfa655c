"""Codes that mean the same, and codes that mean nothing."""

import pytest
from langcodes import Language, language_distance

from triptych_serving.errors import InvalidInputError
from triptych_serving.text import languages
from triptych_serving.text.languages import choose_language, describe_side, find_language
from triptych_text import languages as text_languages
from triptych_text.languages import is_language, standard_tag

FIELD = "target_language_code"


NLLB = [
    *("ace_Arab", "ace_Latn", "arb_Arab", "arb_Latn", "azb_Arab", "azj_Latn", "ckb_Arab", "deu_Latn", "ekk_Latn", "eng_Latn"),
    *("kmr_Latn", "lvs_Latn", "nno_Latn", "nob_Latn", "pes_Arab", "prs_Arab", "swh_Latn", "tgl_Latn", "yue_Hant"),
    *("zho_Hans", "zho_Hant", "zsm_Latn"),
]


MATCHES: list[tuple[str, list[str], str | None]] = [
    *[(code, ["en", "de"], "de") for code in ("de", "DE", "de-DE", "de_AT", "deu", "ger", "deu_Latn", "de-Latn-CH")],
    *[(code, ["zh-Hans", "zh-Hant"], found) for code, found in (("zho_Hant", "zh-Hant"), ("zh", "zh-Hans"))],
    *[(code, ["und"], "und") for code in ("de", "deu_Latn", "und")],
    ("de", ["und", "de"], "de"),
    ("es", ["es_AR", "es"], "es"),
    ("es-MX", ["es_AR", "es"], "es"),
    ("es-AR", ["es", "es_AR"], "es_AR"),
    ("pt", ["pt_PT", "pt_BR"], "pt_BR"),
    ("en", ["de_DE", "en_XX"], "en_XX"),
    ("zh-TW", ["zh_CN"], "zh_CN"),
    ("nb", ["no"], "no"),
    ("zh-Hans", ["zh-Hant"], None),
    ("zh", ["yue"], None),
]
MACROLANGUAGES = "no:nob_Latn nn:nno_Latn ar:arb_Arab ar-Latn:arb_Latn ace:ace_Latn fa:pes_Arab fa-AF:prs_Arab az:azj_Latn"
MACROLANGUAGES += " ku:kmr_Latn et:ekk_Latn lv:lvs_Latn ms:zsm_Latn sw:swh_Latn tl:tgl_Latn de_DE:deu_Latn en_XX:eng_Latn"
MACROLANGUAGES += " zh:zho_Hans cmn:zho_Hans zh-TW:zho_Hant zh_Hant:zho_Hant yue:yue_Hant"
MATCHES += [("bs", NLLB, None), *[(code, NLLB, found) for code, found in (pair.split(":") for pair in MACROLANGUAGES.split())]]


@pytest.mark.parametrize(("code", "offered", "found"), MATCHES)
def test_codes_are_matched_with_the_offered_languages(code: str, offered: list[str], found: str | None) -> None:
    assert find_language(code, offered, FIELD) == found


def test_lookups_are_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    offered = tuple(f"{first}{second}-Latn" for first in "abcdefghij" for second in "klmnopqrst")
    assert choose_language("ck-latn", offered, FIELD) == "ck-Latn"
    monkeypatch.setattr(languages, "_rank", None)  # whoever looks again fails
    monkeypatch.setattr(languages, "Language", None)
    for _ in range(3):
        assert choose_language("ck-latn", offered, FIELD) == "ck-Latn"


def test_long_lists_of_languages_are_shortened() -> None:
    offered = [f"{first}{second}" for first in "abcdefghij" for second in "klmnopqrst"]
    with pytest.raises(InvalidInputError) as missing:
        choose_language("", offered, FIELD)
    assert missing.value.field == FIELD
    assert missing.value.problem == "the model has several, name one of: ak, al, am, an, ao, ap, aq, ar, ... (100 in all)"
    with pytest.raises(InvalidInputError, match=r"'fr' is none of the model's: en, de$"):
        choose_language("fr", ["en", "de"], FIELD)
    assert [choose_language("", [only], FIELD) for only in ("en", "und")] == ["en", "und"]
    assert describe_side(offered) == "100 languages"
    assert (describe_side(["en", "de"]), describe_side(["und"])) == ("en/de", "any language")


MALFORMED = ["german", "d", "1", " ", "de ", "de\n", "de--DE", "*", "deutsch-land", "de;q=1", "日本語", "x"]
MALFORMED += ["__de__", "de" + "-a1" * 60]


@pytest.mark.parametrize("code", MALFORMED)
def test_a_malformed_code_is_rejected_with_its_field(code: str) -> None:
    with pytest.raises(InvalidInputError, match=f"^{FIELD}: .* is not a language code"):
        find_language(code, ["de"], FIELD)
    assert not is_language(code)


def test_caches_keep_no_malformed_code_and_a_bounded_number_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_language("x" * 1_000_000)
    assert not is_language("de\0")
    caches = [Language._PARSE_CACHE, Language._INSTANCES, language_distance._DISTANCE_CACHE]
    monkeypatch.setattr(text_languages, "CACHED", max(map(len, caches)) // 4)  # full
    sizes = [*map(len, caches), text_languages._parse.cache_info().maxsize]
    for number in range(100):
        assert find_language(f"de-x-{number}abc", ["en", "de"], FIELD) == "de"
        assert find_language(f"q{chr(97 + number % 26)}{chr(97 + number // 26)}", ["en", "de"], FIELD) is None
    assert not any("x" * 101 in str(key) for cache in caches for key in cache)
    assert all(len(cache) <= max(sizes[:3]) + 4 for cache in caches)


TAGS = {"deu_Latn": "de", "de-DE": "de-DE", "pt_BR": "pt-BR", "zho_Hant": "zh-Hant", "en_XX": "en", "und": "", "": ""}


@pytest.mark.parametrize("code", TAGS)
def test_tags_for_documents(code: str) -> None:
    assert standard_tag(code) == TAGS[code]
