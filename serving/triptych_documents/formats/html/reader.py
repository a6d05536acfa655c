"""HTML (Living Standard), whole pages and fragments, as people write it: unclosed, mis-nested, with templating in it.

Blocks are units, inline elements codes in them; attributes that people read are units of their own. Everything else stays as it
is written: scripts, code, comments, and what says translate="no".
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from triptych_documents.encoding import Encoding
from triptych_documents.findings import Finding
from triptych_documents.format import Document, ReadOptions
from triptych_documents.formats.html.text import DOUBLE_BRACE, NO_BRACE, TEMPLATE_BRACE, decoded
from triptych_documents.formats.html.tokens import templates
from triptych_documents.formats.html.units import Reading
from triptych_documents.formats.shared.limits import Bound
from triptych_documents.formats.shared.spans import Span, replaced
from triptych_documents.unit import Piece, Unit, joined


@dataclass(frozen=True, slots=True)
class _Html:
    """An HTML document that has been read."""

    reading: Reading
    encoding: Encoding
    language: str  # of its translation; nothing where nobody said
    findings: Sequence[Finding] = ()

    @property
    def units(self) -> Sequence[Unit]:
        return self.reading.units

    def render(self, translations: Mapping[int, Sequence[Piece]]) -> bytes:
        changed = [at for at, pieces in translations.items() if joined(pieces) != self.units[at].pieces]
        known = _templates(self.reading.text)
        text = self._written(translations, changed, braces=_braces(known))
        if _templates(text) != known:  # a text would be taken for templating
            text = self._written(translations, changed, braces=TEMPLATE_BRACE)
        return self.encoding.encode(text)

    def _written(self, translations: Mapping[int, Sequence[Piece]], changed: Sequence[int], braces: re.Pattern[str]) -> str:
        changes: list[tuple[Span, str]] = []
        for at in sorted(changed, key=lambda at: self.reading.places[at].span, reverse=True):  # what is inside comes first
            place = self.reading.places[at]
            inner: list[tuple[Span, str]] = []
            while changes and changes[-1][0][1] <= place.span[1]:
                inner.append(changes.pop())
            changes.append((place.span, place.written(translations[at], self.encoding, inner, braces)))
        if changes and self.language:
            changes += [(span, self.language) for span, said in self.reading.languages if _differ(said, self.language)]
        return replaced(self.reading.text, changes)


def _templates(text: str) -> list[str]:
    """All of the text's, sorted: codes may be in another order."""
    return sorted(text[start:end] for start, end in templates(text))


def _braces(known: Sequence[str]) -> re.Pattern[str]:
    """Which must not be written, for the page's templating would stumble over them even where they begin nothing."""
    if any(template.startswith(("{%", "{#")) for template in known):
        return TEMPLATE_BRACE
    return DOUBLE_BRACE if any(template.startswith("{{") for template in known) else NO_BRACE


def _differ(said: str, other: str) -> bool:
    """A page says a language, not a template for one, and it is another, whatever the regions are."""
    first, second = (re.split("[-_]", language.strip().lower())[0] for language in (said, other))
    return first.isalpha() and first != second


@dataclass(frozen=True)
class _Format:
    name: str = "html"

    def read(self, data: bytes, options: ReadOptions) -> Document:
        bound = Bound(options)
        bound.check_marks(data, b"<", b"{")
        text, encoding = decoded(data, options.encoding)
        return _Html(Reading(text, bound).read(), encoding, options.target_language)


FORMAT = _Format()
