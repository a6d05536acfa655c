"""What must hold in every translation."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Term:
    """An entry of a glossary."""

    source: str
    target: str


@dataclass(frozen=True, kw_only=True)
class TranslationRules:
    """How the text of units is cut, protected and checked.

    Args:
        source_language: BCP 47: sentences are split by its rules.
        target_language: BCP 47.
        glossary: source terms and what they must become; whole words, the longest first.
        keep: words and phrases that must not be translated.
        placeholders: further patterns (regular expressions) of what must be kept, beside those that are known.
        max_characters: of one ask; longer sentences are cut at clauses, then at words. What the model cannot take all the same
            (a Refusal) is cut in halves.
    """

    source_language: str = ""
    target_language: str = ""
    glossary: tuple[Term, ...] = ()
    keep: tuple[str, ...] = ()
    placeholders: tuple[str, ...] = field(default=())
    max_characters: int = 1_000
