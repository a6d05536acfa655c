"""The three fine-tuning heads: their examples, losses and metrics."""

import re
import string
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tokenizers import Encoding, Tokenizer
from torch import Tensor, nn
from torch.nn import functional

from triptych_text.entities import entity_prefixes, find_entities
from triptych_training.checkpoints.encoder import Sample
from triptych_training.data.labelled import QuestionExample, TextExample, WordsExample, read_questions, read_texts, read_words
from triptych_training.data.tokenizer import literal
from triptych_training.errors import CorpusError

IGNORED = -100  # target of tokens that are not predicted
MAX_ANSWER = 30  # tokens of an answer, in validation


@dataclass(frozen=True)
class LabelledExample:
    """Input as ids with its target, whose meaning depends on the head; `source` is the number of the item in the file."""

    ids: list[int]
    segments: list[int]
    target: list[int]
    source: int
    offsets: Sequence[tuple[int, int]] = ()  # question answering: each token's span in the context, (0, 0) outside


Examples = tuple[list[LabelledExample], int]  # examples, and how many items were too long


class Head(ABC):
    """Kind of fine-tuning: its examples, loss and metrics."""

    labels: tuple[str, ...] = ()
    pairs = False  # inputs are pairs of texts
    unit: str
    headline: str

    @abstractmethod
    def examples(self, tokenizer: Tokenizer, paths: Sequence[str], max_length: int) -> Examples:
        """Read files and encode their items."""

    def weight(self, example: LabelledExample) -> int:
        """Return the number of predictions for an example."""
        return 1

    @abstractmethod
    def loss(self, model: nn.Module, ids: Tensor, segments: Tensor, targets: Tensor, smoothing: float) -> Tensor:
        """Return the sum over the batch; `targets` are those of its examples, `[B, n]`, padded with IGNORED."""

    @abstractmethod
    def predict(self, output: Any, example: LabelledExample) -> Any:
        """Reduce the model's output for an example to what `metrics` needs."""

    @abstractmethod
    def metrics(self, predictions: Sequence[Any], examples: Sequence[LabelledExample]) -> dict[str, float]:
        """Score the predictions, one for each example."""

    @abstractmethod
    def samples(self) -> list[Sample]:
        """Return the inputs of the files read last, as text."""


class TextHead(Head):
    """Classification of texts or pairs of texts."""

    unit, headline = "texts", "accuracy"

    def __init__(self, train: Sequence[str]) -> None:
        texts = read_texts(train)
        self.labels = tuple(sorted({text.label for text in texts}))
        self.pairs = bool(texts[0].pair)
        self._read: list[TextExample] = []
        _need_several(self.labels, train)

    def examples(self, tokenizer: Tokenizer, paths: Sequence[str], max_length: int) -> Examples:
        self._read = read_texts(paths)
        if bool(self._read[0].pair) != self.pairs:
            raise CorpusError(f"{', '.join(paths)}: has {'single texts' if self.pairs else 'pairs'}, unlike the training files")
        _check_labels({text.label for text in self._read}, self.labels, paths)
        encodings = tokenizer.encode_batch(self.samples())
        return _fitting(encodings, [[self.labels.index(text.label)] for text in self._read], max_length)

    def loss(self, model: nn.Module, ids: Tensor, segments: Tensor, targets: Tensor, smoothing: float) -> Tensor:
        logits = model(ids, segments).float()
        return functional.cross_entropy(logits, targets[:, 0], label_smoothing=smoothing, reduction="sum")

    def predict(self, output: Any, example: LabelledExample) -> int:
        return int(output.argmax())

    def metrics(self, predictions: Sequence[Any], examples: Sequence[LabelledExample]) -> dict[str, float]:
        right = sum(label == example.target[0] for label, example in zip(predictions, examples, strict=True))
        return {"accuracy": right / len(examples), "texts": len(examples)}

    def samples(self) -> list[Sample]:
        return [(text.text, text.pair) if self.pairs else text.text for text in self._read]


