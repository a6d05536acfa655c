"""Texts, or pairs of texts, to ids with segments: the tokenizer of a BERT-family bundle."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from triptych_serving.errors import BundleError, InvalidInputError
from triptych_serving.manifest import TextTokens
from triptych_serving.tokenizing import Encoding, Tokenizer, is_unicode, make_tokenizer, read_tokenizer

# A text with more characters for each token that the model takes is refused without a look: tokenizing megabytes to refuse them
# would be dear. WordPiece makes one token of up to so many characters.
CHARACTERS_PER_TOKEN = 100


@dataclass(frozen=True)
class Names:
    """How the wire calls the inputs: `contents[3]`, or `inputs[3].text_pair`."""

    list: str = "contents"
    parts: tuple[str, ...] = ("",)

    def whole(self, index: int) -> str:
        return f"{self.list}[{index}]"

    def part(self, index: int, part: int) -> str:
        name = self.parts[part]
        return f"{self.whole(index)}.{name}" if name else self.whole(index)


CONTENTS = Names()


class BertCodec:
    """One bundle's tokenizer. Safe to use from several threads.

    A user's "[CLS]" is text like any other. So is "[MASK]", except where masks are to be filled (`encode_masked`).

    Args:
        path: `tokenizer.json`; its post-processor builds [CLS] A [SEP] B [SEP].
        tokens: ids of the special tokens.
        max_tokens: the most that the model takes, [CLS] and [SEP] included.

    Raises:
        BundleError: the file is not a tokenizer, or not one that fits the manifest.
    """

    def __init__(self, path: Path, tokens: TextTokens, max_tokens: int) -> None:
        self.path = path
        self._tokenizer = read_tokenizer(path)
        self._max_tokens = max_tokens
        self.mask = str(self._tokenizer.id_to_token(tokens.mask))
        self.vocabulary: int = self._tokenizer.get_vocab_size()
        self._pieces: dict[int, str] = {}
        if faults := self._faults(tokens):
            raise BundleError(path, faults)

    @property
    def prefix(self) -> str:
        """What the tokens that go on with a word begin with, such as "##"; empty if this tokenizer marks them otherwise."""
        return self._marks[0]

    @property
    def unknown(self) -> int | None:
        """The id that stands for what no other token covers."""
        return self._marks[1]

    def encode(self, inputs: Sequence[tuple[str, ...]], names: Names = CONTENTS, offsets: bool = False) -> list[Encoding]:
        """Tokenize texts (1-tuples) or pairs. Releases the GIL.

        Args:
            inputs: as many parts each as `names` has, or fewer.
            names: for errors.
            offsets: whether the encodings' offsets are needed.

        Raises:
            InvalidInputError: a text is empty, too long or not Unicode; names it.
        """
        tokenizer = self._tokenizer
        return self._encode(inputs, names, tokenizer.encode_batch if offsets else tokenizer.encode_batch_fast)

    def encode_masked(self, texts: Sequence[str]) -> list[Encoding]:
        """Tokenize texts in which "[MASK]" is the mask token; with offsets.

        Raises:
            InvalidInputError: as for `encode`.
        """
        return self._encode([(text,) for text in texts], CONTENTS, self._masking.encode_batch)

    def pieces(self, word: str) -> list[int]:
        """The ids of one word, which must be Unicode; special tokens not added."""
        if (whole := self._tokenizer.token_to_id(word)) is not None:
            return [whole]
        ids: list[int] = self._tokenizer.encode_batch([word], add_special_tokens=False)[0].ids
        return ids

    def piece(self, token: int) -> str:
        """A token as text; one that goes on with a word keeps its prefix."""
        if token not in self._pieces:
            self._pieces[token] = str(self._tokenizer.decode([token], skip_special_tokens=False))
        return self._pieces[token]

    def token(self, token: int) -> str:
        """A token as the vocabulary has it."""
        return str(self._tokenizer.id_to_token(token))

    @cached_property
    def _marks(self) -> tuple[str, int | None]:
        model: dict[str, Any] = json.loads(self._tokenizer.to_str())["model"]
        prefix = str(model.get("continuing_subword_prefix") or "") if model.get("type") == "WordPiece" else ""
        unknown = model.get("unk_token")
        return prefix, None if unknown is None else self._tokenizer.token_to_id(unknown)

    @cached_property
    def _masking(self) -> Tokenizer:
        """Made when it is needed: a second copy of the vocabulary."""
        content: dict[str, Any] = json.loads(self._tokenizer.to_str())
        for token in content["added_tokens"]:
            if token["content"] == self.mask:
                token.update(special=False, normalized=False, single_word=False)
        return make_tokenizer(json.dumps(content))

    def _encode(self, inputs: Sequence[tuple[str, ...]], names: Names, encode: Any) -> list[Encoding]:
        for index, parts in enumerate(inputs):
            self._check(index, parts, names)
        try:
            encodings: list[Encoding] = encode([parts[0] if len(parts) == 1 else parts for parts in inputs])
        except TypeError as error:  # it takes no lone surrogates
            raise _not_unicode(inputs, names) from error
        for index, encoding in enumerate(encodings):
            if len(encoding) > self._max_tokens:
                raise self._too_long(names.whole(index), f"{len(encoding):,} tokens")
        return encodings

    def _check(self, index: int, parts: tuple[str, ...], names: Names) -> None:
        for part, text in enumerate(parts):
            if not text.strip():
                raise InvalidInputError(names.part(index, part), "the text is empty")
        characters = sum(map(len, parts))
        if characters > self._max_tokens * CHARACTERS_PER_TOKEN:
            raise self._too_long(names.whole(index), f"{characters:,} characters")

    def _too_long(self, field: str, size: str) -> InvalidInputError:
        problem = f"{size} are too long, the model takes at most {self._max_tokens:,} tokens; split the text"
        return InvalidInputError(field, problem)

    def _faults(self, tokens: TextTokens) -> list[str]:
        names = ("pad", "cls", "sep", "mask")
        faults = [
            f"it has no token {number}, which the manifest has as {name}"
            for name in names
            if self._tokenizer.id_to_token(number := getattr(tokens, name)) is None
        ]
        if (ids := self._tokenizer.encode_batch([""])[0].ids) != [tokens.cls, tokens.sep]:
            faults.append(f"an empty text becomes {ids}, expected [CLS] [SEP], {[tokens.cls, tokens.sep]}")
        return faults


def _not_unicode(inputs: Sequence[tuple[str, ...]], names: Names) -> InvalidInputError:
    texts = ((names.part(index, part), text) for index, parts in enumerate(inputs) for part, text in enumerate(parts))
    field = next(field for field, text in texts if not is_unicode([text]))
    return InvalidInputError(field, "the text is not Unicode, it has a lone surrogate")
