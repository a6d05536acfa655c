"""A model of several languages, which frame its texts, through a real server and the client."""

from collections.abc import Iterator

import pytest

from triptych_client import Client, DecodingOptions

from ..fixtures.framed import BEGINNING, SOURCE_LANGUAGES, TARGET_LANGUAGES, copy_framed
from ..fixtures.toy import SOURCES
from .support.in_process import options_of, serving


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    repository = tmp_path_factory.mktemp("models")
    copy_framed(repository)
    with serving(options_of(repository)) as server, Client(f"127.0.0.1:{server.port}") as client:
        yield client


def test_the_languages_choose_the_frame(client: Client) -> None:
    prefixes = DecodingOptions(target_prefix=(BEGINNING,) * 9)
    plain = client.translate_many(SOURCES[:9], source_language="de", target_language="deu_Latn", options=prefixes).texts
    for code in ("nl", "nld_Latn", "nl-BE"):
        framed = client.translate_many(SOURCES[:9], source_language="de-AT", target_language=code).texts
        assert [f"{BEGINNING} {text}" for text in framed] == plain


def test_a_stream_shows_no_frame(client: Client) -> None:
    text = f"{SOURCES[0]} {SOURCES[1]}"
    languages = {"source_language": "en", "target_language": "fr"}
    stream = client.translate_stream(text, **languages)  # type: ignore[arg-type]
    pieces = list(stream)
    assert "".join(pieces) == stream.translation.text == client.translate(text, **languages).text  # type: ignore[arg-type]
    assert BEGINNING not in stream.translation.text


def test_the_models_languages_are_listed(client: Client) -> None:
    [model] = client.models()
    assert (list(model.source_languages), list(model.target_languages)) == (SOURCE_LANGUAGES, TARGET_LANGUAGES)