class TokenHead(Head):
    """Classification of words, by the first token of each."""

    unit, headline = "words", "f1"

    def __init__(self, train: Sequence[str]) -> None:
        self.labels = tuple(sorted({label for sentence in read_words(train) for label in sentence.labels}))
        _need_several(self.labels, train)
        self._read: list[WordsExample] = []

    def examples(self, tokenizer: Tokenizer, paths: Sequence[str], max_length: int) -> Examples:
        self._read = read_words(paths)
        _check_labels({label for sentence in self._read for label in sentence.labels}, self.labels, paths)
        encodings = tokenizer.encode_batch([list(sentence.words) for sentence in self._read], is_pretokenized=True)
        targets = [self._target(encoding, sentence) for encoding, sentence in zip(encodings, self._read, strict=True)]
        return _fitting(encodings, targets, max_length)

    def _target(self, encoding: Encoding, sentence: WordsExample) -> list[int]:
        target: list[int] = []
        before = None
        for word in encoding.word_ids:
            target.append(IGNORED if word is None or word == before else self.labels.index(sentence.labels[word]))
            before = word
        return target

    def weight(self, example: LabelledExample) -> int:
        return sum(label != IGNORED for label in example.target)

    def loss(self, model: nn.Module, ids: Tensor, segments: Tensor, targets: Tensor, smoothing: float) -> Tensor:
        logits = model(ids, segments).float().flatten(0, 1)
        return functional.cross_entropy(
            logits, targets.flatten(), ignore_index=IGNORED, label_smoothing=smoothing, reduction="sum"
        )

    def predict(self, output: Any, example: LabelledExample) -> list[str]:
        best = output.argmax(-1).tolist()
        return [self.labels[best[place]] for place, label in enumerate(example.target) if label != IGNORED]

    def metrics(self, predictions: Sequence[Any], examples: Sequence[LabelledExample]) -> dict[str, float]:
        """Compute the accuracy of words, and F1 of whole entities as CoNLL does."""
        right = entities = same = words = 0
        prefixes = entity_prefixes(self.labels)
        for predicted, example in zip(predictions, examples, strict=True):
            expected = [self.labels[label] for label in example.target if label != IGNORED]
            right += sum(a == b for a, b in zip(predicted, expected, strict=True))
            words += len(expected)
            found, gold = (set(find_entities(labels, prefixes)) for labels in (predicted, expected))
            entities, same = entities + len(found) + len(gold), same + len(found & gold)
        return {"accuracy": right / max(1, words), "f1": 2 * same / max(1, entities), "words": words}

    def samples(self) -> list[Sample]:
        return [" ".join(sentence.words) for sentence in self._read]


