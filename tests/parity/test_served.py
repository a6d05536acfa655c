"""A real checkpoint, exported and served: 64 requests in flight, every answer equal to PyTorch's own greedy decoding.

TRIPTYCH_CHECKPOINT=runs/en-de/model TRIPTYCH_PAIRS=valid.tsv.gz pytest -m full tests/parity/test_served.py
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from triptych_client import Client, DecodingOptions, FinishReason, SplitSentences

from ..service.support.processes import ServerProcess

SENTENCES = 1_000
IN_FLIGHT = 64
pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(
        not (os.environ.get("TRIPTYCH_CHECKPOINT") and os.environ.get("TRIPTYCH_PAIRS")),
        reason="names no checkpoint: set TRIPTYCH_CHECKPOINT and TRIPTYCH_PAIRS",
    ),
]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    from triptych_export.exporter import ExportOptions, export

    repository = tmp_path_factory.mktemp("models")
    pairs = (os.environ["TRIPTYCH_PAIRS"],)
    export(Path(os.environ["TRIPTYCH_CHECKPOINT"]), ExportOptions(repository, precisions=("fp32",), valid=pairs), print)
    with ServerProcess(repository) as server:
        yield server.address


def test_served_answers_equal_pytorch(address: str) -> None:
    from triptych_training.checkpoints.translation import load_checkpoint
    from triptych_training.data.corpus import read_pairs
    from triptych_training.decoding.greedy import greedy

    checkpoint = load_checkpoint(Path(os.environ["TRIPTYCH_CHECKPOINT"]))
    texts = [source for source, _ in read_pairs([os.environ["TRIPTYCH_PAIRS"]])][:SENTENCES]
    sources = [encoding.ids for encoding in checkpoint.tokenizer.encode_batch(texts)]
    limit = checkpoint.model.config.max_positions - 1
    expected = checkpoint.tokenizer.decode_batch(greedy(checkpoint.model, sources, limit))

    with Client(address, concurrency=IN_FLIGHT, texts_per_call=1) as client:
        answers = client.translate_many(texts, options=DecodingOptions(split_sentences=SplitSentences.OFF))

    assert len(answers) == len(texts) >= SENTENCES
    assert [answer.text for answer in answers] == expected
    assert all(answer.hypotheses[0].finish_reason in (FinishReason.STOP, FinishReason.LENGTH) for answer in answers)
