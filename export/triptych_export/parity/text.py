"""Outputs of a text encoder for the parity check: PyTorch, and the graph in serving's session.

PyTorch runs each text alone, without padding; the graph runs batches of 1, 3 and 16 texts of mixed length.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor

from triptych_export.errors import ParityError
from triptych_export.parity.comparison import POOLED, Floats, Outputs, chunks
from triptych_serving.runtime.arrays import stack_rows
from triptych_serving.runtime.session import Session
from triptych_training.models.bert import (
    BertForEmbedding,
    BertForPretraining,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertModel,
)
from triptych_training.models.elmo import Elmo
from triptych_training.models.gpt_encoder import GptEncoder
from triptych_training.models.word2vec import StaticEmbedding

MASK_EVERY = 7  # tokens, if the text has no masks
TOP = 5
RANDOM_ROWS, RANDOM_LENGTH = 96, 128  # number of random rows, and the maximum length of all but the longest
LONGEST_ROW = 1024  # tokens; longer ones would take minutes
SEED = 20
ANY_TEXT = "a"


@dataclass(frozen=True)
class TextRow:
    """An encoded text or pair of texts; `places` are the positions of its masks."""

    ids: Sequence[int]
    segments: Sequence[int]
    places: Sequence[int] = ()


@dataclass(frozen=True)
class RowForm:
    """Limits of a model's rows; `mask` is the id that fills masks, None for a model without them."""

    vocabulary_size: int
    max_positions: int
    mask: int | None = None

    @classmethod
    def of(cls, model: BertModel) -> "RowForm":
        """Read it from a model."""
        config = model.config
        return cls(
            config.vocabulary_size, config.max_positions, config.mask_id if isinstance(model, BertForPretraining) else None
        )


def make_rows(tokenizer: Tokenizer, form: RowForm, samples: Sequence[str | tuple[str, ...]]) -> list[TextRow]:
    """Encode texts, truncated to the model's limit; for a masked-token model, mask every seventh token."""
    plain = Tokenizer.from_str(tokenizer.to_str())
    plain.no_padding()
    plain.enable_truncation(form.max_positions)
    return [
        _masked(form, encoding.ids, encoding.type_ids, encoding.special_tokens_mask, index)
        for index, encoding in enumerate(plain.encode_batch(list(samples)))
    ]


