"""Tiny texts about animals, for pre-training and labelling, and a tiny BERT."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models

from triptych_training.checkpoints.encoder import TextCheckpoint, save_bert_checkpoint
from triptych_training.data.tokenizer import literal
from triptych_training.data.wordpiece import SPECIAL_TOKENS, UNKNOWN, train_wordpiece
from triptych_training.models.bert import BertConfig, BertForPretraining, BertModel

from ...fixtures.noise import stir

ANIMALS = {"cat": "fish", "dog": "bones", "cow": "grass", "bird": "seeds", "frog": "flies", "horse": "hay"}
MEAT = {"fish", "bones", "flies"}
DOCUMENTS = [
    [f"Here is a {animal}.", f"The {animal} eats {food}.", f"We buy {food} for the {animal}.", f"Is the {animal} at home?"]
    for animal, food in ANIMALS.items()
]
TEXTS = [text for document in DOCUMENTS for text in document]


def _tokenizer() -> Tokenizer:
    """Make a vocabulary of all words and letters in fixed order; the order of a trained one varies."""
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
    """Write one document per paragraph, its sentences on one line."""
    return write(path, "\n\n".join([" ".join(document) for document in DOCUMENTS] * repeat) + "\n")


def write_labelled(path: Path, repeat: int = 1) -> str:
    """Write labelled texts: who eats meat."""
    lines = [f"the {animal} eats {food}\t{'meat' if food in MEAT else 'plants'}" for animal, food in ANIMALS.items()]
    return write(path, "\n".join(lines * repeat) + "\n")


def write_words(path: Path, repeat: int = 1) -> str:
    """Write labelled words in CoNLL's columns: animals and their food."""
    blocks = [f"the O\n{animal} B-ANIMAL\neats O\n{food} B-FOOD\n" for animal, food in ANIMALS.items()]
    return write(path, "\n".join(blocks * repeat))


def write_questions(path: Path, repeat: int = 1) -> str:
    """Write questions in SQuAD's JSON: which animal eats what."""
    paragraphs = []
    for document, (animal, food) in zip(DOCUMENTS, ANIMALS.items(), strict=True):
        context = " ".join(document)
        answer = {"text": food, "answer_start": context.index(food)}
        asked = {"id": animal, "question": f"what eats the {animal}", "answers": [answer]}
        paragraphs.append({"context": context, "qas": [asked]})
    return write(path, json.dumps({"data": [{"paragraphs": paragraphs * repeat}]}))


def make_bert(**changes: Any) -> BertForPretraining:
    """Make a tiny BERT in evaluation mode."""
    return stir(BertForPretraining(replace(SHAPE, **changes)))


def write_encoder(folder: Path, model: BertModel | None = None) -> str:
    """Write a checkpoint to fine-tune."""
    torch.manual_seed(5)
    save_bert_checkpoint(TextCheckpoint(model or BertForPretraining(SHAPE), TOKENIZER), folder)
    return str(folder)


def ids_of(texts: Sequence[str]) -> list[list[int]]:
    return [encoding.ids for encoding in TOKENIZER.encode_batch(list(texts))]
