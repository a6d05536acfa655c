"""Labelled text from files, for fine-tuning.

text classification    `text<TAB>label` lines, or `text<TAB>text<TAB>label` for pairs
token classification   CoNLL: a word and, in the last column, its label per line; a blank line between sentences,
                       before which there may be comments that start with "# "
question answering     SQuAD's JSON (Rajpurkar et al. 2016), versions 1.1 and 2.0
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import dropwhile, groupby
from pathlib import Path
from typing import Any, TypeVar

from triptych_training.data.corpus import read_filled, read_lines
from triptych_training.errors import CorpusError

COMMENT = "# "  # begins one, as in CoNLL-U
FIRST = "1(-[0-9]+)?"  # number of a sentence's first word in CoNLL-U; 1-2 if it is written as one with the second

Item = TypeVar("Item")


@dataclass(frozen=True)
class TextExample:
    """Text, or pair of texts, with its label; `pair` is empty for a single text."""

    text: str
    pair: str
    label: str


@dataclass(frozen=True)
class WordsExample:
    """Words of a sentence with one label each."""

    words: tuple[str, ...]
    labels: tuple[str, ...]


@dataclass(frozen=True)
class QuestionExample:
    """Question with its accepted answers; `start` is the first one's offset in the context, in characters, or -1."""

    question: str
    context: str
    answers: tuple[str, ...]
    start: int


def read_texts(paths: Sequence[str]) -> list[TextExample]:
    """Read labelled texts, one per line.

    Raises:
        CorpusError: a file cannot be read or is empty, a line is malformed, or lines with and without pairs are mixed.
    """
    texts = _read(paths, _texts, "no labelled texts")
    if len({bool(text.pair) for text in texts}) > 1:
        raise CorpusError(f"{', '.join(paths)}: some lines have one text and others two")
    return texts


def _read(paths: Sequence[str], read: Callable[[Path], Iterator[Item]], nothing: str) -> list[Item]:
    items = [item for path in paths for item in read(Path(path))]
    if not items:
        raise CorpusError(f"{', '.join(paths)}: {nothing}")
    return items


def _texts(path: Path) -> Iterator[TextExample]:
    for number, line in read_filled(path):
        fields = [field.strip() for field in line.split("\t")]
        if len(fields) not in (2, 3):
            raise CorpusError(f"{path}:{number}: {len(fields)} tab-separated fields, expected 2 (text, label) or 3 (two texts)")
        if not all(fields):
            raise CorpusError(f"{path}:{number}: a field is empty")
        yield TextExample(fields[0], fields[1] if len(fields) == 3 else "", fields[-1])


def read_words(paths: Sequence[str]) -> list[WordsExample]:
    """Read labelled sentences, whose columns end at spaces and tabs; skip -DOCSTART- lines, and comments before sentences.

    Raises:
        CorpusError: a file cannot be read or is empty, a line has no label, or numbers stand before the words, as in CoNLL-U.
    """
    sentences = _read(paths, _sentences, "no labelled words")
    if all(re.fullmatch(FIRST, sentence.words[0]) for sentence in sentences):
        raise CorpusError(
            f"{', '.join(paths)}: every sentence begins with the word 1; if the first column numbers the words, keep those of "
            f"words and labels, as `cut -f2,3` does"
        )
    return sentences


def _sentences(path: Path) -> Iterator[WordsExample]:
    lines = ((number, "" if line.startswith("-DOCSTART-") else line.strip(" \t")) for number, line in read_lines(path))
    for filled, block in groupby(lines, lambda line: bool(line[1])):
        if not filled:
            continue
        rows = []
        for number, line in _without_comments(list(block)):
            columns = _columns(line)
            if len(columns) < 2:
                raise CorpusError(f"{path}:{number}: {line!r} has no label, expected a word and a label")
            rows.append((columns[0], columns[-1]))
        if rows:
            words, labels = zip(*rows, strict=True)
            yield WordsExample(words, labels)


def _without_comments(lines: Sequence[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Drop comments such as `# text = I see.`, which precede the words of a sentence; `# O` labels a word like the others."""
    width = next((len(_columns(line)) for _, line in lines if not line.startswith(COMMENT)), 2)
    return dropwhile(lambda one: one[1].startswith(COMMENT) and ("=" in one[1] or len(_columns(one[1])) != width), iter(lines))


def _columns(line: str) -> list[str]:
    return re.split("[ \t]+", line)


def read_questions(paths: Sequence[str]) -> list[QuestionExample]:
    """Read questions with their contexts and answers.

    Raises:
        CorpusError: a file cannot be read, is not SQuAD's JSON, or an answer is not at its offset.
    """
    return _read(paths, _questions, "no questions")


def _questions(path: Path) -> Iterator[QuestionExample]:
    try:
        articles = json.loads("\n".join(line for _, line in read_lines(path)))["data"]
        for article in articles:
            for paragraph in article["paragraphs"]:
                for item in paragraph["qas"]:
                    yield _question(path, paragraph["context"], item)
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise CorpusError(f"{path}: not SQuAD's JSON ({type(error).__name__}: {error})") from error


def _question(path: Path, context: str, item: dict[str, Any]) -> QuestionExample:
    if not isinstance(context, str) or not isinstance(item["question"], str):
        raise TypeError("a question or its context is not text")
    f"{context}{item['question']}".encode()  # ValueError: it has half a surrogate pair, which no tokenizer takes
    answers = [(str(answer["text"]), int(answer["answer_start"])) for answer in item["answers"]]
    for text, start in answers:
        if not text or context[start : start + len(text)] != text:
            raise CorpusError(
                f"{path}: question {item.get('id', item['question'])!r}: {text!r} is not in its context at {start}"
            )
    return QuestionExample(item["question"], context, tuple(text for text, _ in answers), answers[0][1] if answers else -1)
