"""Texts in capitals, which models that were trained on ordinary texts hardly know."""

import string

FEWEST = 5  # letters of a sentence; shorter ones are often acronyms: NATO, JSON


def in_capitals(text: str) -> bool:
    """Return True if all letters are capitals that `str.upper` restores after `str.capitalize`."""
    return text.isupper() and text.capitalize().upper() == text


def is_sentence_in_capitals(text: str) -> bool:
    """Return True for sentences and words in capitals, but not for acronyms and codes such as MAX_SIZE."""
    if not in_capitals(text) or sum(map(str.isalpha, text)) < FEWEST:
        return False
    return " " in text or text.strip(string.punctuation).isalpha()
