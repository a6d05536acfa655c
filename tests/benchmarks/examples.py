"""Sentences to translate."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from triptych_training.data.corpus import Pair, read_pairs


@dataclass(frozen=True)
class Examples:
    """One test set, or a part of it in a fixed random order: neighbours differ in length."""

    name: str
    pairs: Sequence[Pair]
    skipped: int  # sources longer than the model takes

    @property
    def sources(self) -> list[str]:
        return [source for source, _ in self.pairs]

    @property
    def references(self) -> list[str]:
        return [target for _, target in self.pairs]

    def calls(self, batch: int) -> list[list[str]]:
        """The sources, so many a call."""
        return [self.sources[start : start + batch] for start in range(0, len(self.pairs), batch)]


def read_examples(path: str, sentences: int, tokenizer: Tokenizer, max_source_tokens: int) -> Examples:
    """`sentences` pairs of a file (`source<TAB>target` lines, or `SOURCE::TARGET`, two files); all of it where it has fewer."""
    pairs = read_pairs([path])
    encodings = tokenizer.encode_batch([source for source, _ in pairs])
    fitting = [pair for pair, encoding in zip(pairs, encodings, strict=True) if len(encoding.ids) <= max_source_tokens]
    random.Random(1).shuffle(fitting)
    return Examples(Path(path.partition("::")[0]).name, fitting[:sentences], len(pairs) - len(fitting))
