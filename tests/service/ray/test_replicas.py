"""Several replicas: one of them is killed, and their number follows the load."""

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import grpc
import pytest
import yaml

from triptych.v1 import translation_pb2
from triptych.v1.translation_pb2_grpc import TranslationServiceStub
from triptych_client import Client, TriptychClientError

from ...fixtures.toy import MODELS, SOURCE, TARGET

pytest.importorskip("ray")

from .cluster import CONFIGURATION, PATIENCE_SECONDS, Cluster, running

pytestmark = pytest.mark.full

CALLERS = 4


class Load:
    """Callers that send requests all the time to the proxy at `address`."""

    def __init__(self, address: str) -> None:
        self.answers: Counter[str] = Counter()
        self._address = address
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._ask) for _ in range(CALLERS)]

    @contextmanager
    def on(self) -> Iterator[None]:
        """Send requests for the duration of the block."""
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for thread in self._threads:
                thread.join(PATIENCE_SECONDS)

    @property
    def good(self) -> int:
        return self.answers[TARGET]

    @property
    def failures(self) -> dict[str, int]:
        return {answer: count for answer, count in self.answers.items() if answer != TARGET}

    def _ask(self) -> None:
        with Client(self._address) as client:
            while not self._over.is_set():
                answer = _answer(client)
                with self._lock:
                    self.answers[answer] += 1


def _answer(client: Client) -> str:
    try:
        return str(client.translate(SOURCE).text)
    except TriptychClientError as error:
        return type(error).__name__


def start(folder: Path, **scale: float) -> AbstractContextManager[Cluster]:
    settings = {"ray_actor_options": {"num_cpus": 0.5}, "graceful_shutdown_timeout_s": 600}
    return running(folder, MODELS, autoscaling_config=scale, **settings)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # importing Ray warns
def test_ray_accepts_the_configuration() -> None:
    from ray.serve.schema import ServeDeploySchema

    content = yaml.safe_load(CONFIGURATION.read_text(encoding="utf-8"))
    [application] = ServeDeploySchema.model_validate(content).applications
    assert application.deployments[0].name == "Triptych"


def test_requests_continue_when_a_replica_is_killed(tmp_path: Path) -> None:
    with start(tmp_path, min_replicas=2, max_replicas=2) as cluster:
        cluster.wait_until(lambda: len(cluster.replicas()) == 2)
        load = Load(cluster.address)
        with load.on():
            cluster.wait_until(lambda: load.good > 100)
            killed = cluster.replicas()[0]
            killed.kill()
            asked = load.good
            cluster.wait_until(lambda: load.good > asked + 500)
            cluster.wait_until(lambda: len({process.pid for process in cluster.replicas()} - {killed.pid}) == 2)
            asked = load.good
            cluster.wait_until(lambda: load.good > asked + 100)
        # Only the requests of the dead replica are lost.
        assert sum(load.failures.values()) <= CALLERS, load.failures


def test_replicas_scale_with_the_load(tmp_path: Path) -> None:
    delays = {"upscale_delay_s": 1, "downscale_delay_s": 2, "look_back_period_s": 2, "metrics_interval_s": 1}
    with start(tmp_path, min_replicas=1, max_replicas=2, target_ongoing_requests=1, **delays) as cluster:
        assert len(cluster.replicas()) == 1
        load = Load(cluster.address)
        with load.on():
            cluster.wait_until(lambda: len(cluster.replicas()) == 2)
        cluster.wait_until(lambda: len(cluster.replicas()) == 1)
        assert load.failures == {}


def test_running_requests_finish_when_the_application_is_deleted(tmp_path: Path) -> None:
    texts = ["a b c d e f g h"] * 800  # longer than it takes to get here below
    options = {"beam_size": 8, "min_length": 60, "num_hypotheses": 8}
    request = translation_pb2.TranslateStreamRequest(contents=texts, options=options)
    with start(tmp_path, min_replicas=1, max_replicas=1) as cluster, grpc.insecure_channel(cluster.address) as channel:
        call = TranslationServiceStub(channel).TranslateStream(request)
        events = [next(call)]
        with ThreadPoolExecutor(1) as pool:
            gone = pool.submit(cluster.delete)
            cluster.wait_until(lambda: not cluster.is_ready())
            assert not gone.done()
            events += call
            gone.result(PATIENCE_SECONDS)
        assert sum(event.WhichOneof("event") == "result" for event in events) == len(texts)
        assert cluster.replicas() == []
