"""Byte-level BPE with one vocabulary for all languages (Sennrich et al. 2016), trained with Hugging Face `tokenizers`.

Byte-level pieces encode every Unicode text, so nothing is unknown and decoding restores the text. Digits are separate pieces,
which lets a small model copy numbers.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from triptych_training.data.files import replace_text
from triptych_training.errors import CheckpointError

PAD, BOS, EOS, UNKNOWN = "<pad>", "<s>", "</s>", "<unk>"
END = "<|endoftext|>"  # of decoder-only models: between two texts
SPECIAL_TOKENS = [PAD, BOS, EOS, UNKNOWN]  # ids 0, 1, 2, 3

# A word with the space before it; one digit; a sequence of punctuation marks; white space that precedes no word.
WORDS = r" ?[\p{L}\p{M}]+| ?\p{N}| ?[^\s\p{L}\p{M}\p{N}]+|\s+(?!\S)|\s+"


def train_tokenizer(texts: Iterable[str], vocabulary_size: int, languages: Sequence[str] = ()) -> Tokenizer:
    """Learn a vocabulary of at most `vocabulary_size` pieces; encoding appends `</s>`.

    `languages` are additional special tokens.
    """
    tokenizer = _byte_level(texts, vocabulary_size, [*SPECIAL_TOKENS, *languages], [normalizers.Prepend(" ")])
    tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {EOS}", special_tokens=[(EOS, SPECIAL_TOKENS.index(EOS))]
    )
    return literal(tokenizer)


def train_gpt_tokenizer(texts: Iterable[str], vocabulary_size: int) -> Tokenizer:
    """Learn a vocabulary of at most `vocabulary_size` pieces for generated text, where every space counts; END is id 0."""
    tokenizer = _byte_level(texts, vocabulary_size, [END], [])
    tokenizer.decoder = decoders.ByteLevel()
    return literal(tokenizer)


def _byte_level(
    texts: Iterable[str], vocabulary_size: int, special: Sequence[str], others: Sequence[normalizers.Normalizer]
) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), *others])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(WORDS), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary_size,
        min_frequency=2,
        special_tokens=list(special),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, path: Path) -> None:
    """Write `tokenizer.json` in one move: an existing file is always complete."""
    replace_text(path, tokenizer.to_str(pretty=True))


def load_tokenizer(path: Path) -> Tokenizer:
    """Read `tokenizer.json`; raises CheckpointError if the file cannot be read or is not a tokenizer."""
    try:
        return literal(Tokenizer.from_file(str(path)))
    except Exception as error:  # tokenizers raises bare Exception
        raise CheckpointError(f"{path}: not a tokenizer ({error})") from error


def literal(tokenizer: Tokenizer) -> Tokenizer:
    """Treat text that looks like a special token as ordinary text: a user's `</s>` must not end a sentence."""
    tokenizer.encode_special_tokens = True
    return tokenizer
