"""Language tags as office documents write them (ECMA-376, part 1, 17.3.2.20; OpenDocument 1.3, part 3, 20.185 and 20.197)."""

from dataclasses import dataclass

import langcodes

_EASTERN = {"zh", "ja", "ko"}
_COMPLEX = {
    *("Arab", "Hebr", "Syrc", "Thaa", "Nkoo"),
    *("Thai", "Laoo", "Khmr", "Mymr", "Tibt"),
    *("Deva", "Beng", "Guru", "Gujr", "Orya", "Taml", "Telu", "Knda", "Mlym", "Sinh"),
}


@dataclass(frozen=True, slots=True)
class Tongue:
    """A language with its country.

    Args:
        language: such as "de", or "sr-Latn" where the script was said.
        country: such as "DE"; "" where nobody knows.
        script: which of the three attributes of a style is its: "western", "asian" or "complex".
    """

    language: str
    country: str
    script: str

    @property
    def tag(self) -> str:
        """Both in one."""
        return "-".join(filter(None, (self.language, self.country)))


def tongue(tag: str) -> Tongue | None:
    """Of a BCP 47 tag, with its likely country; None where it is none, or nobody said one."""
    try:
        said = langcodes.Language.get(tag)
        likely = said.maximize()
    except ValueError:
        return None
    if not tag or not likely.language or likely.language == "und":
        return None
    eastern, complex_ = likely.language in _EASTERN, likely.script in _COMPLEX
    language = f"{likely.language}-{said.script}" if said.script and not eastern else likely.language
    return Tongue(language, likely.territory or "", "asian" if eastern else "complex" if complex_ else "western")