def random_rows(tokenizer: Tokenizer, form: RowForm, pairs: bool) -> list[TextRow]:
    """Draw random tokens of mixed lengths, and one row of maximum length, with the tokenizer's special tokens.

    Masks are inserted if the model predicts them; with `pairs`, every second row is a pair.
    """
    chance = np.random.default_rng(SEED)
    size = form.vocabulary_size
    special = {number for number, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    words = np.array(sorted(set(tokenizer.get_vocab().values()) - special - absent_ids(tokenizer, size)), np.int64)
    words = words[words < size]
    frames = [_frame(tokenizer, pair) for pair in ((False, True) if pairs else (False,))]
    longest = min(form.max_positions, LONGEST_ROW)
    lengths = chance.permutation(np.geomspace(2, min(longest, RANDOM_LENGTH), RANDOM_ROWS).astype(int)).tolist()
    rows = []
    for index, length in enumerate([*lengths, longest]):
        frame = frames[index % len(frames)]
        parts = sum(part is None for part, _ in frame)
        room = max(parts, length - (len(frame) - parts))
        sizes = [room // parts + (place < room % parts) for place in range(parts)]
        ids: list[int] = []
        segments: list[int] = []
        fixed: list[int] = []
        for token, segment in frame:
            drawn = [token] if token is not None else chance.choice(words, sizes.pop()).tolist()
            ids += drawn
            segments += [segment] * len(drawn)
            fixed += [int(token is not None)] * len(drawn)
        rows.append(_masked(form, ids, segments, fixed, index))
    return rows


def absent_ids(tokenizer: Tokenizer, vocabulary_size: int) -> set[int]:
    """Return ids of the embedding that are not tokens."""
    return set(range(vocabulary_size)) - set(tokenizer.get_vocab(with_added_tokens=True).values())


def _frame(tokenizer: Tokenizer, pair: bool) -> list[tuple[int | None, int]]:
    """Return special ids around a text or pair with their segments; None stands for a text."""
    encoding = tokenizer.encode(ANY_TEXT, ANY_TEXT) if pair else tokenizer.encode(ANY_TEXT)
    parts = zip(encoding.sequence_ids, encoding.ids, encoding.type_ids, strict=True)
    frame: list[tuple[int | None, int]] = []
    for text, group in groupby(parts, key=lambda part: part[0]):
        ids = [(token, segment) for _, token, segment in group]
        frame += ids if text is None else [(None, ids[0][1])]
    return frame


def _masked(form: RowForm, ids: Sequence[int], segments: Sequence[int], special: Sequence[int], index: int) -> TextRow:
    """Make a row; masks are those of the text, else every seventh token from a start that varies by text."""
    if form.mask is None:
        return TextRow(ids, segments)
    places = [place for place, token in enumerate(ids) if token == form.mask]
    if not places:
        free = [place for place, fixed in enumerate(special) if not fixed]
        places = free[index % min(MASK_EVERY, len(free)) :: MASK_EVERY] if free else []
    return TextRow([form.mask if place in places else token for place, token in enumerate(ids)], segments, places)


def answer_in_torch(model: BertModel, row: TextRow) -> Outputs:
    """Compute the expected outputs of one text in PyTorch."""
    if isinstance(model, StaticEmbedding):
        given = torch.tensor(row.ids)
        vector = model(given).numpy()
        return {"mean": vector, "cls": vector, "similarities": model.similarities(given).numpy()}
    if isinstance(model, Elmo):
        given = torch.tensor(row.ids)
        with torch.no_grad():
            states = model(given[None])[0]
        known = states[given != model.config.pad_id]
        return {"mean": (known.sum(0) / max(1, len(known))).numpy(), "cls": states[0].numpy(), "states": states.numpy()}
    hidden: list[Tensor] = []
    hook = model.bert.register_forward_hook(lambda _module, _inputs, output: hidden.append(output))
    ids, segments = torch.tensor([row.ids]), torch.tensor([row.segments])
    with hook, torch.no_grad():
        if isinstance(model, BertForPretraining):
            logits, follows = model(ids, segments, torch.tensor(row.places, dtype=torch.int64))
            answer = {"log_probabilities": torch.log_softmax(logits, -1)}
            if follows is not None:
                answer["next_sentence"] = torch.softmax(follows[0], -1)
        elif isinstance(model, BertForQuestionAnswering):
            start, end = model(ids, segments)
            answer = {"start": start[0], "end": end[0]}
        elif isinstance(model, BertForEmbedding):
            states = model(ids, segments)[0]
            return {name: vector.numpy() for name, vector in embed(model, states).items()}
        elif isinstance(model, BertForSequenceClassification):
            logits = model(ids, segments)[0]
            answer = {"probabilities": model.probabilities(logits), "logits": logits}
        else:
            answer = {"probabilities": torch.softmax(model(ids, segments)[0], -1)}
    [states] = hidden
    token = model.bert.text_state(ids, states) if isinstance(model.bert, GptEncoder) else states[:, 0]
    answer |= {"mean": states[0].mean(0), "cls": token[0]}
    return {name: values.numpy() for name, values in answer.items()}


def embed(model: BertForEmbedding, states: Tensor) -> dict[str, Tensor]:
    """Make a text's vectors `[E]` from its states `[T, E]`."""
    token = states[-1 if isinstance(model.bert, GptEncoder) else 0]
    return {"mean": model.dense(states.mean(0)), "cls": model.dense(token)}


def answer_in_session(
    session: Session, rows: Sequence[TextRow], size: int, pad: int, absent: Collection[int] = ()
) -> list[Outputs]:
    """Compute the graph's outputs, `size` texts per batch; `absent` ids are excluded from mask candidates.

    Raises:
        ParityError: the graph's top tokens do not match its own log-probabilities.
    """
    return [answer for chunk in chunks(rows, size) for answer in _run(session, chunk, pad, sorted(absent))]


def _run(session: Session, rows: Sequence[TextRow], pad: int, absent: Sequence[int]) -> list[Outputs]:
    inputs: dict[str, NDArray[Any]] = {
        "ids": stack_rows([row.ids for row in rows], pad, np.int32),
        "segments": stack_rows([row.segments for row in rows], 0, np.int32),
        "lengths": np.array([len(row.ids) for row in rows], np.int32),
    }
    if "places" in session.inputs:
        flat = [row * inputs["ids"].shape[1] + place for row, text in enumerate(rows) for place in text.places]
        inputs |= {"places": np.array(flat, np.int64), "k": np.array([TOP], np.int64)}
    outputs = dict(zip(session.outputs, session.run(inputs), strict=True))
    masks = np.cumsum([0, *(len(row.places) for row in rows)])
    answers: list[Outputs] = []
    for index, row in enumerate(rows):
        answer: dict[str, Floats] = {name: outputs[name][index] for name in POOLED if name in outputs}
        if "places" in inputs:
            part = slice(masks[index], masks[index + 1])
            answer["log_probabilities"] = outputs["log_probabilities"][part]
            allowed = np.array(outputs["log_probabilities"][part])
            allowed[:, absent] = -np.inf
            _check_top(allowed, outputs["scores"][part], outputs["tokens"][part])
        for name in ("start", "end"):
            if name in outputs:
                answer[name] = outputs[name][index, : len(row.ids)]
        for name in ("next_sentence", "probabilities", "logits", "similarities", "states"):
            if name in outputs:
                answer[name] = outputs[name][index][: len(row.ids)] if outputs[name].ndim == 3 else outputs[name][index]
        answers.append(answer)
    return answers


def _check_top(log_probabilities: Floats, scores: Floats, tokens: NDArray[np.int64]) -> None:
    named = np.take_along_axis(log_probabilities, tokens, axis=-1)
    best = -np.sort(-log_probabilities, axis=-1)[:, : tokens.shape[1]]
    if not (np.array_equal(named, best) and np.allclose(np.exp(named), scores, rtol=1e-4, atol=1e-7)):
        raise ParityError("the graph's top tokens do not match its own log-probabilities")
