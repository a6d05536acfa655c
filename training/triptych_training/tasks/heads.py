"""The three fine-tuning heads: how their data becomes examples, what their loss is, and how good they are."""

import re
import string
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from tokenizers import Encoding, Tokenizer
from torch import Tensor, nn
from torch.nn import functional

from triptych_training.checkpoints.encoder import Sample
from triptych_training.data.batches import pad
from triptych_training.data.labelled import LabelledText, LabelledWords, Question, read_questions, read_texts, read_words
from triptych_training.errors import CorpusError
from triptych_training.models.bert import (
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
    EncoderConfig,
)

IGNORED = -100  # label of tokens that are not to be predicted
MAX_ANSWER = 30  # tokens of an answer, in validation


@dataclass(frozen=True)
class LabelledExample:
    """One input as ids; what `target` holds is the head's affair. `source` numbers the item of the file that it was made of."""

    ids: list[int]
    segments: list[int]
    target: list[int]
    source: int
    offsets: Sequence[tuple[int, int]] = ()  # of each token in the context; (0, 0) outside (question answering)


class Head(Protocol):
    """One kind of fine-tuning."""

    labels: tuple[str, ...]
    pairs: bool
    unit: str
    headline: str

    def model(self, config: EncoderConfig) -> BertModel:
        """A fresh model."""
        ...

    def examples(self, tokenizer: Tokenizer, paths: Sequence[str], max_length: int) -> tuple[list[LabelledExample], int]:
        """What the files hold, and how many items were too long."""
        ...

    def weight(self, example: LabelledExample) -> int:
        """How many predictions it asks for."""
        ...

    def targets(self, examples: Sequence[LabelledExample]) -> Tensor:
        """Of a batch."""
        ...

    def loss(self, model: nn.Module, ids: Tensor, segments: Tensor, targets: Tensor, smoothing: float) -> Tensor:
        """The sum over the batch."""
        ...

    def metrics(self, outputs: Sequence[Any], examples: Sequence[LabelledExample]) -> dict[str, float]:
        """How good the model's outputs, one for each example, are."""
        ...

    def samples(self) -> list[Sample]:
        """Inputs of the file that was read last, as they are written."""
        ...


class TextHead:
    """One label a text, or a pair of texts."""

    unit, headline = "texts", "accuracy"

    def __init__(self, train: Sequence[str]) -> None:
        texts = read_texts(train)
        self.labels = tuple(sorted({text.label for text in texts}))
        self.pairs = bool(texts[0].pair)
        self._read: list[LabelledText] = []
        if len(self.labels) < 2:
            raise CorpusError(f"{', '.join(train)}: the only label is {self.labels[0]!r}, expected at least 2")

    def model(self, config: EncoderConfig) -> BertModel:
        return BertForSequenceClassification(config, len(self.labels))

    def examples(self, tokenizer: Tokenizer, paths: Sequence[str], max_length: int) -> tuple[list[LabelledExample], int]:
        self._read = read_texts(paths)
        if bool(self._read[0].pair) != self.pairs:
            raise CorpusError(f"{', '.join(paths)}: has {'single texts' if self.pairs else 'pairs'}, unlike the training files")
        _refuse_unknown({text.label for text in self._read}, self.labels, paths)
        inputs = [(text.text, text.pair) if text.pair else text.text for text in self._read]
        rows = enumerate(zip(self._read, tokenizer.encode_batch(inputs), strict=True))
        made = [LabelledExample(e.ids, e.type_ids, [self.labels.index(text.label)], index) for index, (text, e) in rows]
        fitting = [example for example in made if len(example.ids) <= max_length]
        return fitting, len(made) - len(fitting)

    def weight(self, example: LabelledExample) -> int:
        return 1

    def targets(self, examples: Sequence[LabelledExample]) -> Tensor:
        return torch.tensor([example.target[0] for example in examples])

    def loss(self, model: nn.Module, ids: Tensor, segments: Tensor, targets: Tensor, smoothing: float) -> Tensor:
        logits = model(ids, segments).float()
        return functional.cross_entropy(logits, targets, label_smoothing=smoothing, reduction="sum")

    def metrics(self, outputs: Sequence[Any], examples: Sequence[LabelledExample]) -> dict[str, float]:
        right = sum(int(row.argmax()) == example.target[0] for row, example in zip(outputs, examples, strict=True))
        return {"accuracy": right / len(examples)}

    def samples(self) -> list[Sample]:
        return [(text.text, text.pair) if self.pairs else text.text for text in self._read]


