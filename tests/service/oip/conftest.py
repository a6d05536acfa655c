"""One server with a model of every task, and one that is damaged."""

from collections.abc import Iterator

import pytest

from ...fixtures.encoders import write_cross_encoder, write_every_bundle, write_tensors_bundle, write_text_bundle, write_words
from ...fixtures.toy import copy_bundle, tamper
from ..support.processes import ServerProcess


@pytest.fixture(scope="session")
def every_model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of the server."""
    folder = tmp_path_factory.mktemp("models")
    write_every_bundle(folder)
    write_cross_encoder(folder)
    write_words(folder)
    write_tensors_bundle(folder)
    write_text_bundle(folder, name="pairs", next_sentence=True)
    copy_bundle(folder)
    tamper(copy_bundle(folder, "broken") / "tokenizer.json")
    with ServerProcess(folder) as server:
        yield server.address
