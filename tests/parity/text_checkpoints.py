"""Folders as transformers writes them: small text encoders with random weights, tokenizers that learnt the tests' sentences.

Fresh weights of deviation 0.02 hardly tell one text from another, so that a wrong mask or a lost bias would not show. Here
matrices are drawn with deviation 1.8 / sqrt(columns), embeddings of tokens with 1, of other things with 0.3, and vectors are
moved by 0.1.
"""

from functools import cache
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from ..fixtures.decoders import CHAT, END
from ..fixtures.sentences import SENTENCES

ROBERTA_TOKENS = ["<s>", "<pad>", "</s>", "<unk>"]
BERT_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
MASK_WITH_SPACE = AddedToken("<mask>", lstrip=True, normalized=False, special=True)
ROBERTA_NAMES = {
    "bos_token": "<s>",
    "eos_token": "</s>",
    "cls_token": "<s>",
    "sep_token": "</s>",
    "pad_token": "<pad>",
    "unk_token": "<unk>",
    "mask_token": MASK_WITH_SPACE,
}
BERT_NAMES = {
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "mask_token": "[MASK]",
}


@cache
def word_pieces() -> Tokenizer:
    """BERT's: lower case, `##` before what goes on with a word."""
    made = _word_pieces(BERT_TOKENS)
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return made


@cache
def byte_pieces() -> Tokenizer:
    """RoBERTa's: bytes, the space before a word is part of it."""
    made = _byte_level(ROBERTA_TOKENS)
    made.add_special_tokens([MASK_WITH_SPACE])
    made.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=True, add_prefix_space=False)
    return made


@cache
def mpnet_pieces() -> Tokenizer:
    """MPNet's: BERT's pieces under RoBERTa's special tokens."""
    made = _word_pieces([*ROBERTA_TOKENS, "[UNK]"])
    made.add_special_tokens([MASK_WITH_SPACE])
    made.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=True, add_prefix_space=False)
    return made


@cache
def modern_pieces() -> Tokenizer:
    """ModernBERT's: bytes under BERT's special tokens."""
    made = _byte_level(BERT_TOKENS[:4])
    made.add_special_tokens([AddedToken("[MASK]", lstrip=True, normalized=False, special=True)])
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return made


@cache
def sentence_pieces() -> Tokenizer:
    """XLM-R's: a unigram model, U+2581 before a word."""
    made = Tokenizer(models.Unigram())
    made.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace("  ", " ")])
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=400, special_tokens=ROBERTA_TOKENS, unk_token="<unk>", show_progress=False)
    made.train_from_iterator(SENTENCES, trainer)
    made.add_special_tokens([MASK_WITH_SPACE])
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return made


@cache
def deberta_pieces() -> Tokenizer:
    """DeBERTa's: a unigram model under BERT's special tokens."""
    return _unigram_pieces(["[PAD]", "[CLS]", "[SEP]", "[UNK]"], [normalizers.NFC(), normalizers.Strip(left=False)])


@cache
def albert_pieces() -> Tokenizer:
    """ALBERT's: a unigram model of lower case."""
    steps = [normalizers.Replace("``", '"'), normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()]
    return _unigram_pieces(["<pad>", "<unk>", "[CLS]", "[SEP]"], steps)


def _unigram_pieces(special: list[str], steps: list[Any]) -> Tokenizer:
    made = Tokenizer(models.Unigram())
    made.normalizer = normalizers.Sequence(steps)
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Metaspace()
    unknown = next(token for token in special if "unk" in token.lower())
    trainer = trainers.UnigramTrainer(vocab_size=400, special_tokens=special, unk_token=unknown, show_progress=False)
    made.train_from_iterator(SENTENCES, trainer)
    made.add_special_tokens(["[MASK]"])
    framing = [(token, special.index(token)) for token in ("[CLS]", "[SEP]")]
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=framing
    )
    return made


def save_checkpoint(model: PreTrainedModel, tokenizer: Tokenizer, folder: Path) -> PreTrainedTokenizerFast:
    """Write weights, config.json and tokenizer files; returns the tokenizer as transformers has it."""
    names: dict[str, Any] = ROBERTA_NAMES if tokenizer.token_to_id("<s>") is not None else BERT_NAMES
    if tokenizer.token_to_id("<pad>") is not None:
        names = {**names, "pad_token": "<pad>", "unk_token": "<unk>"}
    if tokenizer.token_to_id(END) is not None:
        names = {"pad_token": END, "mask_token": CHAT[1]}
    if getattr(model.config, "type_vocab_size", 0) > 1:
        names = {**names, "model_input_names": ["input_ids", "token_type_ids", "attention_mask"]}
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)  # type: ignore[no-untyped-call]
    model.save_pretrained(folder)
    fast.save_pretrained(folder)
    return fast


@torch.no_grad()
def enlarge(model: PreTrainedModel) -> PreTrainedModel:
    """Weights at which every part of a model shows in its answers."""
    torch.manual_seed(7)
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue  # fixed sinusoids
        if parameter.ndim < 2:
            parameter.add_(0.1 * torch.randn_like(parameter))
        elif "embeddings." in name:
            parameter.normal_(std=1.0 if "word_embeddings" in name or "tok_embeddings" in name else 0.3)
        else:
            parameter.normal_(std=1.8 / parameter.shape[1] ** 0.5)
    model.train(False)
    return model


def _word_pieces(tokens: list[str]) -> Tokenizer:
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    made.train_from_iterator(SENTENCES, trainers.WordPieceTrainer(vocab_size=400, special_tokens=tokens, show_progress=False))
    return made


def _byte_level(tokens: list[str]) -> Tokenizer:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=tokens, initial_alphabet=alphabet, show_progress=False)
    made.train_from_iterator(SENTENCES, trainer)
    return made
