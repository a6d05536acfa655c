"""Codes that mean the same, and codes that mean nothing."""

import pytest

from triptych_serving.errors import InvalidInputError
from triptych_serving.languages import find_language, is_language, primary_language

FIELD = "target_language_code"


@pytest.mark.parametrize("code", ["de", "DE", "de-DE", "de_AT", "deu", "ger", "deu_Latn", "de-Latn-CH"])
def test_german_has_many_names(code: str) -> None:
    assert find_language(code, ["en", "de"], FIELD) == "de"


@pytest.mark.parametrize("offered", ["de-DE", "deu_Latn", "ger"])
def test_models_too_may_use_any_of_them(offered: str) -> None:
    assert find_language("de", [offered], FIELD) == offered


@pytest.mark.parametrize("code", ["nl", "fr-DE", "und", "xx", "x-german", "de-Cyrl"])
def test_another_language_is_not_found(code: str) -> None:
    assert find_language(code, ["de-Latn"], FIELD) is None


def test_scripts_count_where_both_sides_name_one() -> None:
    offered = ["zh-Hans", "zh-Hant"]
    assert find_language("zho_Hant", offered, FIELD) == "zh-Hant"
    assert find_language("zh", offered, FIELD) == "zh-Hans"


MALFORMED = ["german", "d", "1", " ", "de ", "de\n", "de--DE", "*", "deutsch-land", "de;q=1", "日本語", "x"]


@pytest.mark.parametrize("code", MALFORMED)
def test_a_malformed_code_is_refused_with_its_field(code: str) -> None:
    with pytest.raises(InvalidInputError, match="is not a language code") as error:
        find_language(code, ["de"], FIELD)
    assert error.value.field == FIELD
    assert not is_language(code)


@pytest.mark.parametrize(
    ("code", "language"), [("en", "en"), ("de-DE", "de"), ("deu_Latn", "de"), ("zh-Hans", "zh"), ("x", "und")]
)
def test_the_language_alone(code: str, language: str) -> None:
    assert primary_language(code) == language
