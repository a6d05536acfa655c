"""The search graph gets a model's own bans, whatever the options of rows."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from triptych_serving.bundle.bundle import Bundle
from triptych_serving.bundle.manifest import Limits, TranslationManifest
from triptych_serving.decoding.kv_cache import HostKVCache
from triptych_serving.decoding.logits_processor import BAN, ban
from triptych_serving.decoding.slots import SearchSlots
from triptych_serving.decoding.vocab_subset import Projection, VocabSubset
from triptych_serving.runtime.session import Array

from ..toy_graphs import END, SHAPE, VOCABULARY, TableEncoder

BANS = {0, 5, 9}


class Recording:
    """A graph that stores its inputs."""

    def __init__(self) -> None:
        self.inputs: Mapping[str, Array] = {}

    outputs = ()

    def dtype(self, name: str) -> type[np.float32]:
        return np.float32

    def bind(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> "Recording":
        self.inputs = inputs
        return self

    def run(self) -> None:
        return

    def banned(self, row: int) -> set[int]:
        """Return banned tokens, or columns of a shortlist graph."""
        tokens, offsets = (self.inputs[f"edit_{name}"][row] for name in ("tokens", "offsets"))
        assert set(offsets.tolist()) <= {0.0, float(np.float32(BAN))}
        return set(tokens[offsets != 0].tolist())


def make(bundle: Bundle, step: Recording, columns: VocabSubset | None = None) -> SearchSlots:
    manifest = bundle.manifest_of(TranslationManifest)
    generation = replace(manifest.generation, suppressed_tokens=((0,), (5,), (9,), (3, 4)))
    manifest = replace(manifest, decoder=SHAPE, limits=Limits(8, 8), generation=generation)
    caches = HostKVCache(TableEncoder(), step, manifest, 3)  # type: ignore[arg-type]
    slots = SearchSlots(caches, manifest, VOCABULARY, columns)
    slots.encode([[7, END], [8, END]])
    return slots


def test_rows_with_edits_and_without_have_the_bans(bundle: Bundle) -> None:
    step = Recording()
    slots = make(bundle, step)
    slots.search(8, ())
    assert [step.banned(row) for row in range(2)] == [BANS, BANS]
    assert (step.inputs["edit_factors"] == 1).all()
    for more in ({11, 12, 13, 14}, {3}):
        slots.search(8, [ban(np.array([*BANS, *more])), None])
        assert [step.banned(row) for row in range(2)] == [BANS | more, BANS]


@pytest.mark.parametrize("edits", [(), (None, ban(np.array([*BANS, 11])))])
def test_a_shortlist_graph_bans_columns(bundle: Bundle, edits: tuple[None, ...]) -> None:
    step = Recording()
    rng = np.random.default_rng(1)
    projection = Projection(rng.integers(-9, 9, (VOCABULARY, 8)).astype(np.int8), *rng.random((2, VOCABULARY), np.float32))
    columns = VocabSubset(projection, END)
    columns.admit([np.array([11, 9, END, 0])], [])
    slots = make(bundle, step, columns)
    slots.search(8, edits)
    here = {columns.column(token) for token in (0, 9)}
    assert step.banned(0) == here
    assert step.banned(1) == (here | {columns.column(11)} if edits else here)


def test_the_columns_of_a_shortlist_graph_are_bound_whole(bundle: Bundle) -> None:
    step = Recording()
    projection = Projection(
        np.ones((VOCABULARY, 3), np.int8), np.ones(VOCABULARY, np.float32), np.zeros(VOCABULARY, np.float32)
    )
    slots = make(bundle, step, VocabSubset(projection, END))  # of as many rows, 3, as the projection has inputs
    slots.search(8, ())
    assert len(step.inputs["tokens"]) == 2
    assert len(step.inputs["columns"]) == 3
