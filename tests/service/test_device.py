"""Graphs for CUDA in the CPU's memory give the CPU graphs' results; missing devices are refused."""

import json
import math
from collections.abc import Iterator

import pytest

from triptych_client import Client, DecodingOptions, ModelState
from triptych_serving.runtime.session import has_cuda

from ..fixtures.half import HALF_MODELS
from ..fixtures.toy import SOURCE, SOURCES, TARGET, TARGETS
from ..unit.cli.conftest import Run
from .support.in_process import LocalServer, local_server
from .support.telemetry import Scrape

HALF, WHOLE = ("--device", "cpu", "--precision", "fp16"), ("--precision", "fp32") if has_cuda() else ()
NEAR = 0.01  # of probabilities and logarithms
SEARCHES = [
    DecodingOptions(beam_size=4, num_hypotheses=2, return_scores=True),
    DecodingOptions(beam_size=3, length_penalty=0.6, return_alignment=True),
    DecodingOptions(repetition_penalty=1.2, no_repeat_ngram_size=3),
    DecodingOptions(sampling_topk=1, seed=7),
    DecodingOptions(target_prefix=tuple(target.split()[0] for target in TARGETS[:12])),
    DecodingOptions(suppress_sequences=(TARGET.split()[-1],), beam_size=2),
]


@pytest.fixture(scope="module")
def half() -> Iterator[LocalServer]:
    with local_server(HALF_MODELS, *HALF, "--slots", "8") as server:
        yield server


@pytest.fixture(scope="module")
def whole() -> Iterator[LocalServer]:
    with local_server(HALF_MODELS, *WHOLE) as server:
        yield server


@pytest.fixture
def clients(half: LocalServer, whole: LocalServer) -> Iterator[list[Client]]:
    """A client of the graphs for CUDA, and one of the CPU graphs that they must agree with."""
    with Client(half.address) as one, Client(whole.address) as other:
        yield [one, other]


@pytest.mark.parametrize("options", SEARCHES, ids=range(len(SEARCHES)))
def test_searches_find_the_same(clients: list[Client], options: DecodingOptions) -> None:
    found, expected = (client.translate_many(SOURCES[:12], options=options).items for client in clients)
    for one, other in zip(found, expected, strict=True):
        assert one.text == other.text
        for ours, theirs in zip(one.hypotheses, other.hypotheses, strict=True):
            assert (ours.score is None) is (theirs.score is None)
            assert ours.score is None or math.isclose(ours.score, theirs.score or 0.0, abs_tol=NEAR)


def test_the_server_tells_where_models_run(half: LocalServer, run: Run) -> None:
    with Client(half.address) as client:
        models = {model.name: model for model in client.models()}
        assert client.model("toy") == models["toy"]
    assert {(model.devices, model.precision, model.state) for model in models.values()} == {
        (("cpu",), "fp16", ModelState.READY)
    }
    assert {"fp16", "fp32"} <= set(models["toy"].available_precisions)
    assert {row["devices"] for row in json.loads(run("models", "--server", half.address, "--json").success)} == {"cpu"}


def test_metrics_tell_it_too_and_nothing_of_gpus_where_there_are_none(half: LocalServer) -> None:
    scrape = Scrape(half.metrics_address)
    about = {"model": "toy", "version": "1", "task": "translation", "precision": "fp16", "device": "cpu"}
    assert scrape.value("model_info", **about) == 1
    assert not [name for name in scrape.names if "gpu" in name]


@pytest.mark.skipif(has_cuda(), reason="the installed runtime is the one for GPUs")
def test_by_itself_a_server_without_gpus_serves_what_it_did_before(whole: LocalServer) -> None:
    with Client(whole.address) as client:
        assert {(model.devices, model.precision) for model in client.models()} == {(("cpu",), "fp32")}
        assert client.translate(SOURCE).text == TARGET
    assert not [line for line in whole.log.splitlines() if "CUDA" in line or "GPU" in line or "cuda" in line]
