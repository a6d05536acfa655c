"""Entities in the labels of words and of tokens."""

import pytest

from triptych_text.entities import entity_prefixes, find_entities


@pytest.mark.parametrize(
    ("labels", "entities"),
    [
        ("O O", []),
        ("B-A I-A O B-A", [("A", 0, 1), ("A", 3, 3)]),
        ("B-A B-A", [("A", 0, 0), ("A", 1, 1)]),
        ("B-A I-B I-B", [("A", 0, 0), ("B", 1, 2)]),
        ("O I-A I-A", [("A", 1, 2)]),
        ("A A O B", [("A", 0, 1), ("B", 3, 3)]),
        ("B-A E-A S-A I-A B-B I-B E-B E-B", [("A", 0, 1), ("A", 2, 2), ("A", 3, 3), ("B", 4, 6), ("B", 7, 7)]),
        ("U-A B-A L-A X-A", [("A", 0, 0), ("A", 1, 2), ("X-A", 3, 3)]),
        ("B-A M-A E-A S-A W-A", [("A", 0, 2), ("A", 3, 3), ("A", 4, 4)]),
        ("", []),
        ("S-Bahn E-mail E-mail O", [("S-Bahn", 0, 0), ("E-mail", 1, 2)]),  # no prefixes: nothing begins with B- or I-
    ],
)
def test_entities_of_labels(labels: str, entities: list[tuple[str, int, int]]) -> None:
    found = find_entities(labels.split(), entity_prefixes(labels.split()))
    assert list(found) == entities


def test_tokens_inside_a_word_continue_its_entity() -> None:
    labels = ["S-A", "S-A", "I-A", "S-A", "B-A", "E-A", "E-A", "B-A"]
    inner = [False, True, True, False, False, False, True, True]
    assert list(find_entities(labels, "BIELSU", inner)) == [("A", 0, 2), ("A", 3, 3), ("A", 4, 6), ("A", 7, 7)]
