"""Documents: reading, splitting, encoding, storing."""

import gzip
import lzma
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from triptych_training.data import documents as documents_module
from triptych_training.data.documents import encode_documents, load_documents, read_documents, save_documents
from triptych_training.errors import CorpusError

from ..toy_text import DOCUMENTS, TOKENIZER, write, write_documents

TEXT = "One line. Another one.\nA second line.\n\n\n  \nThe next document.\n"
READ = [["One line.", "Another one.", "A second line."], ["The next document."]]


@pytest.mark.parametrize(("suffix", "pack"), [("", bytes), (".gz", gzip.compress), (".xz", lzma.compress)])
def test_blank_lines_separate_documents(tmp_path: Path, suffix: str, pack: Callable[[bytes], bytes]) -> None:
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(pack(TEXT.encode()))
    assert list(read_documents([str(path)])) == READ


def test_a_file_without_text_is_named(tmp_path: Path) -> None:
    for content in ("", "\n \n\n"):
        good, empty = write(tmp_path / "a.txt", TEXT), write(tmp_path / "b.txt", content)
        with pytest.raises(CorpusError, match=f"^{empty}: contains no text$"):
            list(read_documents([good, empty]))


@pytest.mark.parametrize(
    "line",
    [
        "It rains. It pours.",
        "Es regnet. Überall ist Wasser.",
        "Идёт дождь. Вода везде.",
        "Βρέχει. Νερό παντού.",
        "下雨了。到处是水。",
        "Mr. Hill paid 3.5 dollars. Dr. Lee did not.",
    ],
)
def test_sentences_end_in_every_script(tmp_path: Path, line: str) -> None:
    [document] = read_documents([write(tmp_path / "a.txt", line)])
    assert len(document) == 2
    assert "".join(document) == line.replace(document[0] + " ", document[0])


def test_marks_of_items_are_kept(tmp_path: Path) -> None:
    assert list(read_documents([write(tmp_path / "a.txt", "- One. 2. Two.\n1.2 Three")])) == [
        ["- One.", "2. Two.", "1.2 Three"]
    ]


@pytest.mark.parametrize("at_once", [1, 4, 100])
def test_offsets_mark_every_sentence(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr(documents_module, "ENCODE_DOCUMENTS", at_once)
    encoded = encode_documents(TOKENIZER, iter(DOCUMENTS))
    assert len(encoded) == len(DOCUMENTS)
    for number, document in enumerate(DOCUMENTS):
        bounds = encoded.sentences[encoded.documents[number] : encoded.documents[number + 1] + 1]
        found = [encoded.ids[start:end].tolist() for start, end in pairwise(bounds)]
        assert found == [TOKENIZER.encode(text, add_special_tokens=False).ids for text in document]


def test_encoded_documents_are_stored_in_a_file_whose_damage_is_noticed(tmp_path: Path) -> None:
    encoded = encode_documents(TOKENIZER, read_documents([write_documents(tmp_path / "a.txt")]))
    save_documents(encoded, tmp_path / "documents.npz")
    loaded = load_documents(tmp_path / "documents.npz")
    for name in ("ids", "sentences", "documents"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(encoded, name))
    assert {path.name for path in tmp_path.iterdir()} == {"a.txt", "documents.npz"}
    for kept in (-30, 100, 0):
        (tmp_path / "documents.npz").write_bytes((tmp_path / "documents.npz").read_bytes()[:kept])
        with pytest.raises(CorpusError, match=r"documents\.npz: damaged"):
            load_documents(tmp_path / "documents.npz")
