"""Spell English as people type it: as titles, as in chats, with words in capitals, with mistakes. For mix_en_de.py."""

import random
import re

Pair = tuple[str, str]

SHARES = {"title": 0.08, "casual": 0.05, "stressed": 0.05, "mistyped": 0.05}  # of the pairs
LONGEST = 25  # words of a pair that is spelt otherwise
CHAT = dict(
    re.findall(
        r"([a-z][a-z' ]*)=(\w+)",
        """you=u, are=r, your=ur, you're=ur, thanks=thx, please=pls, because=cuz, though=tho, okay=ok, tomorrow=tmrw,
        people=ppl, really=rly, about=abt, see=c, great=gr8, before=b4, tonight=2nite, message=msg, and=n, to=2, for=4,
        minutes=mins, i don't know=idk, oh my god=omg, by the way=btw, going to=gonna, want to=wanna, got to=gotta,
        have to=hafta, give me=gimme, let me=lemme, kind of=kinda""",
    )
)
RARE = {"c", "n", "2", "4", "r", "abt", "2nite", "gr8", "b4", "hafta"}  # seldom replace the word
SHORTENED = re.compile(
    "|".join(rf"\b{re.escape(word)}\b(?!['’])" for word in sorted(CHAT, key=len, reverse=True)), re.IGNORECASE
)
SMALL = re.compile(r"(?:an?|and|as|at|but|by|for|from|in|into|nor|of|on|or|the|to|with)", re.IGNORECASE)  # words of titles
ADDRESS = re.compile(r"://|www\.|@|\w\.\w|\d")
WORD = re.compile(r"\b[a-z]{5,}\b")
LOWER = re.compile(r"[a-z'’]{2,}[.,:;!?]?")
NEIGHBOURS = {
    letter: near for row in ("qwertyuiop", "asdfghjkl", "zxcvbnm") for letter, near in zip(row, row[1:] + row[-2], strict=True)
}


def respell(pair: Pair, draw: random.Random) -> Pair:
    """Spell some pairs otherwise; long ones and those with addresses or numbers stay."""
    if len(pair[0].split()) > LONGEST or ADDRESS.search(pair[0]):
        return pair
    [style] = draw.choices((*SHARES, ""), (*SHARES.values(), 1 - sum(SHARES.values())))
    return respelt(pair, style, draw) if style else pair


def respelt(pair: Pair, style: str, draw: random.Random) -> Pair:
    """Spell the English side in a style."""
    english, german = pair
    return STYLES[style](english, draw), german


def titled(text: str, draw: random.Random) -> str:
    """Write the words with capitals; sometimes not the small ones in the middle, and without a full stop."""
    first, *others = text.split()
    lowered = draw.random() < 0.6
    words = (word if lowered and SMALL.fullmatch(word) else word[:1].upper() + word[1:] for word in others)
    return " ".join((first[:1].upper() + first[1:], *words)).removesuffix("." if draw.random() < 0.5 else "")


def casual(text: str, draw: random.Random) -> str:
    """Write without apostrophes, capitals and punctuation, and with abbreviations; each with some probability."""
    if draw.random() < 0.5:
        text = SHORTENED.sub(lambda found: _shortened(found[0], draw), text)
    if draw.random() < 0.7:
        text = re.sub("['’](?=[a-z])", "", text)
    if draw.random() < 0.8:
        text = text.lower()
    text = text.replace(",", "") if draw.random() < 0.4 else text
    return text.rstrip(".!?" if draw.random() < 0.4 else ".") or text


def _shortened(word: str, draw: random.Random) -> str:
    short = CHAT[word.lower()]
    return short if draw.random() < (0.05 if short in RARE else 0.5) else word


def stressed(text: str, draw: random.Random) -> str:
    """Write one to three words that follow each other in capitals, as in "do NOT touch it"."""
    words, length = text.split(), draw.choice((1, 1, 1, 2, 3))
    lowered = [words[0][:1].lower() + words[0][1:], *words[1:]]
    starts = [at for at in range(len(words) - length + 1) if all(map(LOWER.fullmatch, lowered[at : at + length]))]
    if starts:
        at = draw.choice(starts)
        words[at : at + length] = map(str.upper, words[at : at + length])
    return " ".join(words)


def mistyped(text: str, draw: random.Random) -> str:
    """Mistype one word, or two of a long text: two letters swapped, one missing, doubled or replaced by its neighbour."""
    for _ in range(1 + (len(text.split()) > 8)):
        words = list(WORD.finditer(text))
        if not words:
            return text
        found = draw.choice(words)
        at = draw.randrange(found.start() + 1, found.end() - 1)
        one, two = text[at], text[at + 1]
        wrong = draw.choice((two + one, two, one + one + two, NEIGHBOURS[one] + two))
        text = text[:at] + wrong + text[at + 2 :]
    return text


STYLES = {"title": titled, "casual": casual, "stressed": stressed, "mistyped": mistyped}
