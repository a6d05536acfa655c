"""Sentence splitting and joining, with everything between the sentences kept to the letter."""

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import sentencex  # type: ignore[import-untyped]

from triptych_text.languages import primary_language
from triptych_text.steps import Steps, finish

# Character class of scripts without spaces: Thai, Lao, Burmese, Khmer, Japanese, Chinese.
UNSPACED = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"

_UNSPACED = re.compile(f"[{UNSPACED}]")
# Ends of sentences that need no space after them: Chinese and Japanese text and punctuation, Hindi's and Arabic's marks.
_CLOSED = re.compile(r"[।؟\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]")
_CLOSING = "\"'”’»)]"


def is_unspaced(sign: str) -> bool:
    """Return whether a character belongs to a script that writes no spaces between words."""
    return _UNSPACED.match(sign) is not None


logger = logging.getLogger(__name__)

# Characters per call of sentencex, which holds the lock of Python and takes quadratic time on many short sentences in a line
# (6 ms for 4,000 characters, 35 ms for 10,000) and on unbalanced quotation marks.
WINDOW = 4_000
SPACE = re.compile(r"\s")
LINE_END = re.compile(r"\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")  # as str.splitlines has them
# Also matches inside of quotation marks and brackets, which sentencex never splits.
INNER_END = re.compile(r"""[.!?…]["'”’»)\]]*\s+|[。！？।؟]["'”’」』）]*\s*""")
# Abbreviations that sentencex takes for the end of a sentence, also before a number.
_ABBREVIATED = re.compile(
    r"\b(?:alg|app|approx|cap|ch|chap|cols?|cor|def|eds?|eqs?|est|excl|figs?|incl|lem|max|paras?|prop|refs?|resp|sect?s?|tab|tbl|tel|thm"
    r"|vers?|vols?)\.\s+$",
    re.IGNORECASE,
)
_ITEM = re.compile(r"\s*\(?(?:[A-Za-z]|[ivx]+|[IVX]+)[.)]\s+")  # a letter or Roman number before an item of a list
# Marks before an item of a list, a remark in a dialogue or a heading, which models lose or which change the translation.
_SECTION = r"[0-9]{1,2}(?:\.[0-9]{1,2}){1,4}\.?(?=\s+[A-Z][a-z]{2})(?!\s+[KMGT]bit)"  # not "1.5 km" or "2.5 million"
_MARKS = rf"[-*+•‣◦▪·–—]|\(?[0-9]{{1,3}}\)|\(?[A-Za-z]\)|{_SECTION}"
_MARK = re.compile(rf"\s*(?:{_MARKS}|[0-9]{{1,3}}\.)\s+")
_MARK_BESIDE_ORDINALS = re.compile(rf"\s*(?:{_MARKS})\s+")
# Languages with ordinals such as "1. Mai".
_ORDINALS = frozenset(("bs", "cs", "da", "de", "et", "fi", "hr", "hu", "lv", "nb", "no", "pl", "sk", "sl", "sr", "tr"))
_IN_BRACKETS = re.compile(r"\s*\([^()]{0,1000}[.!?]\)\s+(?=[^\W\d_a-z])")  # whole sentences


@dataclass(frozen=True)
class Sentences:
    """A text in parts: `gaps[0] + texts[0] + gaps[1] + texts[1] + ... + gaps[-1]`, with one more gap than texts."""

    texts: tuple[str, ...]
    gaps: tuple[str, ...]

    def join(self, texts: Sequence[str]) -> str:
        """Join other texts, such as translations, one for each sentence."""
        return self.gaps[0] + "".join(text + self.gap_after(index, text) for index, text in enumerate(texts))

    @property
    def marked_texts(self) -> list[str]:
        """The sentences with the marks of list items before them."""
        return [gap.lstrip() + text for gap, text in zip(self.gaps, self.texts, strict=False)]

    def with_first_mark(self) -> "Sentences":
        """Return the same text with the mark of a list before its first sentence as a part of that."""
        space, mark = self.gaps[0], self.gaps[0].lstrip()
        if not mark:
            return self
        return Sentences((self.marked_texts[0], *self.texts[1:]), (space.removesuffix(mark), *self.gaps[1:]))

    def gap_after(self, index: int, text: str) -> str:
        """Return what follows a text in the place of sentence `index`: the original gap.

        One exception: where the original needs no space, as in Chinese, a translation that needs one gets it.
        """
        gap = self.gaps[index + 1]
        is_inner = index + 1 < len(self.texts)
        return " " if is_inner and not gap and needs_space(self.texts[index], text) else gap


def needs_space(sentence: str, translation: str) -> bool:
    """Return whether a translation needs a space after it, which its sentence does not need."""
    return translation != "" and _ends_closed(sentence) and not _ends_closed(translation)


def _ends_closed(text: str) -> bool:
    return _CLOSED.match(text.rstrip(_CLOSING)[-1:]) is not None


def whole(text: str) -> Sentences:
    """Return the text as a single part."""
    return Sentences((text,), ("", ""))


class TooManySentencesError(Exception):
    """A text has more sentences than it may have."""