class TokenHead:
    """One label a word; the first piece of a word carries it."""

    pairs = False
    unit, headline = "words", "f1"

    def __init__(self, train: Sequence[str]) -> None:
        self.labels = tuple(sorted({label for sentence in read_words(train) for label in sentence.labels}))
        self._read: list[LabelledWords] = []

    def model(self, config: EncoderConfig) -> BertModel:
        return BertForTokenClassification(config, len(self.labels))

    def examples(self, tokenizer: Tokenizer, paths: Sequence[str], max_length: int) -> tuple[list[LabelledExample], int]:
        self._read = read_words(paths)
        _refuse_unknown({label for sentence in self._read for label in sentence.labels}, self.labels, paths)
        encodings = tokenizer.encode_batch([list(sentence.words) for sentence in self._read], is_pretokenized=True)
        made = [
            LabelledExample(encoding.ids, encoding.type_ids, self._target(encoding, sentence), index)
            for index, (encoding, sentence) in enumerate(zip(encodings, self._read, strict=True))
        ]
        fitting = [example for example in made if len(example.ids) <= max_length]
        return fitting, len(made) - len(fitting)

    def _target(self, encoding: Encoding, sentence: LabelledWords) -> list[int]:
        target: list[int] = []
        before = None
        for word in encoding.word_ids:
            target.append(IGNORED if word is None or word == before else self.labels.index(sentence.labels[word]))
            before = word
        return target

    def weight(self, example: LabelledExample) -> int:
        return sum(label != IGNORED for label in example.target)

    def targets(self, examples: Sequence[LabelledExample]) -> Tensor:
        return pad([example.target for example in examples], IGNORED)

    def loss(self, model: nn.Module, ids: Tensor, segments: Tensor, targets: Tensor, smoothing: float) -> Tensor:
        logits = model(ids, segments).float().flatten(0, 1)
        return functional.cross_entropy(
            logits, targets.flatten(), ignore_index=IGNORED, label_smoothing=smoothing, reduction="sum"
        )

    def metrics(self, outputs: Sequence[Any], examples: Sequence[LabelledExample]) -> dict[str, float]:
        """Accuracy of words, and F1 of whole entities as CoNLL counts them."""
        right = found = there = same = words = 0
        for row, example in zip(outputs, examples, strict=True):
            places = [place for place, label in enumerate(example.target) if label != IGNORED]
            guessed = [self.labels[int(row[place].argmax())] for place in places]
            expected = [self.labels[example.target[place]] for place in places]
            right += sum(a == b for a, b in zip(guessed, expected, strict=True))
            words += len(places)
            mine, theirs = set(_entities(guessed)), set(_entities(expected))
            found, there, same = found + len(mine), there + len(theirs), same + len(mine & theirs)
        return {"accuracy": right / max(1, words), "f1": 2 * same / max(1, found + there)}

    def samples(self) -> list[Sample]:
        return [" ".join(sentence.words) for sentence in self._read]


