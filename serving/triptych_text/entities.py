"""Entities in the labels of a text's words or tokens: BIO, IOBES (BIOES), BILOU, BMES or plain names."""

from collections.abc import Iterable, Iterator, Sequence

OUTSIDE = "O"
SINGLE = ("S", "U", "W")  # prefixes of entities of one word


def entity_prefixes(labels: Iterable[str]) -> str:
    """Return the letters that mean a position in an entity, as B does in B-PER; none if `labels` has neither B- nor I-."""
    return "BIELMSUW" if any(label[:2] in ("B-", "I-") for label in labels) else ""


def find_entities(labels: Sequence[str], prefixes: str, inner: Sequence[bool] = ()) -> Iterator[tuple[str, int, int]]:
    """Find name, first and last position of each entity.

    Args:
        labels: one for each position.
        prefixes: of the model's labels, see `entity_prefixes`.
        inner: which positions continue a word, so that only B- can begin another entity of the same name there.
    """
    start, name, ended = 0, "", False
    for position, label in enumerate([*labels, OUTSIDE]):
        prefix, kind = (label[0], label[2:]) if label[1:2] == "-" and label[0] in prefixes else ("", label)
        within = position < len(inner) and inner[position]
        begins = prefix == "B" or (not within and (ended or prefix in SINGLE))
        if name and (label == OUTSIDE or kind != name or begins):
            yield name, start, position - 1
            name = ""
        if label != OUTSIDE and not name:
            start, name = position, kind
        ended = prefix in (*SINGLE, "E", "L") or (ended and within)