class QuestionHead(Head):
    """Question answering by the answer's span; long contexts are cut into windows that overlap by `stride` tokens."""

    pairs = True
    unit, headline = "questions", "f1"

    def __init__(self, stride: int) -> None:
        self._stride = stride
        self._read: list[QuestionExample] = []

    def examples(self, tokenizer: Tokenizer, paths: Sequence[str], max_length: int) -> Examples:
        """Encode every window of every context; the target of a window without the whole answer is [CLS]."""
        self._read = read_questions(paths)
        longest = max(len(e.ids) for e in tokenizer.encode_batch([q.question for q in self._read]))
        if (free := max_length - longest - 2) < 0:
            raise CorpusError(
                f"{', '.join(paths)}: a question has {longest} tokens, which leaves no room for a context in max_length "
                f"{max_length}; shorten the question, or raise max_length"
            )
        if self._stride > (most := free * 8 // 9):  # more would give very many windows, nearly alike
            raise CorpusError(
                f"{', '.join(paths)}: a question has {longest} tokens; in max_length {max_length} that allows a stride of "
                f"{most}, not {self._stride}; lower stride, or raise max_length"
            )
        windows = literal(Tokenizer.from_str(tokenizer.to_str()))
        windows.enable_truncation(max_length, stride=self._stride, strategy="only_second")
        encodings = enumerate(zip(self._read, windows.encode_batch(self.samples()), strict=True))
        parts = ((question, part, i) for i, (question, encoding) in encodings for part in (encoding, *encoding.overflowing))
        return [_window(*part) for part in parts], 0

    def loss(self, model: nn.Module, ids: Tensor, segments: Tensor, targets: Tensor, smoothing: float) -> Tensor:
        """Return the mean of both sides' losses; not smoothed, because the logits of padding are -inf."""
        sides = zip(model(ids, segments), targets.unbind(-1), strict=True)
        losses = [functional.cross_entropy(logits.float(), target, reduction="sum") for logits, target in sides]
        return (losses[0] + losses[1]) / 2

    def predict(self, output: Any, example: LabelledExample) -> tuple[float, str, float]:
        """Return score and text of the window's best answer, and the score of "no answer here"."""
        size = len(example.ids)
        start, end = output[0][:size], output[1][:size]
        inside = torch.tensor([last > 0 for _, last in example.offsets])
        allowed = torch.ones(size, size, dtype=torch.bool).triu().tril(MAX_ANSWER - 1) & inside[:, None] & inside[None, :]
        sums = (start[:, None] + end[None, :]).cpu().masked_fill(~allowed, -float("inf"))
        first, last = divmod(int(sums.argmax()), size)
        text = self._read[example.source].context[example.offsets[first][0] : example.offsets[last][1]]
        return float(sums[first, last]), text, float(start[0] + end[0])

    def metrics(self, predictions: Sequence[Any], examples: Sequence[LabelledExample]) -> dict[str, float]:
        """Compute exact match and word F1 of all questions as SQuAD's script does.

        The best answer of any window counts, unless every window scores "no answer here" higher.
        """
        exact = overlap = 0.0
        windows: dict[int, list[tuple[float, str, float]]] = {}
        for prediction, example in zip(predictions, examples, strict=True):
            windows.setdefault(example.source, []).append(prediction)
        for source, question in enumerate(self._read):
            score, text, _ = max(windows[source])
            answer = text if score > min(nothing for *_, nothing in windows[source]) else ""
            golds = question.answers or ("",)
            exact += max(_normalise(answer) == _normalise(gold) for gold in golds)
            overlap += max(_word_f1(answer, gold) for gold in golds)
        count = len(self._read)
        return {"exact_match": exact / count, "f1": overlap / count, "questions": count}

    def samples(self) -> list[Sample]:
        return [(question.question, question.context) for question in self._read]


def make_head(name: str, train: Sequence[str], stride: int) -> Head:
    """Build the head `name` with the labels of the training files; raises CorpusError if the files cannot be used."""
    if name == "question-answering":
        return QuestionHead(stride)
    return TextHead(train) if name == "text-classification" else TokenHead(train)


def _need_several(labels: Sequence[str], paths: Sequence[str]) -> None:
    if len(labels) < 2:
        raise CorpusError(f"{', '.join(paths)}: the only label is {labels[0]!r}, expected at least 2")


def _check_labels(found: set[str], known: Sequence[str], paths: Sequence[str]) -> None:
    if unknown := sorted(found - set(known)):
        raise CorpusError(f"{', '.join(paths)}: {', '.join(unknown)}: not among the labels of the training files")


def _fitting(encodings: Sequence[Encoding], targets: Sequence[list[int]], max_length: int) -> Examples:
    """Make examples of the encodings with at most `max_length` tokens."""
    rows = enumerate(zip(encodings, targets, strict=True))
    examples = [LabelledExample(e.ids, e.type_ids, target, i) for i, (e, target) in rows if len(e.ids) <= max_length]
    return examples, len(encodings) - len(examples)


def _window(question: QuestionExample, encoding: Encoding, source: int) -> LabelledExample:
    """Make an example of a window."""
    offsets = [
        span if sequence == 1 else (0, 0) for span, sequence in zip(encoding.offsets, encoding.sequence_ids, strict=True)
    ]
    target = [0, 0]
    if question.start >= 0:
        first, last = question.start, question.start + len(question.answers[0])
        starts = [position for position, (a, b) in enumerate(offsets) if a <= first < b]
        ends = [position for position, (a, b) in enumerate(offsets) if a < last <= b]
        if starts and ends:
            target = [starts[0], ends[-1]]
    return LabelledExample(encoding.ids, encoding.type_ids, target, source, offsets)


def _normalise(text: str) -> str:
    """Lower-case and remove punctuation and articles, as SQuAD's script does."""
    kept = "".join(letter for letter in text.lower() if letter not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", kept).split())


def _word_f1(answer: str, gold: str) -> float:
    found, expected = _normalise(answer).split(), _normalise(gold).split()
    if not found or not expected:
        return float(found == expected)
    common = sum((Counter(found) & Counter(expected)).values())
    return 2 * common / (len(found) + len(expected))
