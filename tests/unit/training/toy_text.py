"""A small world of animals in text: to pre-train on, and to label."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models
from torch import nn

from triptych_training.checkpoints.encoder import BertCheckpoint, save_bert_checkpoint
from triptych_training.data.tokenizer import literal
from triptych_training.data.wordpiece import SPECIAL_TOKENS, UNKNOWN, train_wordpiece
from triptych_training.models.bert import BertConfig, BertForPretraining, BertModel

ANIMALS = {"cat": "fish", "dog": "bones", "cow": "grass", "bird": "seeds", "frog": "flies", "horse": "hay"}
MEAT = {"fish", "bones", "flies"}
DOCUMENTS = [
    [f"Here is a {animal}.", f"The {animal} eats {food}.", f"We buy {food} for the {animal}.", f"Is the {animal} at home?"]
    for animal, food in ANIMALS.items()
]
TEXTS = [text for document in DOCUMENTS for text in document]


def _tokenizer() -> Tokenizer:
    """With every word and letter; a trained vocabulary has its pieces in another order each time."""
    tokenizer = train_wordpiece(TEXTS * 2, 120, lowercase=True)
    words = {word for text in TEXTS for word in text.lower().rstrip(".?").split()}
    letters = set("".join(TEXTS).lower().replace(" ", ""))
    pieces = [*SPECIAL_TOKENS, *sorted(letters | words), *sorted(f"##{letter}" for letter in letters)]
    tokenizer.model = models.WordPiece({piece: number for number, piece in enumerate(pieces)}, unk_token=UNKNOWN)
    return literal(tokenizer)


TOKENIZER = _tokenizer()
SHAPE = BertConfig(
    vocabulary_size=TOKENIZER.get_vocab_size(),
    model_dim=32,
    heads=2,
    feedforward_dim=48,
    layers=2,
    max_positions=48,
    dropout=0.0,
)


def write(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


def write_documents(path: Path, repeat: int = 1) -> str:
    """One document a line group; its sentences share one line."""
    return write(path, "\n\n".join([" ".join(document) for document in DOCUMENTS] * repeat) + "\n")


def write_labelled(path: Path, repeat: int = 1) -> str:
    """Who eats meat, a line each."""
    lines = [f"the {animal} eats {food}\t{'meat' if food in MEAT else 'plants'}" for animal, food in ANIMALS.items()]
    return write(path, "\n".join(lines * repeat) + "\n")


def write_words(path: Path, repeat: int = 1) -> str:
    """Animals and their food, in CoNLL's columns."""
    blocks = [f"the O\n{animal} B-ANIMAL\neats O\n{food} B-FOOD\n" for animal, food in ANIMALS.items()]
    return write(path, "\n".join(blocks * repeat))


def write_questions(path: Path, repeat: int = 1) -> str:
    """What each animal eats, in SQuAD's JSON."""
    paragraphs = []
    for document, (animal, food) in zip(DOCUMENTS, ANIMALS.items(), strict=True):
        context = " ".join(document)
        answer = {"text": food, "answer_start": context.index(food)}
        asked = {"id": animal, "question": f"what eats the {animal}", "answers": [answer]}
        paragraphs.append({"context": context, "qas": [asked]})
    return write(path, json.dumps({"data": [{"paragraphs": paragraphs * repeat}]}))


def stir(model: nn.Module) -> None:
    """Give fresh weights, many of them zero, answers of many kinds."""
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))


def make_bert(**changes: Any) -> BertForPretraining:
    """In evaluation mode."""
    model = BertForPretraining(replace(SHAPE, **changes)).eval()
    stir(model)
    return model


def write_encoder(folder: Path, model: BertModel | None = None) -> str:
    """A checkpoint to fine-tune."""
    torch.manual_seed(5)
    save_bert_checkpoint(BertCheckpoint(model or BertForPretraining(SHAPE), TOKENIZER), folder)
    return str(folder)


def ids_of(texts: Sequence[str]) -> list[list[int]]:
    return [encoding.ids for encoding in TOKENIZER.encode_batch(list(texts))]
