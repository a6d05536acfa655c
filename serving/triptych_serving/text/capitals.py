"""Texts in capitals, which models that were trained on ordinary texts hardly know: as sentences in lower case, and back."""

import re
import string

FEWEST = 5  # letters of a sentence; shorter ones are often acronyms: NATO, JSON
# Of formats and markup; their letters stay as they are.
PLACEHOLDER = re.compile(r"(%(?:\(\w+\))?[-+#0-9.$]*l{0,2}[a-zA-Z@]\b|\$?\{[^{}]*\}|\$[a-z]\w*|</?[a-zA-Z][^<>]*>|\\[a-z])")


def lower_capitals(text: str) -> str:
    """Write a text in capitals in lower case, but for its first letter; placeholders stay."""
    first, *others = PLACEHOLDER.split(text)
    return "".join((first.capitalize(), *(part if place % 2 == 0 else part.lower() for place, part in enumerate(others))))


def raise_capitals(translation: str, text: str) -> str:
    """Write the translation of a text in capitals, but for the text's placeholders."""
    raised = translation.upper()
    for placeholder in PLACEHOLDER.findall(text):
        raised = raised.replace(placeholder.upper(), placeholder)
    return raised


def in_capitals(text: str) -> bool:
    """Return True if all letters but those of placeholders are capitals that can be restored."""
    words = "".join(PLACEHOLDER.split(text)[::2])
    return words.isupper() and raise_capitals(lower_capitals(text), text) == text


def is_sentence_in_capitals(text: str) -> bool:
    """Return True for sentences and words in capitals, but not for acronyms and codes such as MAX_SIZE."""
    words = " ".join(PLACEHOLDER.split(text)[::2])
    if not words.isupper() or sum(map(str.isalpha, words)) < FEWEST or not in_capitals(text):
        return False
    return " " in text or text.strip(string.punctuation).isalpha()
