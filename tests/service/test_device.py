"""Graphs for CUDA in the CPU's memory give the CPU graphs' results; missing devices are refused."""

import json
import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from triptych_client import Client, DecodingOptions, ModelState
from triptych_serving.runtime.session import has_cuda

from ..fixtures.encoders import png
from ..fixtures.half import HALF_MODELS
from ..fixtures.toy import PAIRS, SOURCE, SOURCES, TARGET, TARGETS
from ..unit.cli.conftest import Run
from .support.in_process import LocalServer, local_server
from .support.processes import eventually
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


def test_greedy_translations_are_the_same_more_at_once_than_there_are_slots(half: LocalServer) -> None:
    with Client(half.address) as client:
        assert client.translate_many(SOURCES[:64]).texts == TARGETS[:64]


@pytest.mark.parametrize("options", SEARCHES, ids=range(len(SEARCHES)))
def test_searches_find_the_same(clients: list[Client], options: DecodingOptions) -> None:
    found, expected = (client.translate_many(SOURCES[:12], options=options).items for client in clients)
    for one, other in zip(found, expected, strict=True):
        assert one.text == other.text
        for ours, theirs in zip(one.hypotheses, other.hypotheses, strict=True):
            assert (ours.score is None) is (theirs.score is None)
            assert ours.score is None or math.isclose(ours.score, theirs.score or 0.0, abs_tol=NEAR)


def test_calls_of_all_kinds_at_once_do_not_meet(clients: list[Client]) -> None:
    client, other = clients
    searches, sources = [DecodingOptions(), *SEARCHES[:3]], SOURCES[:32]
    expected = [other.translate_many(sources, options=options).texts for options in searches]

    def ask(index: int) -> bool:
        kind, texts = index % len(searches), slice(index, index + 1 + index % 5)
        return client.translate_many(sources[texts], options=searches[kind]).texts == expected[kind][texts]

    with ThreadPoolExecutor(24) as pool:
        assert all(pool.map(ask, range(len(sources))))


def test_a_caller_that_goes_away_frees_its_slots(half: LocalServer) -> None:
    def running() -> float:
        scrape = Scrape(half.metrics_address)
        return sum(scrape.value(f"num_requests_{state}", model="toy", version="1") or 0.0 for state in ("running", "waiting"))

    with (
        Client(half.address) as client,
        client.translate_stream(" ".join(SOURCES), options=DecodingOptions(beam_size=4)) as text,
    ):
        next(iter(text))
    eventually(lambda: running() == 0)
    with Client(half.address) as client, client.translate_stream(SOURCE) as pieces:
        assert "".join(pieces) == TARGET


def test_scores_are_near(clients: list[Client]) -> None:
    found, expected = (client.score_translations(PAIRS[:20]).items for client in clients)
    for one, other in zip(found, expected, strict=True):
        assert math.isclose(one.log_probability, other.log_probability, abs_tol=NEAR)
        assert len(one.token_log_probabilities) == len(other.token_log_probabilities)


def test_masks_and_vectors_are_near(clients: list[Client]) -> None:
    texts = [" ".join([*text.split()[: 1 + index % 5], "[MASK]"]) for index, text in enumerate(SOURCES[:14])]
    found, expected = (client.fill_mask_many(texts, model="toy-bert", top_k=3).items for client in clients)
    for one, other in zip(found, expected, strict=True):
        assert near([c.score for c in one.masks[0].candidates], [c.score for c in other.masks[0].candidates])
    found_vectors, expected_vectors = (
        [item.values for item in client.embed_many(texts, model="toy-bert").items] for client in clients
    )
    assert all(near(one, other, 0.05) for one, other in zip(found_vectors, expected_vectors, strict=True))


def test_labels_of_images_are_near(clients: list[Client]) -> None:
    images = [png((shade, 255 - shade, shade // 2), (40, 36)) for shade in range(0, 256, 16)]
    found, expected = (client.classify_image_many(images, model="toy-vit", top_k=6).items for client in clients)
    for one, other in zip(found, expected, strict=True):
        ours, theirs = ({label.label: label.score for label in result.labels} for result in (one, other))
        assert near([ours[name] for name in sorted(ours)], [theirs[name] for name in sorted(theirs)])


def near(ours: Sequence[float], theirs: Sequence[float], tolerance: float = NEAR) -> bool:
    return all(math.isclose(a, b, abs_tol=tolerance) for a, b in zip(ours, theirs, strict=True))


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
