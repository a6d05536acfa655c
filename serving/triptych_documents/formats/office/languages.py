"""Languages in office documents (ECMA-376, part 1, 17.3.2.20; OpenDocument 1.3, part 3, 20.185 and 20.197)."""

from dataclasses import dataclass

import langcodes

_EASTERN = {"zh", "ja", "ko"}
_COMPLEX = {
    *("Arab", "Hebr", "Syrc", "Thaa", "Nkoo"),
    *("Thai", "Laoo", "Khmr", "Mymr", "Tibt"),
    *("Deva", "Beng", "Guru", "Gujr", "Orya", "Taml", "Telu", "Knda", "Mlym", "Sinh"),
}


@dataclass(frozen=True, slots=True)
class OfficeLanguage:
    """A language with its country."""

    language: str  # such as "de", or "sr-Latn" if the script was given
    country: str  # such as "DE"; "" if unknown
    script: str  # selects one of the three language attributes of a style: "western", "asian" or "complex"

    @property
    def tag(self) -> str:
        return "-".join(filter(None, (self.language, self.country)))


def office_language(tag: str) -> OfficeLanguage | None:
    """Parse a BCP 47 tag and add its most likely country; None if invalid or empty."""
    try:
        declared = langcodes.Language.get(tag)
        likely = declared.maximize()
    except ValueError:
        return None
    if not tag or not likely.language or likely.language == "und":
        return None
    eastern, complex_ = likely.language in _EASTERN, likely.script in _COMPLEX
    language = f"{likely.language}-{declared.script}" if declared.script and not eastern else likely.language
    return OfficeLanguage(language, likely.territory or "", "asian" if eastern else "complex" if complex_ else "western")
