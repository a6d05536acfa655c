"""SentencePiece model files: pieces, scores and text normalisation.

Declares the few needed fields of sentencepiece_model.proto itself: the generated module of the sentencepiece package needs a
newer protobuf runtime than gRPC's generated code. Source:
https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from triptych_export.errors import SourceError
from triptych_export.huggingface.folder import pointer_remedy

SPACE = "\u2581"  # represents a space in pieces
BPE, UNIGRAM = "bpe", "unigram"
ALGORITHMS = {1: UNIGRAM, 2: BPE, 3: "word", 4: "char"}
PACKAGE = "triptych.sentencepiece"

_Field = descriptor_pb2.FieldDescriptorProto
FIELDS: Mapping[str, tuple[tuple[str, int, Any], ...]] = {
    "Piece": (("piece", 1, _Field.TYPE_STRING), ("score", 2, _Field.TYPE_FLOAT), ("type", 3, _Field.TYPE_INT32)),
    "Trainer": (
        ("model_type", 3, _Field.TYPE_INT32),
        ("treat_whitespace_as_suffix", 24, _Field.TYPE_BOOL),
        ("byte_fallback", 35, _Field.TYPE_BOOL),
    ),
    "Normalizer": (
        ("precompiled_charsmap", 2, _Field.TYPE_BYTES),
        ("add_dummy_prefix", 3, _Field.TYPE_BOOL),
        ("remove_extra_whitespaces", 4, _Field.TYPE_BOOL),
        ("escape_whitespaces", 5, _Field.TYPE_BOOL),
    ),
    "Model": (("pieces", 1, "Piece"), ("trainer_spec", 2, "Trainer"), ("normalizer_spec", 3, "Normalizer")),
}
DEFAULTS = {"type": "1", "model_type": "1", "add_dummy_prefix": "true", "remove_extra_whitespaces": "true"}
DEFAULTS |= {"escape_whitespaces": "true"}


class PieceType(IntEnum):
    """Type of a piece."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3  # never matched in a text
    USER_DEFINED = 4  # matched before all others
    UNUSED = 5  # never matched in a text
    BYTE = 6  # only used if a character has no piece


@dataclass(frozen=True)
class Piece:
    """One entry of the vocabulary."""

    text: str
    score: float  # log-probability of a unigram model, minus the rank of a BPE one
    kind: PieceType = PieceType.NORMAL


@dataclass(frozen=True)
class PieceModel:
    """One SentencePiece model."""

    pieces: tuple[Piece, ...]  # all pieces in the order of their ids
    algorithm: str = UNIGRAM  # "unigram" or "bpe"
    charsmap: bytes = b""  # compiled rules of character normalisation; empty: none
    dummy_prefix: bool = True  # whether a space is put before a text
    trims: bool = True  # whether spaces at both ends, and all but one of several, are removed
    byte_fallback: bool = False  # whether a character without a piece becomes its UTF-8 bytes

    @cached_property
    def found(self) -> Mapping[str, Piece]:
        """Pieces that can occur in a text."""
        return {piece.text: piece for piece in self.pieces if piece.kind in (PieceType.NORMAL, PieceType.USER_DEFINED)}

    @cached_property
    def symbols(self) -> tuple[str, ...]:
        """User-defined symbols of the model."""
        return tuple(piece.text for piece in self.pieces if piece.kind == PieceType.USER_DEFINED)


def read_piece_model(path: Path) -> PieceModel:
    """Read a `.model` or `.spm` file.

    Raises:
        SourceError: the file is not a SentencePiece model, or not of a supported type.
    """
    model = _message()()
    try:
        model.ParseFromString(path.read_bytes())
        pieces = tuple(Piece(piece.piece, piece.score, PieceType(piece.type)) for piece in model.pieces)
    except (OSError, DecodeError, ValueError) as error:
        raise SourceError(f"{path}: not a SentencePiece model: {error}{pointer_remedy(path)}") from error
    trainer, normalizer = model.trainer_spec, model.normalizer_spec
    if not any(piece.kind == PieceType.UNKNOWN for piece in pieces):
        raise SourceError(f"{path}: not a SentencePiece model: none of its {len(pieces)} pieces is the unknown piece")
    if (algorithm := ALGORITHMS.get(trainer.model_type, "?")) not in (BPE, UNIGRAM):
        raise SourceError(f"{path}: SentencePiece model type {algorithm} is not supported; supported: {UNIGRAM}, {BPE}")
    if trainer.treat_whitespace_as_suffix or not normalizer.escape_whitespaces:
        raise SourceError(f"{path}: SentencePiece models with the space at the end of pieces are not supported")
    return PieceModel(
        pieces=pieces,
        algorithm=algorithm,
        charsmap=normalizer.precompiled_charsmap,
        dummy_prefix=normalizer.add_dummy_prefix,
        trims=normalizer.remove_extra_whitespaces,
        byte_fallback=trainer.byte_fallback,
    )


@lru_cache(maxsize=1)
def _message() -> Callable[[], Any]:
    """Make the protobuf class in a pool of its own, since the sentencepiece package registers the same names."""
    file = descriptor_pb2.FileDescriptorProto(name="sentencepiece_model.proto", package=PACKAGE, syntax="proto2")
    for message, fields in FIELDS.items():
        declared = file.message_type.add(name=message)
        for name, number, kind in fields:
            field = declared.field.add(name=name, number=number, label=_Field.LABEL_OPTIONAL)
            if isinstance(kind, str):
                field.type, field.type_name = _Field.TYPE_MESSAGE, f".{PACKAGE}.{kind}"
            else:
                field.type = kind
            if name == "pieces":
                field.label = _Field.LABEL_REPEATED
            if name in DEFAULTS:
                field.default_value = DEFAULTS[name]
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.Model"))
