"""Placeholders, tags and codes are conserved whatever a translator does."""

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from triptych_documents.unit import Unit

from . import translators
from .generated import assert_conserved, units
from .translators import EVERY, Translate, translated, wild

ANY = st.sampled_from((*EVERY, wild, wild, wild))
FEW = settings(max_examples=40, suppress_health_check=list(HealthCheck))
SOME = settings(FEW, max_examples=20)
MANY = settings(FEW, max_examples=5_000, derandomize=False)


def check(documents: list[Unit], translate: Translate) -> None:
    for unit, done in zip(documents, translated(documents, translate), strict=True):
        assert_conserved(unit, done.pieces)


@FEW
@pytest.mark.parametrize("crossing", [False, True])
@given(data=st.data(), translate=ANY)
def test_all_is_conserved(crossing: bool, data: st.DataObject, translate: Translate) -> None:
    check(data.draw(st.lists(units(crossing=crossing), max_size=3)), translate)


@pytest.mark.full
@MANY
@given(st.lists(st.one_of(units(), units(crossing=True)), min_size=1, max_size=3), ANY)
def test_all_is_conserved_in_5000_documents(documents: list[Unit], translate: Translate) -> None:
    check(documents, translate)


@SOME
@given(st.lists(units(), max_size=4))
def test_identity_keeps_the_pieces(documents: list[Unit]) -> None:
    for unit, done in zip(documents, translated(documents, translators.identity), strict=True):
        assert done.pieces == unit.pieces


@SOME
@given(st.lists(units(), max_size=4), st.randoms(use_true_random=False))
def test_the_order_of_answers_changes_nothing(documents: list[Unit], chance: random.Random) -> None:
    assert translated(documents, wild) == translated(documents, wild, shuffle=chance)
