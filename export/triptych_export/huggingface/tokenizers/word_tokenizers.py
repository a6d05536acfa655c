"""WordPiece (BERT) and byte-level BPE (RoBERTa, BART) from the files of Hugging Face's slow tokenizers."""

from collections.abc import Mapping
from typing import Any

from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE, WordPiece

from triptych_export.errors import SourceError
from triptych_export.huggingface.folder import Folder
from triptych_export.huggingface.tokenizers.special_tokens import CONFIG, SpecialTokens


def word_piece(folder: Folder, tokens: SpecialTokens) -> Tokenizer:
    """Load the tokenizer of vocab.txt (one token per line), without post-processor.

    Raises:
        SourceError: vocab.txt cannot be read, or lacks the unknown token.
    """
    path = folder.path / "vocab.txt"
    try:
        names = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"{path}: cannot be read: {error}") from error
    if (unknown := tokens.name("unk_token")) not in names:
        raise SourceError(f"{path}: lacks the unknown token {unknown}")
    config: Mapping[str, Any] = folder.read_json(CONFIG) or {}
    tokenizer = Tokenizer(WordPiece({name: index for index, name in enumerate(names)}, unk_token=unknown))
    tokenizer.normalizer = normalizers.BertNormalizer(
        handle_chinese_chars=config.get("tokenize_chinese_chars", True),
        strip_accents=config.get("strip_accents"),  # None: where letters become small
        lowercase=config.get("do_lower_case", True),
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_tokens([*tokens.within(names), *tokens.behind(names)])
    return tokenizer


def byte_level(folder: Folder, tokens: SpecialTokens) -> Tokenizer:
    """Load the tokenizer of vocab.json and merges.txt, without post-processor.

    Raises:
        SourceError: a file cannot be read.
    """
    names = read_names(folder, "vocab.json")
    try:
        model = BPE.from_file(str(folder.path / "vocab.json"), str(folder.path / "merges.txt"))
    except Exception as error:  # tokenizers raises bare Exception
        raise SourceError(f"{folder.path}: vocab.json and merges.txt do not make a tokenizer: {error}") from error
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=adds_space(folder))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens([*tokens.within(names), *tokens.behind(names)])
    return tokenizer


def adds_space(folder: Folder) -> bool:
    """Tell whether a space is put before a text's first word."""
    return bool((folder.read_json(CONFIG) or {}).get("add_prefix_space", False))


def read_names(folder: Folder, file: str) -> list[str]:
    """Read the tokens of a JSON vocabulary in the order of their ids.

    Raises:
        SourceError: it is missing, or its ids are not 0, 1, ... without gaps.
    """
    ids = folder.read_json(file)
    if ids is None:
        raise SourceError(f"{folder.path}: missing {file}")
    if sorted(ids.values()) != list(range(len(ids))):
        raise SourceError(f"{folder.path / file}: its {len(ids):,} ids must be 0 to {len(ids) - 1:,}, each once")
    return sorted(ids, key=ids.__getitem__)
