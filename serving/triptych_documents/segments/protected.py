"""Protected text: placeholders, addresses, code, numbers, names, kept words and terms that must reach the translation."""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import chain
from operator import attrgetter

from triptych_documents.errors import OptionError
from triptych_documents.rules import Term, TranslationRules
from triptych_text.languages import primary_language


class ProtectedKind(Enum):
    """Ways to mask a protected item."""

    NAME = "name"  # replaces words: {user}, a URL, a code sample
    COUNT = "count"  # replaces a number: %d
    AMOUNT = "amount"  # a code that is shown as a number
    NUMBER = "number"
    KEEP = "keep"  # a coined name, or another word that must not be translated
    ACRONYM = "acronym"  # may be translated, but must not lose or gain letters
    TERM = "term"  # a word with a required translation


WORD_KINDS = (ProtectedKind.KEEP, ProtectedKind.ACRONYM, ProtectedKind.TERM)


@dataclass(frozen=True, slots=True)
class ProtectedMatch:
    """Span of a protected item in a text."""

    start: int
    end: int
    kind: ProtectedKind
    term: Term | None = None


# Character classes: what models lose, such as control characters, marks of direction, signs of mathematics and trade, arrows,
# emoji and private characters; signs between titles, such as bullets; both and variation selectors.
SYMBOL = (
    r"\x00-\x08\x0e-\x1f\x7f-\x9f\xae\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\u2116\u2120\u2122\u2190-\u22ff"
    r"\u2300-\u2bff\ue000-\uf8ff\ufeff\U0001f000-\U0001faff\U000f0000-\U0010ffff"
)
SEPARATOR = r"|•·›»▸▶►→⇒➔➜"
_DOMAIN = "(?:com|org|net|io|dev|edu|gov|info|de|eu|uk)"  # frequent ones that are no English words
_FILE = (  # frequent suffixes of files that are no words
    "(?:cfg|conf|css|csv|docx?|exe|gif|gz|html?|ini|ipynb|jar|jpe?g|json|jsx?|lock|log|md|mdx|odt|pdf|php|png|po|pptx?|py|rb|rst"
    "|sh|sql|srt|svg|tar|toml|tsx?|txt|xlsx?|xml|ya?ml|zip)"
)
_FRACTION = r"\u00bc-\u00be\u2150-\u215e"  # one half, as one character
_SIGN = rf"{SYMBOL}{SEPARATOR}{_FRACTION}\ufe0f"

# Quick check: text without any of these has nothing to protect. Most sentences have nothing.
# Starts with a character class, which the regex engine searches fast.
_HINT = re.compile(
    rf"[\d{{}}%$<>&@`_/\\#=^{_SIGN}:.(wy*-](?:(?<=[\d{{}}%$<>&@`_/\\#=^{_SIGN}])|(?<=-)-|(?<=\*)\*|(?<=w)ww\.|(?<=y)y|(?<=\()\)|(?<=\w:)\w|(?<=:)[a-z][\w+-]*:"
    rf"|(?<=\.)(?:{_DOMAIN}\b|{_FILE}\b|\.\.\.| \. \.|[a-z_]\w+\.[a-z_]))"
)
_CAPITALS = re.compile(r"[A-Z](?:(?<=[a-z].)|[A-Z]{2})")  # inside of a word, or three in a row

# Repetitions that can match the same characters are bounded; otherwise a document could cause quadratic time. So are
# patterns that can start in many places and scan far before they fail.
_SIZE = r"(?:\d{1,9}|\*)"
_PRINTF = rf"%(?:\d{{1,9}}\$)?[-+#0']{{0,5}}{_SIZE}?(?:\.{_SIZE})?(?:hh|h|ll|l|j|z|t|L|q)?[diouxXeEfFgGaAcsSpnrb@]"
_PRINTF_MACRO = r"%[-+#0']{0,5}\d{0,9}(?:\.\d{1,9})?<PRI[diouxX]\w{1,12}>"  # gettext's notation of C's macros
# Placeholders that programs fill in order: %s, Python's {}; but not %1$s
SEQUENTIAL = re.compile(rf"(?!%\d{{1,9}}\$)(?:{_PRINTF}|{_PRINTF_MACRO})|\{{(?:[!:][^{{}}]*)?\}}")

_DATE_PART = "(?:YY(?:YY)?|yy(?:yy)?|MM|DD|dd|HH|hh|mm|SS|ss)"

