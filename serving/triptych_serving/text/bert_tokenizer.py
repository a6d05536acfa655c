"""The tokenizer of a BERT-family bundle: texts or pairs of texts to ids with segments."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from triptych_serving.bundle.manifest import TextTokens
from triptych_serving.bundle.manifest.text import PAIR_PLACES, PLACE, TEXT_PLACE
from triptych_serving.errors import BundleError
from triptych_serving.text.tokenizers import Encoding, Tokenizer, make_tokenizer, read_tokenizer
from triptych_serving.text.validation import CONTENTS, UNLIMITED, InputNames, TextLimits, encode_steps
from triptych_text.steps import Steps

Read = TypeVar("Read")
Encode = Callable[[list[Any]], list[Encoding]]  # of texts or pairs

CHARACTERS_PER_TOKEN = 100  # maximum length of a WordPiece token
ANY_TEXT = "a"


def fill_template(template: Sequence[str], *texts: str) -> str | tuple[str, ...]:
    """Put a text or a pair into a template, see TextManifest: what is tokenized of it, one text or two."""
    given = dict(zip(PAIR_PLACES if len(texts) > 1 else (TEXT_PLACE,), texts, strict=True))
    filled = tuple("".join(given.get(piece, piece) for piece in PLACE.split(text)) for text in template)
    return filled if len(filled) > 1 else filled[0]


class BertTokenizer:
    """One bundle's tokenizer. Thread-safe.

    "[CLS]" in a caller's text is ordinary text. So is the mask token, "[MASK]" or another, except in `encode_masked`.

    Args:
        path: `tokenizer.json`; its post-processor builds [CLS] A [SEP] B [SEP].
        max_tokens: maximum input length, including [CLS] and [SEP].
        template: of texts or pairs, see TextManifest; empty: they are tokenized as they are.

    Raises:
        BundleError: the file is not a tokenizer, or does not fit the manifest.
    """

    def __init__(self, path: Path, tokens: TextTokens, max_tokens: int, template: Sequence[str] = ()) -> None:
        self.path = path
        self._template = tuple(template)
        self._tokenizer = read_tokenizer(path)
        self._limits = TextLimits(max_tokens, max_tokens * CHARACTERS_PER_TOKEN, least=1)
        self.mask = str(self._tokenizer.id_to_token(tokens.mask))
        self.vocabulary: int = self._tokenizer.get_vocab_size()
        self._mask_id = tokens.mask
        self._pieces: dict[int, str] = {}
        self._joining: dict[int, tuple[str, bool]] = {}
        if faults := self._faults(tokens):
            raise BundleError(path, faults)

    @property
    def prefix(self) -> str:
        """Prefix of tokens that continue a word, such as "##"; empty if this tokenizer marks them otherwise."""
        return self._marks[0]

    @cached_property
    def spaced(self) -> bool:
        """True if a mask includes the white space before it, as where tokens include the space before their word."""
        token = self._tokenizer.get_added_tokens_decoder().get(self._mask_id)
        if (token is not None and token.lstrip) or self.space is None:
            return token is not None and bool(token.lstrip)
        # DeBERTa's mask does not say so, but its tokenizer strips the text before.
        apart, joined = self._masking.encode_batch([f"{ANY_TEXT} {self.mask}", f"{ANY_TEXT}{self.mask}"])
        return bool(apart.ids == joined.ids)

    @property
    def unknown(self) -> int | None:
        """Id of the unknown token."""
        return self._marks[1]

    @property
    def space(self) -> int | None:
        """Id of the token for a space alone, which SentencePiece's tokenizers have."""
        number: int | None = self._tokenizer.token_to_id("▁")
        return None if self.prefix else number  # else it is an ordinary character

    def encode(
        self,
        inputs: Sequence[tuple[str, ...]],
        read: Callable[[Encoding], Read],
        names: InputNames = CONTENTS,
        offsets: bool = False,
        most: int = UNLIMITED,
    ) -> Steps[list[Read]]:
        """Tokenize texts (1-tuples) or pairs in small steps. Releases the GIL.

        Args:
            inputs: as many parts each as `names` has, or fewer.
            read: makes what is returned of each encoding; encodings themselves take a hundred bytes for each token.
            offsets: True if the encodings' offsets are needed.
            most: tokens of all inputs.

        Raises:
            InvalidInputError: a text is empty, too long or not Unicode; names it.
        """
        tokenizer = self._tokenizer
        encode = self._filling(tokenizer.encode_batch if offsets else tokenizer.encode_batch_fast)
        return encode_steps(encode, inputs, names, self._limits, most, read)

    def encode_or_truncate(
        self,
        inputs: Sequence[tuple[str, ...]],
        read: Callable[[Encoding], Read],
        names: InputNames = CONTENTS,
        *,
        truncate: bool,
        offsets: bool = False,
        most: int = UNLIMITED,
    ) -> Steps[tuple[list[Read], list[bool]]]:
        """Tokenize as `encode`; with `truncate`, cut off what is too long. Also return which inputs were cut off."""
        if not truncate:
            return (yield from self.encode(inputs, read, names, offsets, most)), [False] * len(inputs)
        kept = [tuple(text[: self._limits.characters // len(parts)] for text in parts) for parts in inputs]
        cut = [one != given for one, given in zip(kept, inputs, strict=True)]
        encode = self._filling(self._truncating.encode_batch)
        encoded = yield from encode_steps(
            encode, kept, names, self._limits, most, lambda encoding: (read(encoding), bool(encoding.overflowing))
        )
        return [result for result, _ in encoded], [one or over for one, (_, over) in zip(cut, encoded, strict=True)]

    def encode_masked(
        self, texts: Sequence[str], read: Callable[[Encoding], Read], offsets: bool = False, most: int = UNLIMITED
    ) -> Steps[list[Read]]:
        """Tokenize texts in which `mask` is the mask token; arguments and errors as for `encode`."""
        encode = self._masking.encode_batch if offsets else self._masking.encode_batch_fast
        return encode_steps(encode, [(text,) for text in texts], CONTENTS, self._limits, most, read)

    def pieces(self, word: str) -> list[int]:
        """Return the ids of one word, which must be Unicode, without special tokens."""
        if (whole := self._tokenizer.token_to_id(word)) is not None:
            return [whole]
        ids: list[int] = self._tokenizer.encode_batch([word], add_special_tokens=False)[0].ids
        return ids

    def piece(self, token: int) -> str:
        """Return a token as text; one that continues a word keeps its prefix."""
        if token not in self._pieces:
            self._pieces[token] = str(self._tokenizer.decode([token], skip_special_tokens=False))
        return self._pieces[token]

    def joining(self, token: int) -> tuple[str, bool]:
        """Return a token as text after other text, and whether white space there must go: the token has its own, or none."""
        if token not in self._joining:
            piece = self.piece(token)
            continues = self.prefix and piece.startswith(self.prefix) and len(piece) > len(self.prefix)
            after = self._behind(token) if self.spaced else piece.removeprefix(self.prefix) if continues else piece
            self._joining[token] = after, self.spaced or bool(continues)
        return self._joining[token]

    def token(self, token: int) -> str:
        """Return a token as it is in the vocabulary."""
        return str(self._tokenizer.id_to_token(token))

    def _filling(self, encode: Encode) -> Encode:
        """Return a call that puts inputs into the template, if there is one, before it tokenizes them with `encode`."""

        def fill(inputs: list[Any]) -> list[Encoding]:
            return encode([fill_template(self._template, *([each] if isinstance(each, str) else each)) for each in inputs])

        return fill if self._template else encode

    def _behind(self, token: int) -> str:
        """Return a token as text after another one, including its leading space, if any."""
        before = self._tokenizer.decode([self._anchor], skip_special_tokens=False)
        return str(self._tokenizer.decode([self._anchor, token], skip_special_tokens=False)).removeprefix(before)

    @cached_property
    def _marks(self) -> tuple[str, int | None]:
        model: dict[str, Any] = json.loads(self._tokenizer.to_str())["model"]
        prefix = str(model.get("continuing_subword_prefix") or "") if model.get("type") == "WordPiece" else ""
        unknown = model.get("unk_token")
        return prefix, model.get("unk_id") if unknown is None else self._tokenizer.token_to_id(unknown)

    @cached_property
    def _anchor(self) -> int:
        """A token that others can follow."""
        ids = self.pieces(ANY_TEXT)
        return ids[-1] if ids else self._mask_id

    @cached_property
    def _masking(self) -> Tokenizer:
        """The tokenizer that recognises masks, made when needed: it is a second copy of the vocabulary."""
        content: dict[str, Any] = json.loads(self._tokenizer.to_str())
        for token in content["added_tokens"]:
            if token["content"] == self.mask:
                token.update(special=False, normalized=False, single_word=False)
        return make_tokenizer(json.dumps(content))

    @cached_property
    def _truncating(self) -> Tokenizer:
        """The tokenizer that truncates, made when needed: it is a second copy of the vocabulary."""
        tokenizer = make_tokenizer(self._tokenizer.to_str())
        tokenizer.enable_truncation(self._limits.tokens)
        return tokenizer

    def _faults(self, tokens: TextTokens) -> list[str]:
        faults = [
            f"it has no token {number}, which the manifest has as {name}"
            for name, number in asdict(tokens).items()
            if number is not None and self._tokenizer.id_to_token(number) is None
        ]
        frame = [number for number in (tokens.cls, tokens.sep) if number is not None]
        if (ids := self._tokenizer.encode_batch([""])[0].ids) != frame and not self._template:
            faults.append(f"an empty text becomes {ids}, expected [CLS] [SEP], {frame}")
        return faults
