"""Translators without a model: correct ones, and ones with all the faults of models."""

import hashlib
import random
import re
from collections.abc import Callable, Sequence

from triptych_documents.rules import TranslationRules
from triptych_documents.sentences import Alignment, Refusal, SentenceRequest, SentenceTranslation
from triptych_documents.translation.units import TranslatedUnit, UnitTranslator
from triptych_documents.unit import Piece, Unit
from triptych_embedded.sentences import SentenceOutcome, SentenceTranslator

Reply = SentenceTranslation | Refusal
Translate = Callable[[SentenceRequest], Reply]

TOKEN = re.compile(r"\w+|[^\w\s]")
STAND_IN = re.compile(r"\b(?:Tom|Boston|Paris|Maria|Linux|\d+)\b")


def outcomes_of(translator: SentenceTranslator, requests: Sequence[SentenceRequest]) -> dict[SentenceRequest, Reply]:
    """Have requests translated, and wait for all outcomes."""
    translator.submit(requests)
    found: list[SentenceOutcome] = []
    while len(found) < len(requests):
        found += translator.take(5.0)
    assert len(found) == len(requests)
    return dict(found)


def seeded(request: SentenceRequest) -> random.Random:
    """Return a random generator that depends on the request only."""
    return random.Random(hashlib.sha256(repr(request).encode("utf-8", "surrogatepass")).digest())


def tokens(text: str) -> list[tuple[int, int]]:
    return [match.span() for match in TOKEN.finditer(text)]


def aligned(request: SentenceRequest, text: str, order: Sequence[int] | None = None) -> SentenceTranslation:
    """Return a translation with a word-by-word alignment, if requested."""
    if not request.aligned:
        return SentenceTranslation(text)
    source, target = tokens(request.text), tokens(text)
    rows = []
    for index in range(len(target)):
        column = order[index] if order is not None and index < len(order) else index
        rows.append([float(column == other) for other in range(len(source))])
    return SentenceTranslation(text, Alignment(source, target, rows))


def identity(request: SentenceRequest) -> Reply:
    return aligned(request, request.text)


def swapped(text: str) -> str:
    """Swap the case of all words except stand-ins."""
    return re.sub(
        r"[A-Za-zäöüÄÖÜ]+", lambda match: match[0] if STAND_IN.fullmatch(match[0].capitalize()) else match[0].swapcase(), text
    )


def swapping(request: SentenceRequest) -> Reply:
    return aligned(request, swapped(request.text))


def backwards(request: SentenceRequest) -> Reply:
    """Reverse the order of words."""
    words = [request.text[start:end] for start, end in tokens(request.text)]
    return aligned(request, " ".join(swapped(word) for word in reversed(words)), range(len(words))[::-1])


def unaligned(request: SentenceRequest) -> Reply:
    return SentenceTranslation(swapped(request.text))


def dropping(request: SentenceRequest) -> Reply:
    """Drop stand-ins."""
    return aligned(request, STAND_IN.sub("", swapped(request.text)) or "x")


def doubling(request: SentenceRequest) -> Reply:
    """Repeat stand-ins."""
    return aligned(request, STAND_IN.sub(r"\g<0> \g<0>", swapped(request.text)))


def garbling(request: SentenceRequest) -> Reply:
    """Replace stand-ins by other words."""
    return aligned(request, STAND_IN.sub(lambda match: match[0] + "qu", swapped(request.text)))


def empty(request: SentenceRequest) -> Reply:
    return SentenceTranslation("")


def markup(request: SentenceRequest) -> Reply:
    """Add characters that formats must escape."""
    return aligned(request, "& < " + swapped(request.text) + " > | * _ \" ' , ; ] `")


def endless(request: SentenceRequest) -> Reply:
    """Repeat until truncated."""
    return SentenceTranslation("so so " * 500, aligned(request, "so so").alignment, truncated=True)


def refusing(request: SentenceRequest) -> Reply:
    """Reject long sentences."""
    return Refusal("too long") if len(request.text) > 12 else aligned(request, swapped(request.text))


def never(request: SentenceRequest) -> Reply:
    return Refusal("no")


def wild(request: SentenceRequest) -> Reply:
    """Behave like any other translator, with a meaningless alignment."""
    chance = seeded(request)
    reply = chance.choice(EVERY)(request)
    if isinstance(reply, Refusal) or reply.alignment is None:
        return reply
    count = len(reply.alignment.source)
    rows = [[chance.random() * (chance.random() < 0.3) for _ in range(count)] for _ in reply.alignment.target]
    return SentenceTranslation(reply.text, Alignment(reply.alignment.source, reply.alignment.target, rows), reply.truncated)


EVERY: tuple[Translate, ...] = (
    *(identity, swapping, backwards, unaligned, dropping, doubling, garbling, empty, markup, endless, refusing, never),
)


def translated(
    units: Sequence[Unit], translate: Translate, rules: TranslationRules | None = None, shuffle: random.Random | None = None
) -> list[TranslatedUnit]:
    """Translate units and return them in order; with `shuffle` requests are processed in random order."""
    work = UnitTranslator(rules or TranslationRules(source_language="en", target_language="de"))
    requests = [request for index, unit in enumerate(units) for request in work.add(index, unit)]
    done: list[TranslatedUnit] = []
    asked = set()
    while requests:
        request = requests.pop(shuffle.randrange(len(requests)) if shuffle else 0)
        assert request not in asked, "an equal request was asked before"
        asked.add(request)
        requests += work.answer(request, translate(request))
        done += work.done()
    done += work.done()
    assert work.waiting == 0
    assert len(done) == len(units)
    return sorted(done, key=lambda one: one.key)  # type: ignore[arg-type, return-value]


def pieces(piece: Sequence[Piece] | str, translate: Translate, **rules: object) -> tuple[Piece, ...]:
    """Translate one unit."""
    unit = Unit((piece,) if isinstance(piece, str) else tuple(piece), "here")
    return translated([unit], translate, TranslationRules(source_language="en", target_language="de", **rules))[0].pieces  # type: ignore[arg-type]
