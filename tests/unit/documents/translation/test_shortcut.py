"""Shortcut for simple units: the same results without segments."""

import random
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from triptych_documents.rules import Term, TranslationRules
from triptych_documents.sentences import SentencePair, SentenceRequest
from triptych_documents.translation import units as work
from triptych_documents.unit import Code, Role, Unit

from ..generated import WORDS
from ..translators import EVERY, Reply, Translate, swapping, translated, wild

SIGNS = ("", ".", "!", "? ", "。", "…", ",", " (", '." ', "  ", "\t", "\u00a0", "\u2028", "\u00ad", " 5", "{x}", ": ", "\x1c")
RULES = (
    TranslationRules(source_language="en"),
    TranslationRules(source_language="en", max_characters=30),
    TranslationRules(glossary=(Term("file", "Datei"),)),
)

texts = st.lists(st.sampled_from((*WORDS, *SIGNS)), min_size=1, max_size=6).map(" ".join)
texts |= st.lists(st.sampled_from((*WORDS, *SIGNS)), min_size=1, max_size=6).map("".join)
units = st.builds(lambda text, keeps: Unit((text,), "here", keeps_space=keeps), texts, st.booleans())


@settings(max_examples=50, suppress_health_check=list(HealthCheck))
@given(st.lists(units, max_size=4), st.sampled_from((*EVERY, wild)), st.sampled_from(RULES), st.randoms(use_true_random=False))
def test_the_shortcut_changes_no_result(
    units: Sequence[Unit], translate: Translate, rules: TranslationRules, chance: random.Random
) -> None:
    short = translated(units, translate, rules, chance)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(work.UnitTranslator, "_simple_text", lambda *_: None)  # it applies to no unit
        assert translated(units, translate, rules, chance) == short


def test_simple_units_use_the_shortcut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "read_segment", None)
    units = [Unit((text,), "here") for text in ("Open the file.", "Über uns", "Open the file.", "Café。", '"Really?"')]
    done = translated(units, swapping)
    assert [one.pieces for one in done] == [
        ("oPEN THE FILE.",),
        ("üBER UNS",),
        ("oPEN THE FILE.",),
        ("cAFé。",),
        ('"rEALLY?"',),
    ]
    assert done[0].pairs == (SentencePair("Open the file.", "oPEN THE FILE."),)


def test_simple_and_other_units_share_requests() -> None:
    units = [
        Unit(("One. Two.",), "a"),
        Unit(("Two.",), "b"),
        Unit((Code("<b>", Role.OPEN, 1), "One.", Code("</b>", Role.CLOSE, 1)), "c"),
    ]
    asked: list[str] = []

    def ask_once(request: SentenceRequest) -> Reply:
        asked.append(request.text)
        return swapping(request)

    done = translated(units, ask_once)
    assert [one.pieces[0] for one in done[:2]] == ["oNE. tWO.", "tWO."]
    assert sorted(asked) == ["One.", "Two."]
