"""Conversion of SentencePiece models to `tokenizers.Tokenizer` with identical ids.

A `tokenizers` model matches every name of its vocabulary in a text. SentencePiece never matches control, byte and unknown
pieces or, in a vocabulary shared by two languages, pieces of the other language. To exclude these here:

- special tokens keep their names, and a text that spells one out is split inside the name (`cuts`);
- in a unigram model all others are renamed to `HIDDEN + piece`, which the decoder turns back into the piece. A BPE model
  only forms pieces for which it has merges.

SentencePiece passes on a run of characters without pieces unchanged, and the vocabulary of the other language may contain it.
So runs that are names in the vocabulary stay, and others become `UNKNOWN`.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE, Unigram

from triptych_export.errors import SourceError
from triptych_export.huggingface.tokenizers.piece_model import SPACE, UNIGRAM, PieceModel, PieceType

HIDDEN = "\uffff"  # two Unicode noncharacters
UNKNOWN = "\ufffe"
COMBINING = r"\n\p{M}\x{200C}\x{200D}\x{FF9E}\x{FF9F}"  # characters that belong to the grapheme before them
SEMITIC = r"[\x{591}-\x{8FF}&&\p{M}]"  # marks that are often not in Unicode's canonical order


@dataclass(frozen=True)
class Vocabulary:
    """Token ids of a checkpoint."""

    names: Sequence[str]  # pieces and special tokens in the order of their ids
    unknown: str  # the unknown token, one of `names`
    special: Sequence[AddedToken]  # the tokens of `names` that decoding omits
    behind: Sequence[AddedToken] = ()  # further tokens, whose ids follow

    @cached_property
    def reserved(self) -> Collection[str]:
        """Names of special tokens."""
        return {token.content for token in self.special}


def piece_tokenizer(model: PieceModel, vocabulary: Vocabulary, strips: bool = False) -> Tokenizer:
    """Convert a SentencePiece model to a tokenizer without post-processor; pieces that the vocabulary lacks are never formed.

    With `strips`, decoding removes white space at both ends, as Hugging Face's tokenizers around the sentencepiece package do;
    otherwise only the space before the first word.

    Raises:
        SourceError: the vocabulary lacks parts from which BPE merges longer pieces.
    """
    foreign = _foreign(model, vocabulary)
    hidden = _hidden(model, vocabulary, foreign)
    tokenizer = Tokenizer(
        _unigram(model, vocabulary, hidden) if model.algorithm == UNIGRAM else _bpe(model, vocabulary, foreign)
    )
    tokenizer.normalizer = normalizers.Sequence([*_normalizers(model), *_unknown_runs(model, foreign)])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(_pre_tokenizers(model, vocabulary))
    tokenizer.decoder = decoders.Sequence(_decoders(model, bool(hidden), strips))
    tokenizer.add_tokens([_literal(token) for token in (*vocabulary.special, *vocabulary.behind)])
    return tokenizer


def _literal(token: AddedToken) -> AddedToken:
    """Let a token be found as it is written; a normalized one begins with a space, and is only found at the start of words."""
    flags = {name: getattr(token, name) for name in ("single_word", "lstrip", "rstrip", "special")}
    return AddedToken(token.content, normalized=False, **flags)


def cuts(names: Iterable[str], found: Iterable[str]) -> str:
    """Make a pattern of characters after which to split a text ("merged_with_previous"), so that none of `names` is matched.

    If possible, a name is cut between two letters that are adjacent in no piece of `found`, all other names, and of which at
    least one is a piece: the result is then the same as if the name were not in the vocabulary. A name of one letter cannot be
    cut.
    """
    pieces = set(found)
    joined = {pair for piece in pieces for pair in _pairs(piece)}
    pairs: dict[str, None] = {}  # in order
    whole = []
    for name in names:
        free = [pair for pair in _pairs(name) if pair not in joined and not pieces.isdisjoint(pair)]
        if free:
            pairs[next((pair for pair in free if pair in pairs), free[0])] = None
        elif len(name) > 1:
            whole.append(name)
    patterns = [f"{re.escape(text[0])}(?={re.escape(text[1:])})" for text in (*whole, *pairs)]
    return "|".join(patterns)


def _pairs(name: str) -> list[str]:
    return [name[place : place + 2] for place in range(len(name) - 1)]


def cutter(pattern: str) -> pre_tokenizers.PreTokenizer:
    """Make a pre-tokenizer that applies the pattern of `cuts`."""
    return pre_tokenizers.Split(Regex(pattern), "merged_with_previous")


def _foreign(model: PieceModel, vocabulary: Vocabulary) -> list[str]:
    """Names made of characters without pieces: a text with such a name between other characters gets its id."""
    if model.byte_fallback:
        return []  # characters without a piece become bytes
    letters = {name for name in model.found if len(name) == 1}
    return [name for name in vocabulary.names if letters.isdisjoint(name) and name not in vocabulary.reserved]


def _unfound(model: PieceModel, vocabulary: Vocabulary) -> list[str]:
    """Names that must keep their ids but must not match in a text."""
    known = {*vocabulary.reserved, *(piece.text for piece in model.pieces if piece.kind == PieceType.BYTE)}
    return [name for name in vocabulary.names if name in known and name not in model.found]


def _hidden(model: PieceModel, vocabulary: Vocabulary, foreign: Iterable[str]) -> set[str]:
    """Names that a unigram model must not match, and whose spelling may change."""
    if model.algorithm != UNIGRAM:
        return set()
    return set(vocabulary.names).difference(model.found, foreign, _unfound(model, vocabulary))


def _unigram(model: PieceModel, vocabulary: Vocabulary, hidden: Collection[str]) -> Unigram:
    # The unknown token's score is relative to the lowest one.
    lowest = min((piece.score for piece in model.pieces if piece.kind == PieceType.NORMAL), default=0.0)
    scores = {name: max(piece.score, lowest) for name, piece in model.found.items()}
    entries = [(HIDDEN + name if name in hidden else name, scores.get(name, lowest)) for name in vocabulary.names]
    return Unigram(entries, unk_id=vocabulary.names.index(vocabulary.unknown), byte_fallback=model.byte_fallback)


def _bpe(model: PieceModel, vocabulary: Vocabulary, foreign: Collection[str]) -> BPE:
    ids, names = {name: index for index, name in enumerate(vocabulary.names)}, set(foreign)
    foreign_merges = [way for name in sorted(foreign, key=len) for way in _ways(name, names)]
    return BPE(
        vocab=ids,
        merges=[*_merges(model, ids), *foreign_merges],
        unk_token=vocabulary.unknown,
        fuse_unk=True,
        byte_fallback=model.byte_fallback,
        ignore_merges=bool(model.symbols),  # symbols have no merges
    )


def _merges(model: PieceModel, ids: Mapping[str, int]) -> list[tuple[str, str]]:
    """List all merges of two pieces into one, best pieces first."""
    pieces = [piece for piece in model.pieces if piece.kind == PieceType.NORMAL]
    normal = {piece.text for piece in pieces}
    kept = normal.intersection(ids)
    merges: list[tuple[str, str]] = []
    lost = []
    for piece in sorted((piece for piece in pieces if piece.text in kept), key=lambda piece: -piece.score):
        usable = _ways(piece.text, kept)
        merges += usable
        if not usable and _ways(piece.text, normal):
            lost.append(piece.text)
    if lost:
        raise SourceError(f"the vocabulary lacks the parts of {len(lost)} SentencePiece pieces, such as {lost[0]!r}")
    return merges


def _ways(name: str, parts: Collection[str]) -> list[tuple[str, str]]:
    """List the ways to split a name into two pieces."""
    ways = ((name[:place], name[place:]) for place in range(1, len(name)))
    return [way for way in ways if way[0] in parts and way[1] in parts]


def _normalizers(model: PieceModel) -> list[normalizers.Normalizer]:
    steps = _character_rules(model.charsmap) if model.charsmap else []
    if model.trims:
        steps.append(normalizers.Replace(Regex(r"\A +| +(?= )"), ""))
    steps.append(normalizers.Replace(" ", SPACE))
    if model.trims:
        steps.append(normalizers.Replace(Regex(rf"{SPACE}+\z"), ""))
    if model.dummy_prefix:
        steps.append(normalizers.Prepend(SPACE))
    return steps


def _character_rules(charsmap: bytes) -> list[normalizers.Normalizer]:
    """Read the compiled normalisation rules, and work around the library's misreading of them.

    SentencePiece applies the longest matching rule. `Precompiled` does so for single characters, but of a grapheme of several
    it may drop all but the first, and it never composes Korean syllables. So graphemes are split for it, and NFC composes what
    the rules (NFKC in all common models) would compose. NFC also sorts marks, which SentencePiece does not, so marks that are
    often unsorted are kept apart.
    """
    rules = normalizers.Precompiled(charsmap)
    if rules.normalize_str("e\u0301") != "\u00e9":
        return [rules]  # they do not compose
    return [
        normalizers.Replace(Regex(f"(?<=[^{HIDDEN}])(?=[{COMBINING}])"), HIDDEN),
        rules,
        normalizers.Replace(Regex(f"(?<!{SEMITIC}){HIDDEN}|{HIDDEN}(?!{SEMITIC})"), ""),
        normalizers.NFC(),
        normalizers.Replace(HIDDEN, ""),
    ]


def _unknown_runs(model: PieceModel, foreign: Sequence[str]) -> list[normalizers.Normalizer]:
    """Merge runs of characters without pieces to one unknown token, unless the run is itself a name."""
    if not foreign:
        return []
    letters = sorted(name for name in model.found if len(name) == 1)
    other = "[^" + "".join(f"\\x{{{ord(letter):X}}}" for letter in letters) + "]"  # one character without a piece
    names = "|".join(re.escape(name) for name in foreign if len(name) > 1)
    but = f"(?!(?:{names})(?!{other}))" if names else ""
    return [normalizers.Replace(Regex(f"(?<!{other}){but}{other}{{2,}}"), UNKNOWN)]


def _pre_tokenizers(model: PieceModel, vocabulary: Vocabulary) -> list[pre_tokenizers.PreTokenizer]:
    # Split into words, which are cached, unless a piece spans several words.
    by_word = not any(SPACE in name[1:] for name in model.found)
    steps: list[pre_tokenizers.PreTokenizer] = [pre_tokenizers.Metaspace(SPACE, prepend_scheme="never", split=by_word)]
    if model.symbols:
        longest_first = sorted(model.symbols, key=len, reverse=True)
        steps.append(pre_tokenizers.Split(Regex("|".join(map(re.escape, longest_first))), "isolated"))
    whole_words = model.algorithm == UNIGRAM or model.symbols  # whole words may match names; otherwise merges decide
    if whole_words and (pattern := cuts(_unfound(model, vocabulary), model.found)):
        steps.append(cutter(pattern))
    return steps


def _decoders(model: PieceModel, hides: bool, strips: bool) -> list[decoders.Decoder]:
    steps: list[decoders.Decoder] = [decoders.Replace(HIDDEN, "")] if hides else []
    if model.byte_fallback:
        steps.append(decoders.ByteFallback())
    steps.append(decoders.Metaspace(SPACE, prepend_scheme="always" if model.dummy_prefix or model.trims else "never"))
    if strips:
        steps += [decoders.Fuse(), decoders.Replace(Regex(r"\A\s+|\s+\z"), "")]
    return steps
