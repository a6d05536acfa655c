"""Proof that a text bundle answers as its checkpoint does: the graph under serving's session against the model itself.

Every text goes through PyTorch alone, without padding, and through the graph in batches of 1, 3 and 16 texts of mixed length.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor

from triptych_export.answers import Answer, Floats
from triptych_export.errors import ParityError
from triptych_export.samples import chunks
from triptych_serving.session import Session
from triptych_training.bert import BertForPretraining, BertForQuestionAnswering, BertModel

MASK_EVERY = 7  # tokens, where the text has no masks of its own
TOP = 5


@dataclass(frozen=True)
class TextRow:
    """One encoded text, or pair; `places` are the positions of its masks."""

    ids: Sequence[int]
    segments: Sequence[int]
    places: Sequence[int] = ()


def make_rows(tokenizer: Tokenizer, model: BertModel, samples: Sequence[str | tuple[str, str]]) -> list[TextRow]:
    """Encode, cut to what the model takes, and mask every seventh token where the model is to fill masks."""
    plain = Tokenizer.from_str(tokenizer.to_str())
    plain.no_padding()
    plain.enable_truncation(model.config.max_positions)
    rows = []
    for index, encoding in enumerate(plain.encode_batch(list(samples))):
        ids, places = list(encoding.ids), []
        if isinstance(model, BertForPretraining):
            places = _places(encoding.special_tokens_mask, ids, model.config.mask_id, index)
        for place in places:
            ids[place] = model.config.mask_id
        rows.append(TextRow(ids, encoding.type_ids, places))
    return rows


def answer_in_torch(model: BertModel, row: TextRow) -> Answer:
    """What the graph must answer, as the model computes it for this text alone."""
    hidden: list[Tensor] = []
    hook = model.bert.register_forward_hook(lambda _module, _inputs, output: hidden.append(output))
    ids, segments = torch.tensor([row.ids]), torch.tensor([row.segments])
    try:
        with torch.no_grad():
            if isinstance(model, BertForPretraining):
                logits, follows = model(ids, segments, torch.tensor(row.places, dtype=torch.int64))
                answer = {"log_probabilities": torch.log_softmax(logits, -1)}
                if follows is not None:
                    answer["next_sentence"] = torch.softmax(follows[0], -1)
            elif isinstance(model, BertForQuestionAnswering):
                start, end = model(ids, segments)
                answer = {"start": start[0], "end": end[0]}
            else:
                answer = {"probabilities": torch.softmax(model(ids, segments)[0], -1)}
    finally:
        hook.remove()
    answer |= {"mean": hidden[0][0].mean(0), "cls": hidden[0][0, 0]}
    return {name: values.numpy() for name, values in answer.items()}


def answer_in_session(session: Session, rows: Sequence[TextRow], size: int, pad: int) -> list[Answer]:
    """The graph's answers, `size` texts at once.

    Raises:
        ParityError: the best tokens that it names are not those of its own log-probabilities.
    """
    return [answer for chunk in chunks(rows, size) for answer in _run(session, chunk, pad)]


def _run(session: Session, rows: Sequence[TextRow], pad: int) -> list[Answer]:
    inputs = _inputs(rows, pad)
    if "places" in session.inputs:
        flat = [row * inputs["ids"].shape[1] + place for row, text in enumerate(rows) for place in text.places]
        inputs |= {"places": np.array(flat, np.int64), "k": np.array([TOP], np.int64)}
    outputs = dict(zip(session.outputs, session.run(inputs), strict=True))
    masks = np.cumsum([0, *(len(row.places) for row in rows)])
    answers: list[Answer] = []
    for index, row in enumerate(rows):
        answer: dict[str, Floats] = {"mean": outputs["mean"][index], "cls": outputs["cls"][index]}
        if "places" in inputs:
            part = slice(masks[index], masks[index + 1])
            answer["log_probabilities"] = outputs["log_probabilities"][part]
            _check_top(outputs["log_probabilities"][part], outputs["scores"][part], outputs["tokens"][part])
        for name in ("start", "end"):
            if name in outputs:
                answer[name] = outputs[name][index, : len(row.ids)]
        for name in ("next_sentence", "probabilities"):
            if name in outputs:
                answer[name] = outputs[name][index][: len(row.ids)] if outputs[name].ndim == 3 else outputs[name][index]
        answers.append(answer)
    return answers


def _inputs(rows: Sequence[TextRow], pad: int) -> dict[str, NDArray[Any]]:
    length = max(len(row.ids) for row in rows)
    ids = np.full((len(rows), length), pad, np.int32)
    segments = np.zeros((len(rows), length), np.int32)
    for index, row in enumerate(rows):
        ids[index, : len(row.ids)], segments[index, : len(row.ids)] = row.ids, row.segments
    return {"ids": ids, "segments": segments, "lengths": np.array([len(row.ids) for row in rows], np.int32)}


def _check_top(log_probabilities: Floats, scores: Floats, tokens: NDArray[np.int64]) -> None:
    named = np.take_along_axis(log_probabilities, tokens, axis=-1)
    best = -np.sort(-log_probabilities, axis=-1)[:, : tokens.shape[1]]
    if not (np.array_equal(named, best) and np.allclose(np.exp(named), scores, rtol=1e-4, atol=1e-7)):
        raise ParityError("the graph's best tokens are not those of its own log-probabilities")


def _places(special: Sequence[int], ids: Sequence[int], mask: int, index: int) -> list[int]:
    """Masks that are there already, or every seventh token from a start that differs from text to text; at least one."""
    if mask in ids:
        return [place for place, token in enumerate(ids) if token == mask]
    free = [place for place, fixed in enumerate(special) if not fixed]
    return free[index % min(MASK_EVERY, len(free)) :: MASK_EVERY] if free else []