class Splitter:
    """Split texts of one language at the ends of sentences and lines. Thread-safe.

    The rules are those of sentencex: abbreviations, initials and quotations stay whole. What it takes for one sentence but does
    not fit (a page in quotation marks) is split at every mark that ends a sentence. Bullets, dashes and numbers of items
    and sections belong to no sentence.

    Args:
        language: language code.
        fits: whether a sentence is short enough for the model.
    """

    def __init__(self, language: str, fits: Callable[[str], bool]) -> None:
        self._language = primary_language(language)
        self._fits = fits
        self._mark = _MARK_BESIDE_ORDINALS if self._language in _ORDINALS else _MARK

    def split(self, text: str) -> Sentences:
        """Return the sentences without surrounding white space; none for a blank text."""
        return finish(self.split_steps(text, len(text)))

    def split_steps(self, text: str, most: int) -> Steps[Sentences]:
        """Split a text in small steps, as `split`.

        Args:
            text: any text.
            most: number of sentences that it may have.

        Raises:
            TooManySentencesError: it has more; the rest of it is not looked at.
        """
        lines = (text,) if text.isprintable() else _at_ends(text, LINE_END)  # printable: no white space but plain spaces
        return _sentences((segment for line in lines for segment in self._split_line(line)), self._mark, most)

    def has_mark(self, text: str) -> bool:
        """Return whether the text starts with the mark of a list item; fast."""
        return self._mark.match(text) is not None

    def _split_line(self, line: str) -> Iterator[str]:
        if line.isspace():
            yield line
            return
        for segment in _with_letters(_mended(self._segments(line))):
            if not segment or self._fits(segment.strip()):
                yield segment
            else:
                yield from _at_ends(segment, INNER_END)

    def _segments(self, line: str) -> Iterator[str]:
        start = 0
        while len(line) - start > WINDOW:
            part = line[start : start + WINDOW]
            for segments in (self._segment(part), list(_at_ends(part, INNER_END))):
                if known := segments[:-1]:  # the last may continue after the window
                    break
            else:
                known = [line[start : _next_end(line, start)]]
            yield from known
            start += sum(map(len, known))
        yield from self._segment(line[start:])

    def _segment(self, part: str) -> list[str]:
        # sentencex panics on some non-ASCII white space.
        plain = part if part.isprintable() else SPACE.sub(" ", part)
        try:
            places = list(accumulate(map(len, sentencex.segment(self._language, plain)), initial=0))
        except BaseException as error:  # a Rust panic is not an Exception
            if type(error).__name__ != "PanicException":
                raise
            logger.warning("sentence splitter failed: %d characters: %s", len(part), error)
            return list(_at_ends(part, INNER_END))
        return [part[start:end] for start, end in pairwise(places)]


def _at_ends(text: str, pattern: re.Pattern[str]) -> Iterator[str]:
    start = 0
    for match in pattern.finditer(text):
        yield text[start : match.end()]
        start = match.end()
    if start < len(text):
        yield text[start:]


def _next_end(text: str, start: int) -> int:
    match = INNER_END.search(text, start)
    return match.end() if match else len(text)


def _mended(segments: Iterable[str]) -> Iterator[str]:
    """Join what sentencex splits inside of words (`.NET`, `./a`, `a.org/?K=1`) and numbers; split after bracketed sentences."""
    last = ""
    for segment in segments:
        if last and not _is_inside(last, segment):
            yield last
            last = ""
        last += segment
        while match := _IN_BRACKETS.match(last):
            yield match[0]
            last = last[match.end() :]
    if last:
        yield last


def _is_inside(before: str, after: str) -> bool:
    """Return whether there is no end of a sentence between two parts of a line."""
    if after[0].isdigit():
        return _ABBREVIATED.search(before[-20:]) is not None
    return before[-1] in ".!?" and (after[0].isalpha() or after[0] in "/\\") and not is_unspaced(after[0])


def _with_letters(segments: Iterable[str]) -> Iterator[str]:
    """Join parts without words ("1.", "A.", an emoji) to the next sentence of the line, or the one before if there is none."""
    ready, pending = "", ""
    for segment in segments:
        pending += segment
        if any(map(str.isalpha, segment)) and not _ITEM.fullmatch(segment):
            if ready:
                yield ready
            ready, pending = pending, ""
        else:
            yield ""  # a step, however long it takes to find letters
    if ready or pending:
        yield ready + pending


def _sentences(segments: Iterable[str], mark: re.Pattern[str], most: int) -> Steps[Sentences]:
    texts: list[str] = []
    gaps: list[str] = []
    gap = ""
    for segment in segments:
        yield
        text = segment.strip()
        if not text:
            gap += segment
            continue
        start = segment.index(text)
        if (found := mark.match(segment)) and any(map(str.isalpha, segment[found.end() :])):
            start, text = found.end(), segment[found.end() :].rstrip()
        if len(texts) == most:
            raise TooManySentencesError
        gaps.append(gap + segment[:start])
        texts.append(text)
        gap = segment[start + len(text) :]
    return Sentences(tuple(texts), (*gaps, gap))
