"""WordPiece (Schuster and Nakajima 2012) with BERT's special tokens, trained with Hugging Face `tokenizers`."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

PAD, UNKNOWN, CLS, SEP, MASK = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
SPECIAL_TOKENS = [PAD, UNKNOWN, CLS, SEP, MASK]  # ids 0 to 4


def ordinary_ids(tokenizer: Tokenizer) -> NDArray[np.int64]:
    """List the ids that are not special tokens, of any tokenizer."""
    special = [number for number, token in tokenizer.get_added_tokens_decoder().items() if token.special]
    known = [number for token in SPECIAL_TOKENS if (number := tokenizer.token_to_id(token)) is not None]
    return np.setdiff1d(np.arange(tokenizer.get_vocab_size()), special + known)


def train_wordpiece(texts: Iterable[str], vocabulary_size: int, lowercase: bool) -> Tokenizer:
    """Learn a vocabulary of at most `vocabulary_size` pieces.

    Encoding gives `[CLS] A [SEP]`, or `[CLS] A [SEP] B [SEP]` with segments 0 and 1. `lowercase` strips accents as well.
    """
    tokenizer = Tokenizer(models.WordPiece(unk_token=UNKNOWN, max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocabulary_size, min_frequency=2, special_tokens=SPECIAL_TOKENS, limit_alphabet=400, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{CLS} $A {SEP}",
        pair=f"{CLS} $A {SEP} $B:1 {SEP}:1",
        special_tokens=[(token, SPECIAL_TOKENS.index(token)) for token in (CLS, SEP)],
    )
    return tokenizer