_PATTERNS = (
    # URLs (RFC 3986 without trailing punctuation and closing brackets)
    r"(?:(?:https?|ftps?|file|ssh|git|irc|ws)://|mailto:|www\.)[^\s<>\"“”]*[^\s<>\"“”.,;:!?()\[\]{}'’]/?",
    r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+",  # e-mail addresses
    # GNU's quotation marks, as in `file', unless a code sample ends behind them: `f('.')`
    r"(?<![`\w])`[^`'\n]{1,100}'(?![\w'])(?![^`\n]{0,300}[^`\s(]`(?!\w))",
    r"``(?!`)(?:(?!``)[^\n]){1,300}``",  # reStructuredText
    r"`[^`\n]{1,300}`",
    r"(?<![\w|])\|[A-Za-z][\w.-]{0,40}\|(?![\w|])|\[(?:#?[\w-]{1,40}|[#*])\]_(?!\w)",  # its substitutions and footnotes
    r"\{\{[^{}\n]{0,300}\}\}|\{%[^{}\n]{0,300}%\}|[$#%]\{[^{}\n]{0,300}\}",  # templates
    # str.format, ICU MessageFormat with its branches, .NET
    r"\{(?:[^{}]|\{(?:[^{}]|\{[^{}]{0,300}\}){0,300}\}){0,300}\}",
    r"%\([^()\s]{1,100}\)[#0 +-]{0,5}\d{0,9}(?:\.\d{1,9})?[a-zA-Z]",  # Python's %(name)s
    r"%(?:\d{1,9}\$)?(?:#@[^@\n]{1,100}@|arg(?!\w))",  # Apple's substitutions and their numbers
    _PRINTF_MACRO,
    r"%<[^<>\s]{1,100}>[-+#0]{0,5}\d{0,9}(?:\.\d{1,9})?[a-zA-Z]",  # Ruby's %<name>s
    r"%[A-Za-z_]\w+%(?!%)",  # %NAME%
    # printf of POSIX, with Python's, Java's and Qt's; 100%ige is a word
    rf"(?<!\d){_PRINTF}|{_PRINTF}(?![^\W\d_])|%%|%L?\d{{1,2}}(?!\d|\s*%(?!L?[\dn]))",
    # with a space for the sign; not `50 % d`, `en % d'une` or `in % e.g.`
    r"(?<!\d)(?<!\d\s)% [-+#0']{0,5}(?:\d{0,9}[dxX]|(?:\d{1,9}(?:\.\d{1,9})?|\.\d{1,9})[eEfFgG])(?![^\W\d_]|['’.]\w)",
    r"\$t\([^()\n]{1,300}\)|@(?:\.\w+)?:(?:[\w.]*\w|\([^()\n]{1,300}\))",  # other messages, of i18next and vue-i18n
    r"\$[A-Za-z_]\w*",  # shell
    r"</?(?:[A-Za-z][^<>\n]{0,500}|\d{1,3}/?)>",  # tags that pair with nothing
    r"&(?:[A-Za-z]\w{1,30}|#\d{1,7}|#[xX][\dA-Fa-f]{1,6});",  # character references
    r"(?<![\w/.@%+~-])(?:[~@]|\.{1,2}|[A-Za-z]:)?[/\\](?:[\w.@%+~-]+[/\\])*[\w.@%+~-]*\w[/\\]?",  # paths
    r"(?<![\w/.@-])(?:[\w.-]+/)+[\w-]+\.[A-Za-z]\w{0,4}(?!\w)",  # files in folders
    rf"(?<![\w.-])[\w-]+(?:\.[\w-]+)*\.{_FILE}(?![\w-]|\.\w)",  # files
    rf"(?<![\w.-])(?:[A-Za-z0-9-]+\.)+{_DOMAIN}(?![\w-])(?!\.\w)(?:/[\w/.%~-]*[\w/])?",  # domains
    r"(?<![\w.-])[A-Za-z]\w+(?:\.[a-z_]\w+){2,}(?![\w-])",  # modules
    r"(?<![\w-])--[a-z][\w-]*",  # options
    r"(?<![\w.:>])[A-Za-z]\w*(?:(?:\.|::|->)[A-Za-z_]\w*)*\(\)",  # calls
    r"(?<![\w@])(?:@[A-Za-z_][\w-]*(?:/[\w.-]*\w)+|@@[A-Za-z_][\w-]*\w|[@#][A-Za-z_]\w+)",  # packages of npm, views, mentions
    r"(?<![\w:]):[a-z][a-z0-9_+-]{1,40}:(?![\w:])",  # names of emoji
    rf"(?<!\w)\d{{0,9}}[{_FRACTION}](?!\w)",
    # powers and indices: x^2, a^{ij}, x^n^, H~2~O
    r"(?<![\w^~])\w{1,20}(?>\^[^\s^]{1,20}\^|\^\{[^{}\n]{0,100}\}|\^[+-]?\w{1,20}|~[^\s~]{1,20}~(?!~))+\w{0,20}",
    rf"(?<![\w.]){_DATE_PART}(?:[-/.:T]{_DATE_PART}){{1,5}}(?!\w)",  # YYYY-MM-DD
    # names in code, and references of reStructuredText, as name_; _so_ is emphasis
    r"(?<!\w)(?:[A-Za-z]\w*_\w+|[A-Za-z][^\W_]+__?(?!\w)|__\w+__|_\w*[^\W_]_[^\W_]\w*)",
)
_COUNT = re.compile(
    rf"%(?:\d{{1,9}}\$)?[-+#0' ]{{0,6}}\d{{0,9}}(?:\.\d{{1,9}})?(?:hh|h|ll|l|j|z|t|L|q)?(?:[diufFgGn]|arg)"
    rf"|\d{{0,9}}[{_FRACTION}]|{_PRINTF_MACRO}"
)
_COUNTED = re.compile(r"\b(?:n|num|number|count|total|size|amount)\b")
# With letters and separators of the same word: MP3, 5th, 1:30, 2021-01-02.
_NUMBER = re.compile(r"(?<![^\W\d_])[^\W\d_]*\d+(?:[^\W_]|[.,:/'’\u00a0\u202f-](?=\d))*")
# Codes such as hashes of commits: letters between digits; shorter words and parts of a date may be written differently.
_CODE = re.compile(r"(?<![\w.,:/'’-])(?=[A-Za-z]*\d+[A-Za-z]+\d)[A-Za-z0-9]{7,}(?!\w|[.,:/'’-]\w)")
_COINED = re.compile(r"(?<!\w)[A-Za-z]*[a-z][A-Z][A-Za-z]*(?!\w)")  # see _is_coined
# Languages in Latin letters. Their models turn words of other scripts, and phonetic letters, into others without notice.
_LATIN = frozenset(
    ("af", "ca", "cs", "cy", "da", "de", "en", "es", "et", "eu", "fi", "fr", "ga", "gl", "hr", "hu", "id", "is", "it", "lt")
)
_LATIN |= {"lv", "ms", "mt", "nb", "nl", "no", "pl", "pt", "ro", "sk", "sl", "sq", "sv", "sw", "tl", "tr", "vi"}
_LATIN_LETTERS = (
    r"\W\d_A-Za-z\u00aa-\u024f\u02b0-\u036f\u1d00-\u1eff\u2071-\u209c\u2c60-\u2c7f\ua720-\ua7ff\ufb00-\ufb06\uff21-\uff5a"
)
_FOREIGN = re.compile(rf"[^{_LATIN_LETTERS}](?:[^{_LATIN_LETTERS}]|[\u0590-\u10ff\u1780-\u17ff])*")  # with signs on letters
ACRONYM = re.compile(r"(?<![^\W_])[A-Z]{2,}(?![^\W_])")
_LONG = 5  # letters; of shorter words two capitals are too few: "PhD" and "WiFi" have translations
_GENDERED = ("In", "Innen")  # German: MitarbeiterInnen


