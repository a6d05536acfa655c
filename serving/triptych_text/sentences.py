"""Scripts whose words have no spaces between them."""

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import sentencex  # type: ignore[import-untyped]

from triptych_text.languages import primary_language

# Thai and Lao, Burmese, Khmer, Japanese, Chinese: for a class of a regular expression.
UNSPACED = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"

_UNSPACED = re.compile(f"[{UNSPACED}]")


def is_unspaced(sign: str) -> bool:
    """Whether a character is of such a script."""
    return _UNSPACED.match(sign) is not None


logger = logging.getLogger(__name__)

WINDOW = 10_000  # characters looked at together: the time is quadratic where quotation marks do not match
SPACE = re.compile(r"\s")
# Inside quotation marks and brackets too, where the splitter sees one sentence.
INNER_END = re.compile(r"""[.!?…]["'”’»)\]]*\s+|[。！？।؟]["'”’」』）]*\s*""")


@dataclass(frozen=True)
class Sentences:
    """A text in parts: `gaps[0] + texts[0] + gaps[1] + texts[1] + ... + gaps[-1]`. One more gap than texts."""

    texts: tuple[str, ...]
    gaps: tuple[str, ...]

    def join(self, texts: Sequence[str]) -> str:
        """Other texts in the places of these."""
        return self.gaps[0] + "".join(text + gap for text, gap in zip(texts, self.gaps[1:], strict=True))


def whole(text: str) -> Sentences:
    """The text as it stands, in one part."""
    return Sentences((text,), ("", ""))


class Splitter:
    """Splits texts of one language at the ends of sentences and of lines. Safe to use from several threads.

    The rules are those of sentencex: abbreviations, initials, quotations and lists are not torn apart. What it
    takes for one sentence but the model cannot (a page in quotation marks) is split at every mark that ends a sentence.

    Args:
        language: code of the language.
        fits: whether the model takes a sentence.
    """

    def __init__(self, language: str, fits: Callable[[str], bool]) -> None:
        self._language = primary_language(language)
        self._fits = fits

    def split(self, text: str) -> Sentences:
        """Its sentences, without the white space around them; none in a blank text."""
        return _sentences(segment for line in text.splitlines(keepends=True) for segment in self._split_line(line))

    def _split_line(self, line: str) -> Iterator[str]:
        for segment in _with_letters(self._segments(line)):
            if self._fits(segment.strip()):
                yield segment
            else:
                yield from _at_ends(segment, INNER_END)

    def _segments(self, line: str) -> Iterator[str]:
        start = 0
        while len(line) - start > WINDOW:
            part = line[start : start + WINDOW]
            for segments in (self._segment(part), list(_at_ends(part, INNER_END))):
                if known := segments[:-1]:  # the last may go on behind the window
                    break
            else:
                known = [line[start : _next_end(line, start)]]
            yield from known
            start += sum(map(len, known))
        yield from self._segment(line[start:])

    def _segment(self, part: str) -> list[str]:
        # It panics at some white space that is not ASCII.
        plain = SPACE.sub(" ", part)
        try:
            lengths = [len(segment) for segment in sentencex.segment(self._language, plain)]
        except BaseException as error:  # a panic is no Exception
            if type(error).__name__ != "PanicException":
                raise
            logger.warning("the sentence splitter failed at a text of %d characters: %s", len(part), error)
            return list(_at_ends(part, INNER_END))
        return list(_cut(part, lengths))


def _cut(text: str, lengths: Iterable[int]) -> Iterator[str]:
    start = 0
    for length in lengths:
        yield text[start : start + length]
        start += length


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


def _with_letters(segments: Iterable[str]) -> Iterator[str]:
    """Joins what has no letter ("1.", an emoji) to the next sentence of its line, or to the one before where there is none."""
    ready, pending = "", ""
    for segment in segments:
        pending += segment
        if any(map(str.isalpha, segment)):
            if ready:
                yield ready
            ready, pending = pending, ""
    if ready or pending:
        yield ready + pending


def _sentences(segments: Iterable[str]) -> Sentences:
    texts, gaps, gap = [], [], ""
    for segment in segments:
        text = segment.strip()
        if not text:
            gap += segment
            continue
        start = segment.index(text)
        gaps.append(gap + segment[:start])
        texts.append(text)
        gap = segment[start + len(text) :]
    return Sentences(tuple(texts), (*gaps, gap))
