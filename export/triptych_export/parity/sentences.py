"""Source sentences as token ids, framed for a language pair: encoded texts, or random tokens."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from tokenizers import Tokenizer

from triptych_export.translation_source import TranslationSource
from triptych_serving.bundle.manifest import Frames, Framing

SEED = 20
SHORTEST, LONGEST = 3, 40  # tokens of a random sentence
LANGUAGE_PAIRS = 8  # number of language pairs with random sentences; each is decoded separately
Ids = list[int]


@dataclass(frozen=True)
class FramedPair:
    """A language pair of a model, and the tokens around its source sentences."""

    source: str
    target: str
    framing: Framing

    @classmethod
    def first(cls, model: TranslationSource) -> "FramedPair":
        """Return the model's first language pair."""
        return cls.of(model, next(iter(model.sources)), next(iter(model.targets)))

    @classmethod
    def of(cls, model: TranslationSource, source: str, target: str) -> "FramedPair":
        """Return the pair of two language codes of the model."""
        return cls(source, target, Frames(model.sources, model.targets).of(source, target))

    def frame(self, ids: Sequence[int]) -> Ids:
        """Add the frame to a source's ids, which include the end token if it has one."""
        return [*self.framing.before, *ids, *self.framing.after]

    def encode(self, tokenizer: Tokenizer, texts: Sequence[str]) -> list[Ids]:
        """Encode and frame texts."""
        return [self.frame(encoding.ids) for encoding in tokenizer.encode_batch([self.framing.text + text for text in texts])]


def draw_sentences(model: TranslationSource, count: int) -> tuple[list[Ids], list[tuple[int, ...]]]:
    """Draw random sentences and the forced prefix of each translation; the seed is fixed."""
    dice, config, tokenizer = random.Random(SEED), model.model.config, model.tokenizer
    codes = [(source, target) for source in model.sources for target in model.targets]
    drawn = dice.sample(codes, min(len(codes), 4 * LANGUAGE_PAIRS))
    drawn.sort(key=lambda pair: pair[0] == pair[1])  # those whose source and target differ are preferred
    pairs = [FramedPair.of(model, source, target) for source, target in drawn[:LANGUAGE_PAIRS]]
    special = {id for id, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    special |= {config.pad_id, config.bos_id, config.eos_id}
    size = min(tokenizer.get_vocab_size(), config.source_vocabulary_size or config.vocabulary_size)
    usual = [id for id in range(size) if id not in special]
    ends = tokenizer.encode("").ids
    sources, prefixes = [], []
    for index in range(count):
        pair = pairs[index % len(pairs)]
        task = tokenizer.encode(pair.framing.text, add_special_tokens=False).ids
        room = model.max_source - len(pair.frame([*task, *ends]))
        length = min(dice.randint(SHORTEST, LONGEST), max(1, room))
        sources.append(pair.frame([*task, *dice.choices(usual, k=length), *ends]))
        prefixes.append(pair.framing.forced)
    return sources, prefixes
