"""WordPiece (Schuster and Nakajima 2012) with BERT's special tokens, trained with Hugging Face `tokenizers`."""

import unicodedata
from collections import Counter
from collections.abc import Iterable
from itertools import chain

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

PAD, UNKNOWN, CLS, SEP, MASK = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
SPECIAL_TOKENS = [PAD, UNKNOWN, CLS, SEP, MASK]  # ids 0 to 4
ALPHABET = 400  # letters at most, the most frequent ones


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
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    texts = [normalizer.normalize_str(text) for text in texts]
    counts = Counter(chain.from_iterable(texts))
    kinds = {letter: unicodedata.category(letter)[0] for letter in counts}
    letters = sorted((letter for letter in counts if kinds[letter] not in "CZ"), key=lambda letter: (-counts[letter], letter))
    letters = letters[:ALPHABET]
    # Unless they are given, the trainer numbers letters within words in the random order of a hash map, which decides ties.
    words = chain.from_iterable(tokenizer.pre_tokenizer.pre_tokenize_str(text) for text in texts)
    inner = set(chain.from_iterable(word[1:] for word in {word for word, _ in words}))
    within = sorted(f"##{letter}" for letter in inner.intersection(letters))
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocabulary_size,
        min_frequency=2,
        special_tokens=[*SPECIAL_TOKENS, *within],
        initial_alphabet=letters,
        limit_alphabet=ALPHABET,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer = Tokenizer(tokenizer.model)  # without the letters as special tokens
    tokenizer.add_special_tokens(SPECIAL_TOKENS)
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{CLS} $A {SEP}",
        pair=f"{CLS} $A {SEP} $B:1 {SEP}:1",
        special_tokens=[(token, SPECIAL_TOKENS.index(token)) for token in (CLS, SEP)],
    )
    return tokenizer