class QuestionHead:
    """Where in a context the answer begins and ends; long contexts are cut into windows that overlap by `stride` tokens."""

    labels: tuple[str, ...] = ()
    pairs = True
    unit, headline = "questions", "f1"

    def __init__(self, stride: int) -> None:
        self._stride = stride
        self._read: list[Question] = []

    def model(self, config: EncoderConfig) -> BertModel:
        return BertForQuestionAnswering(config)

    def examples(self, tokenizer: Tokenizer, paths: Sequence[str], max_length: int) -> tuple[list[LabelledExample], int]:
        """Every window that holds the answer; a question without an answer points at [CLS]."""
        self._read = read_questions(paths)
        longest = max(len(e.ids) for e in tokenizer.encode_batch([q.question for q in self._read]))
        if longest + self._stride + 2 > max_length:
            raise CorpusError(
                f"{', '.join(paths)}: a question has {longest} tokens; with stride {self._stride} that leaves no room "
                f"for a context in max_length {max_length}"
            )
        windows = Tokenizer.from_str(tokenizer.to_str())
        windows.encode_special_tokens = True
        windows.enable_truncation(max_length, stride=self._stride, strategy="only_second")
        encodings = windows.encode_batch([(question.question, question.context) for question in self._read])
        examples, lost = [], 0
        for index, (question, encoding) in enumerate(zip(self._read, encodings, strict=True)):
            made = [_window(question, part, index) for part in (encoding, *encoding.overflowing)]
            kept = [example for example in made if example is not None]
            examples += kept
            lost += not kept
        return examples, lost

    def weight(self, example: LabelledExample) -> int:
        return 1

    def targets(self, examples: Sequence[LabelledExample]) -> Tensor:
        return torch.tensor([example.target for example in examples])

    def loss(self, model: nn.Module, ids: Tensor, segments: Tensor, targets: Tensor, smoothing: float) -> Tensor:
        """Smoothing would give padding a share, whose logits are -inf, and is not used."""
        sides = zip(model(ids, segments), targets.unbind(-1), strict=True)
        losses = [functional.cross_entropy(logits.float(), target, reduction="sum") for logits, target in sides]
        return (losses[0] + losses[1]) / 2

    def metrics(self, outputs: Sequence[Any], examples: Sequence[LabelledExample]) -> dict[str, float]:
        """Exact match and F1 over words as SQuAD's script counts them; of a question's windows the surest answers."""
        best: dict[int, tuple[float, str]] = {}
        for (start, end), example in zip(outputs, examples, strict=True):
            score, answer = self._answer(start, end, example)
            if score > best.get(example.source, (-float("inf"), ""))[0]:
                best[example.source] = score, answer
        pairs = [(answer, self._read[source].answers or ("",)) for source, (_, answer) in best.items()]
        exact = sum(max(_normal(answer) == _normal(right) for right in rights) for answer, rights in pairs)
        overlap = sum(max(_overlap(answer, right) for right in rights) for answer, rights in pairs)
        return {"exact_match": exact / max(1, len(pairs)), "f1": overlap / max(1, len(pairs))}

    def _answer(self, start: Tensor, end: Tensor, example: LabelledExample) -> tuple[float, str]:
        size = len(example.ids)
        sums = (start[:size, None] + end[None, :size]).triu().tril(MAX_ANSWER - 1)
        inside = torch.tensor([place == 0 or last > 0 for place, (_, last) in enumerate(example.offsets)])
        allowed = torch.ones_like(sums, dtype=torch.bool).triu().tril(MAX_ANSWER - 1) & inside[:, None] & inside[None, :]
        allowed[0, 1:] = False
        flat = int(sums.masked_fill(~allowed, -float("inf")).argmax())
        first, last = divmod(flat, size)
        text = self._read[example.source].context[example.offsets[first][0] : example.offsets[last][1]] if last else ""
        return float(sums[first, last]), text

    def samples(self) -> list[Sample]:
        return [(question.question, question.context) for question in self._read]


def make_head(name: str, train: Sequence[str], stride: int) -> Head:
    """The head of this name, with the labels that the training files have.

    Raises:
        CorpusError: the files cannot be used.
    """
    if name == "question-answering":
        return QuestionHead(stride)
    return TextHead(train) if name == "text-classification" else TokenHead(train)


def _refuse_unknown(found: set[str], known: Sequence[str], paths: Sequence[str]) -> None:
    if unknown := sorted(found - set(known)):
        raise CorpusError(f"{', '.join(paths)}: {', '.join(unknown)} are no labels of the training files")


def _window(question: Question, encoding: Encoding, source: int) -> LabelledExample | None:
    """None where the window does not hold the answer."""
    offsets = [
        span if sequence == 1 else (0, 0) for span, sequence in zip(encoding.offsets, encoding.sequence_ids, strict=True)
    ]
    target = [0, 0]
    if question.start >= 0:
        first, last = question.start, question.start + len(question.answers[0])
        starts = [place for place, (a, b) in enumerate(offsets) if a <= first < b]
        ends = [place for place, (a, b) in enumerate(offsets) if a < last <= b]
        if not starts or not ends:
            return None
        target = [starts[0], ends[-1]]
    return LabelledExample(encoding.ids, encoding.type_ids, target, source, offsets)


def _entities(labels: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    """Name, first and last word of each entity of B-, I- and plain labels."""
    start, name = 0, ""
    for place, label in enumerate([*labels, "O"]):
        kind = label.removeprefix("B-").removeprefix("I-")
        if name and (label == "O" or label.startswith("B-") or kind != name):
            yield name, start, place - 1
            name = ""
        if label != "O" and not name:
            start, name = place, kind


def _normal(text: str) -> str:
    """Lower case, without punctuation and articles: SQuAD's own comparison."""
    kept = "".join(letter for letter in text.lower() if letter not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", kept).split())


def _overlap(answer: str, right: str) -> float:
    mine, theirs = _normal(answer).split(), _normal(right).split()
    if not mine or not theirs:
        return float(mine == theirs)
    common = sum((Counter(mine) & Counter(theirs)).values())
    return 2 * common / (len(mine) + len(theirs))
