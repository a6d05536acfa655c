"""Units that are one sentence with nothing to keep and nothing to place: most are. They are spared the steps of all others.

What is said here of a unit is what those steps would say; where they would do more, nothing is said.
"""

import re
import unicodedata

from triptych_documents.segments.cutting import END
from triptych_documents.segments.protected import ProtectedFinder
from triptych_documents.segments.segment import has_letters
from triptych_documents.sentences import SentenceTranslation
from triptych_documents.translation.steps import SentenceResult
from triptych_documents.translation.translator import clean
from triptych_documents.unit import Unit

_END = re.compile(END)


class PlainTextShortcut:
    """From a unit to what is asked, and from the answer to its translation.

    Args:
        finder: knows what must be kept.
        longest: characters of an ask.
    """

    def __init__(self, finder: ProtectedFinder, longest: int) -> None:
        self._finder = finder
        self._longest = longest

    def ask_for(self, unit: Unit) -> str | None:
        """What the translator reads, which is all of the unit; None where steps are needed."""
        if (text := unit.plain) is None or len(text) > self._longest or not has_letters(text):
            return None
        if not _is_tidy(text) or _END.search(text) or self._finder.may_have(text):
            return None
        return text

    def translation(self, reply: SentenceResult) -> str | None:
        """The unit's text in the other language; None where steps are needed."""
        if not isinstance(reply, SentenceTranslation) or reply.truncated or not any(map(str.isalnum, reply.text)):
            return None
        text = clean(reply.text)
        return None if self._finder.hints_at(text) else text


def _is_tidy(text: str) -> bool:
    """All of its white space is single spaces between words, and it is in Unicode's form NFC."""
    if not text.isprintable() or "  " in text or text[0] == " " or text[-1] == " ":
        return False
    return text.isascii() or unicodedata.is_normalized("NFC", text)
