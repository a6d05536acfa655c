"""Models come and go as tritonclient tells the server."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tritonclient import grpc as triton

from ...fixtures.encoders import write_text_bundle
from ...fixtures.toy import copy_bundle, tamper
from ..support.in_process import local_server
from .test_oip import Client, failure, tensor


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    write_text_bundle(tmp_path)
    copy_bundle(tmp_path)
    copy_bundle(tmp_path, version=2)
    tamper(copy_bundle(tmp_path, "broken") / "tokenizer.json")
    options = ("--model-control", "explicit", "--allow-admin")
    with local_server(tmp_path, *options) as server, triton.InferenceServerClient(server.address) as client:
        yield client


def states(client: Client) -> dict[str, str]:
    return {f"{model.name} {model.version}": model.state for model in client.get_model_repository_index().models}


def test_models_are_loaded_and_unloaded_or_the_reason_is_given(client: Client) -> None:
    assert client.is_server_ready()
    assert set(states(client).values()) == {"UNAVAILABLE"}
    assert failure(lambda: client.infer("fill-mask", [tensor(["one [MASK]"])]))[0] == "NOT_FOUND"
    assert failure(lambda: client.load_model("nothing"))[0] == "NOT_FOUND"
    code, message = failure(lambda: client.load_model("broken"))
    assert code == "FAILED_PRECONDITION"
    assert "tokenizer.json" in message
    assert failure(lambda: client.load_model("")) == ("INVALID_ARGUMENT", "model_name: empty, name a model")
    assert failure(lambda: client.load_model("toy", config="{}")) == (
        "INVALID_ARGUMENT",
        "parameters.config: there is no such parameter; there are: version",
    )
    assert failure(lambda: client.unload_model("toy"))[0] == "NOT_FOUND"

    client.load_model("fill-mask")
    client.load_model("toy")
    assert {name for name, state in states(client).items() if state == "READY"} == {"fill-mask 1", "toy 2"}
    assert client.infer("fill-mask", [tensor(["one [MASK]"])]).as_numpy("token_str")[0, 0, 0] == b"two"
    assert list(client.get_model_metadata("toy").versions) == ["2"]

    client.unload_model("fill-mask")
    assert not client.is_model_ready("fill-mask")
    assert client.is_model_ready("toy")


def test_a_version_of_more_than_64_bits_is_described(client: Client, tmp_path: Path) -> None:
    version = 20_261_128_075_700_123_456_789  # a time with nanoseconds
    copy_bundle(tmp_path, "toy", version=version)
    client.load_model("toy")
    assert client.get_model_metadata("toy").versions == [str(version)]
    assert client.get_model_config("toy").config.version_policy.specific.versions == []
