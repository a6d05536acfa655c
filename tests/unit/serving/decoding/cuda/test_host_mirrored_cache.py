"""Searches over device caches give exactly the results of those over host caches."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triptych_serving.bundle.manifest import Limits, TranslationManifest
from triptych_serving.bundle.search_params import SearchParams
from triptych_serving.decoding.cuda.host_mirrored_cache import HostMirroredCache
from triptych_serving.decoding.cuda.kv_cache import DeviceKVCache, Prefill
from triptych_serving.decoding.search_lane import SearchLane
from triptych_serving.decoding.slots import SearchSlots
from triptych_serving.runtime.device import CPU, Device
from triptych_serving.runtime.memory import DeviceArray, host_view
from triptych_serving.runtime.session import UNCAPTURED, Array
from triptych_serving.scheduling.request import Row
from triptych_serving.text.vocabulary import Vocabulary

from ... import storms
from ...calls import row_of, watched
from ...device_graphs import FormulaEncoder
from ...lagging_memory import LaggingMemory, PromptMemory
from ...toy_graphs import END, LIMIT, SHAPE, VOCABULARY, TableRun, TableStep, make_slots

COUNT = 20  # slots
GRAPHS: dict[int, "DeviceTableRun"] = {}  # captured, by number
WORDS = Vocabulary([b""] * VOCABULARY)
SEARCHES = {
    "scored": SearchParams(scores=True),
    "beam": SearchParams(beam_size=4, num_hypotheses=4),
    "covered": SearchParams(beam_size=3, coverage_penalty=0.2, alignment=True),
    "sample": SearchParams(sampling_topk=5, temperature=1.5, seed=4),
    "samples": SearchParams(sampling_topk=0, sampling_topp=0.9, num_hypotheses=3, seed=11),
    "constrained": SearchParams(beam_size=2, repetition_penalty=1.3, no_repeat_ngram_size=2, min_length=4),
}


class DeviceTableStep:
    """A tabulated graph with the interface of a device: host arrays are copied when they are bound, as on a GPU."""

    def __init__(self, memory: LaggingMemory) -> None:
        self.memory = memory
        self.bound = 0

    def shape(self, name: str) -> tuple[int | str, ...]:
        return "batch", 1, "source", SHAPE.heads * SHAPE.head_dim

    def bind(self, inputs: Mapping[str, Array | DeviceArray], outputs: Mapping[str, DeviceArray]) -> "DeviceTableRun":
        self.bound += 1
        assert "last" not in inputs
        return DeviceTableRun(self.memory, inputs, outputs)


class DeviceTableRun:
    """A step that runs when the memory executes it."""

    def __init__(
        self, memory: LaggingMemory, inputs: Mapping[str, Array | DeviceArray], outputs: Mapping[str, DeviceArray]
    ) -> None:
        self._memory = memory
        self._inputs = {
            name: host_view(array) if isinstance(array, DeviceArray) else array.copy() for name, array in inputs.items()
        }
        self._outputs = {name: host_view(array) for name, array in outputs.items()}

    def run(self, graph: int | None = None) -> None:
        assert graph is not None
        assert graph == UNCAPTURED or GRAPHS.setdefault(graph, self) is self
        self._memory.ask(self._step)

    def _step(self) -> None:
        TableRun(TableStep(), {**self._inputs, "last": self._inputs["lengths"] - 1}, self._outputs).run()


def make(manifest: TranslationManifest, memory: LaggingMemory) -> SearchLane:
    small = replace(manifest, decoder=SHAPE, limits=Limits(LIMIT, LIMIT))
    step: Any = DeviceTableStep(memory)
    encoder: Any = FormulaEncoder(memory)
    prefill = Prefill(encoder, LIMIT, (2 * SHAPE.layers, 1, SHAPE.heads * SHAPE.head_dim), memory)
    caches = HostMirroredCache(DeviceKVCache(prefill, step, small, COUNT, memory), step, memory)
    return SearchLane(SearchSlots(caches, small, VOCABULARY), manifest.tokens, WORDS)


def play(lane: SearchLane, events: Sequence[storms.Event]) -> list[Row]:
    lane.warm_up()
    return storms.play(lane, events, row_of)


ids = st.integers(3, VOCABULARY - 1)
sources = st.lists(ids, max_size=LIMIT - 1).map(lambda tokens: (*tokens, END))
texts = st.tuples(
    sources, st.integers(4, LIMIT - 1), st.sampled_from([*SEARCHES.values()]), st.lists(ids, max_size=3).map(tuple)
)


@pytest.mark.parametrize(("kind", "device"), [(LaggingMemory, Device("cuda")), (PromptMemory, CPU)])
@settings(max_examples=12)
@given(events=storms.events(texts, 25))
def test_searches_give_the_same_results(
    manifest: TranslationManifest, kind: type[LaggingMemory], device: Device, events: list[storms.Event]
) -> None:
    host = SearchLane(make_slots(manifest, TableStep(), COUNT), manifest.tokens, WORDS)
    expected, found = play(host, events), play(make(manifest, kind(device)), events)
    for one, other in zip(found, expected, strict=True):
        assert [(each.tokens, each.score) for each in one.hypotheses] == [
            (each.tokens, each.score) for each in other.hypotheses
        ]
        for mine, theirs in zip(one.hypotheses, other.hypotheses, strict=True):
            assert np.array_equal(_attention(mine.attention), _attention(theirs.attention))


def _attention(array: Any) -> Any:
    return np.zeros(0) if array is None else array


def test_rare_outputs_are_downloaded_on_request_only(manifest: TranslationManifest) -> None:
    memory = CountingMemory(CPU)
    lane = make(manifest, memory)
    lane.join([row_of((5, 6, END), 20, SEARCHES["beam"], ())])
    lane.step()
    assert memory.downloads == 2  # the best tokens, and their log-probabilities
    lane.join(
        [
            row_of((5, 6, END), 20, SEARCHES["covered"], ()),
            row_of((5, 6, END), 20, SEARCHES["samples"], ()),
            row_of((5, 6, END), 20, SEARCHES["beam"], (7,)),
        ]
    )
    lane.step()
    assert memory.downloads == 2 + 2 + 3


class CountingMemory(LaggingMemory):
    """Counts downloads."""

    downloads = 0

    def download(self, source: DeviceArray, host: Any) -> None:
        self.downloads += 1
        super().download(source, host)


def test_the_graph_is_bound_once_for_each_number_of_rows(manifest: TranslationManifest) -> None:
    memory = LaggingMemory(CPU)
    lane = make(manifest, memory)
    step = lane._slots.cache._step  # type: ignore[attr-defined]
    for _ in range(3):
        play(lane, [("join", ((5, 6, 7, END), 10, SEARCHES["scored"])), ("step", 3)])
    assert step.bound == 1


@pytest.mark.parametrize("kind", [LaggingMemory, PromptMemory])
def test_rows_that_filled_their_caches_do_not_harm_later_ones(manifest: TranslationManifest, kind: type[LaggingMemory]) -> None:
    """Later rows are stepped beside their slots."""
    full = ("join", ((5, 6, END), LIMIT, SEARCHES["scored"], (7,) * LIMIT))
    after = [("join", ((6, first, END), 9, SEARCHES["beam"])) for first in (5, 6)]
    events = [full, full, full, ("step", LIMIT), *after]
    host = SearchLane(make_slots(manifest, TableStep(), COUNT), manifest.tokens, WORDS)
    expected, found = play(host, events), play(make(manifest, kind(CPU)), events)
    assert len(found[0].hypotheses[0].tokens) == LIMIT
    assert [row.hypotheses[0].tokens for row in found] == [row.hypotheses[0].tokens for row in expected]


def test_the_size_can_be_read_while_it_grows(manifest: TranslationManifest) -> None:
    cache: Any = make(manifest, LaggingMemory(CPU))._slots.cache
    before = cache.bytes
    with watched(lambda: cache.bytes >= before):
        for _ in range(500):
            cache._device_copy(np.zeros(3, np.int64))
    assert cache.bytes == before + 500 * 3 * 8


def test_device_copies_are_counted(manifest: TranslationManifest) -> None:
    lane = make(manifest, LaggingMemory(CPU))
    before = lane.bytes
    assert before == 2 * 2 * SHAPE.layers * COUNT * SHAPE.heads * SHAPE.head_dim * (LIMIT + LIMIT)
    lane.warm_up()
    assert lane.bytes > before + 4 * COUNT * VOCABULARY