class ProtectedFinder:
    """Find protected text. Thread-safe. Raises OptionError: a pattern is not a valid regular expression."""

    def __init__(self, rules: TranslationRules) -> None:
        own = [_checked(index, pattern) for index, pattern in enumerate(rules.placeholders)]
        self._kept = re.compile("|".join(f"(?:{pattern})" for pattern in (*own, *_PATTERNS)))
        self._keep = PhraseMatcher(((phrase, None) for phrase in rules.keep), any_case=False)
        self._terms = PhraseMatcher(((term.source, term) for term in rules.glossary), any_case=True)
        self._always = bool(own or self._keep or self._terms)
        self._is_english = primary_language(rules.source_language) == "en"
        self._has_foreign = primary_language(rules.source_language) in _LATIN

    def may_have(self, text: str) -> bool:
        """Return False if `find` cannot find anything; fast."""
        if self._has_foreign and not text.isascii() and _FOREIGN.search(text) is not None:
            return True
        return self._always or _HINT.search(text) is not None or _CAPITALS.search(text) is not None

    def hints_at(self, text: str) -> bool:
        """Return False if the text has no number, placeholder, address or code name; fast."""
        return _HINT.search(text) is not None

    def find(self, text: str) -> list[ProtectedMatch]:
        """Return all matches in order without overlap; placeholders win over words, words over numbers."""
        holders = (match for match in self._kept.finditer(text) if match[0])
        kinds = {False: ProtectedKind.NAME, True: ProtectedKind.COUNT}
        taken = [ProtectedMatch(*match.span(), kinds[_counts(match[0])]) for match in holders]
        foreign = _FOREIGN.finditer(text) if self._has_foreign and not text.isascii() else ()
        for more in (
            self._words(text, taken),
            _all(foreign, ProtectedKind.NAME),
            _all(_NUMBER.finditer(text), ProtectedKind.NUMBER),
        ):
            taken = merged(taken, more)
        return taken

    def invented(self, text: str) -> list[str]:
        """Return text that looks like a placeholder, an address or a code name, to find what a translation should not have."""
        if _HINT.search(text) is None:
            return []
        return [match[0] for match in self._kept.finditer(text) if match[0]]

    def _words(self, text: str, holders: Sequence[ProtectedMatch]) -> list[ProtectedMatch]:
        kept = [ProtectedMatch(start, end, ProtectedKind.KEEP) for start, end, _ in self._keep.find(text)]
        terms = (ProtectedMatch(start, end, ProtectedKind.TERM, term) for start, end, term in self._terms.find(text))
        coined = (match for match in _COINED.finditer(text) if _is_coined(match[0], 1 if self._is_english else 2))
        codes = _all(_CODE.finditer(text), ProtectedKind.KEEP)
        acronyms = [match for match in ACRONYM.finditer(text) if len(match[0]) > 2]
        if acronyms and beside(text, ((one.start, one.end) for one in holders)).isupper():  # the whole text is in capitals
            acronyms = []
        taken = merged(merged(merged(kept, terms), codes), _all(coined, ProtectedKind.KEEP))
        return merged(taken, _all(acronyms, ProtectedKind.ACRONYM))


