"""Version changes under load: no request fails, and every response comes from one version."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from triptych_client import Client, FailedPreconditionError, FinishReason, ModelState, NotFoundError

from ...fixtures.toy import SOURCE, TARGET
from ..support.bundles import CLASSIFIER, TRANSLATOR, add_classifier, add_translator, label, length
from ..support.in_process import local_server
from ..support.processes import PATIENCE_SECONDS, ServerProcess, eventually

SWAPS = 2
EXPLICIT = ("--model-control", "explicit", "--allow-admin", "--load-model", "*")
POLL = ("--model-control", "poll", "--poll-interval-secs", "0.1")


def classify(client: Client) -> str:
    result = client.classify_text("one")
    assert result.labels[0].label == label(int(result.model_version))
    return f"{CLASSIFIER} {result.model_version}"


def translate(client: Client) -> str:
    result = client.translate(SOURCE)
    assert is_of(int(result.model_version), result.text, result.finish_reason)
    return f"{TRANSLATOR} {result.model_version}"


def stream(client: Client) -> str:
    with client.translate_stream(SOURCE) as pieces:
        text = "".join(pieces)
    result = pieces.translation
    assert text == result.text
    assert is_of(int(result.model_version), text, result.finish_reason)
    return f"{TRANSLATOR} {result.model_version}"


def is_of(version: int, text: str, finish: FinishReason) -> bool:
    if finish is FinishReason.STOP:
        return text == TARGET and length(version) > 3
    return TARGET.startswith(text) and length(version) == 3


@dataclass
class Load:
    """Callers that ask without a pause, each for one thing, and never twice for the same."""

    address: str
    answers: Counter[str] = field(default_factory=Counter)
    failures: list[BaseException] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def ask(self, question: Callable[[Client], str]) -> None:
        with Client(self.address, retries=0) as client:
            while not self.over.is_set():
                try:
                    self.answers[question(client)] += 1
                except Exception as error:
                    self.failures.append(error)

    @contextmanager
    def running(self) -> Iterator[None]:
        questions = [classify, classify, translate, stream]
        threads = [threading.Thread(target=self.ask, args=(question,)) for question in questions]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.over.set()
            for thread in threads:
                thread.join(PATIENCE_SECONDS)


@pytest.fixture
def models(tmp_path: Path) -> Path:
    repository = tmp_path / "models"
    repository.mkdir()
    add_classifier(repository, 1)
    add_translator(repository, 1)
    return repository


@pytest.mark.parametrize("control", [EXPLICIT, pytest.param(POLL, marks=pytest.mark.full)], ids=["explicit", "poll"])
def test_swaps_under_load(models: Path, control: tuple[str, ...]) -> None:
    with local_server(models, *control, "--warm-up", "usual") as server, Client(server.address) as client:
        load = Load(server.address)
        with load.running():
            for swap in range(SWAPS):
                version = 2
                name = (CLASSIFIER, TRANSLATOR)[swap % 2]
                (add_classifier, add_translator)[swap % 2](models, version)
                if control is EXPLICIT:
                    [loaded] = client.load_model(name)
                    assert loaded.version == str(version)
                eventually(lambda n=name, v=version: load.answers[f"{n} {v}"] > 0)  # type: ignore[misc]
        assert load.failures == []
        eventually(lambda: [m.version for m in client.models() if m.state is not ModelState.UNLOADED] == ["2", "2"])


def test_a_corrupt_version_while_serving_and_the_end_while_another_loads(models: Path) -> None:
    with ServerProcess(models, *POLL) as server, Client(server.address, retries=0) as client:
        load = Load(server.address)
        with load.running():
            add_classifier(models, 2, damaged=True)
            eventually(lambda: any(model.state is ModelState.FAILED for model in client.models()))
            assert "SHA-256" in client.model(CLASSIFIER, "2").state_message
            assert client.model(CLASSIFIER).version == "1"
            add_classifier(models, 3)
            eventually(lambda: load.answers[f"{CLASSIFIER} 3"] > 0)
        assert load.failures == []
        add_classifier(models, 4, endless=True)
        eventually(lambda: any(model.state is ModelState.LOADING for model in client.models()))
        assert classify(client) == f"{CLASSIFIER} 3"
        server.signal()
        assert server.wait() == 0
    assert server.log.count("cannot be served") == server.log.count("classifier version 2 cannot be served") == 1


def test_labels_choose_among_versions(models: Path) -> None:
    for version in (2, 3):
        add_classifier(models, version)
    (models / CLASSIFIER / "model.json").write_text('{"labels": {"stable": 1, "canary": 2}}')
    with local_server(models, *EXPLICIT) as server, Client(server.address, retries=0) as client:
        found = {model.version: model for model in client.models() if model.name == CLASSIFIER}
        assert {version: model.state for version, model in found.items()} == dict.fromkeys("123", ModelState.READY)
        assert [model.version_labels for model in found.values()] == [("stable",), ("canary",), ()]
        assert [model.default_version for model in found.values()] == [True, False, False]
        for wish, version in {"": "1", "stable": "1", "canary": "2", "3": "3"}.items():
            assert client.classify_text("one", model_version=wish).model_version == version
            assert client.classify_text("one", model=CLASSIFIER, model_version=wish).labels[0].label == label(int(version))
        assert client.model(CLASSIFIER, "canary").version == "2"
        client.unload_model(CLASSIFIER, "stable")
        assert client.classify_text("one").model_version == "3"
        with pytest.raises(NotFoundError, match="model 'classifier': version 1 is in the repository, but not loaded"):
            client.classify_text("one", model=CLASSIFIER, model_version="stable")
        with pytest.raises(
            NotFoundError, match=r"version 'blue' of classifier not found; available: classifier version 1 \(stable\)"
        ):
            client.classify_text("one", model=CLASSIFIER, model_version="blue")
        add_classifier(models, 4, damaged=True)
        with pytest.raises(FailedPreconditionError, match=r"model 'classifier' could not be loaded: .*SHA-256"):
            client.load_model(CLASSIFIER, "4")
        assert classify(client) == f"{CLASSIFIER} 3"