def beside(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """Return the text without these spans, which are in order and do not overlap."""
    bounds = (0, *chain.from_iterable(spans), len(text))
    return "".join(text[start:end] for start, end in zip(bounds[::2], bounds[1::2], strict=True))


def _all(matches: Iterable[re.Match[str]], kind: ProtectedKind) -> Iterator[ProtectedMatch]:
    return (ProtectedMatch(*match.span(), kind) for match in matches)


def _is_coined(word: str, least: int) -> bool:
    """Return whether a word with a capital inside is a name such as PyTorch.

    Args:
        least: number of its capitals; names of English, as onClick, may have one, but words of others have one, too: bhFrainc.
    """
    return sum(map(str.isupper, word)) >= (least if len(word) >= _LONG else 3) and not word.endswith(_GENDERED)


def _counts(holder: str) -> bool:
    """Return whether a placeholder stands for a number, judging by its name."""
    return _COUNT.fullmatch(holder) is not None or ("\n" not in holder and _COUNTED.search(holder) is not None)


def _checked(index: int, pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise OptionError(f"placeholders[{index}]", f"{pattern!r} is not a valid regular expression: {error}") from error
    return pattern


def merged(taken: Sequence[ProtectedMatch], more: Iterator[ProtectedMatch] | Sequence[ProtectedMatch]) -> list[ProtectedMatch]:
    """Merge matches of `more` that overlap none of `taken`; both are in order."""
    starts = [one.start for one in taken]
    free = [one for one in more if not (before := bisect_left(starts, one.end)) or taken[before - 1].end <= one.start]
    return sorted((*taken, *free), key=attrgetter("start")) if free else list(taken)


_TOKEN = re.compile(r"\w+|[^\w\s]")


class PhraseMatcher:
    """Find the phrases of a long list in a text, in time linear in the text.

    Matches whole words. Of several phrases that start at one place the longest wins; of equal phrases the first.
    """

    def __init__(self, entries: Iterable[tuple[str, Term | None]], *, any_case: bool) -> None:
        self._any_case = any_case
        self._by_first: dict[str, dict[int, dict[str, Term | None]]] = {}  # by first word, then by length
        for phrase, term in entries:
            if words := _TOKEN.search(key := self._key(phrase.strip())):
                self._by_first.setdefault(words[0], {}).setdefault(len(key), {}).setdefault(key, term)
        self._by_first = {first: dict(sorted(same.items(), reverse=True)) for first, same in self._by_first.items()}

    def __bool__(self) -> bool:
        return bool(self._by_first)

    def find(self, text: str) -> Iterator[tuple[int, int, Term | None]]:
        key, end = self._key(text), 0
        for token in _TOKEN.finditer(key) if self._by_first else ():
            if token.start() < end or (candidates := self._by_first.get(token[0])) is None:
                continue
            for length, phrases in candidates.items():
                stop = token.start() + length
                phrase = key[token.start() : stop]
                if phrase in phrases and not (is_word(phrase[-1]) and is_word(key[stop : stop + 1])):
                    yield token.start(), stop, phrases[phrase]
                    end = stop
                    break

    def _key(self, text: str) -> str:
        if not self._any_case:
            return text
        lower = text.lower()  # a few letters become two, which would shift offsets
        return lower if len(lower) == len(text) else "".join(low if len(low := sign.lower()) == 1 else sign for sign in text)


def is_word(sign: str) -> bool:
    """Return whether a character is part of a word."""
    return sign.isalnum() or sign == "_"
