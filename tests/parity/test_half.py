"""fp16, for CUDA, on the CPU: graphs that a GPU can capture, a step that feeds itself, and how near to PyTorch it all is."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from numpy.typing import NDArray

from triptych_export.bundle_files import write_manifest
from triptych_export.errors import RangeError
from triptych_export.exporter import ExportOptions, export
from triptych_export.families.translation import TranslationFamily
from triptych_export.parity import translation as parity
from triptych_export.parity.translation import ParitySample, forced_agreement, teacher_force
from triptych_export.translation_source import TranslationSource
from triptych_serving.bundle.bundle import Bundle, open_bundle
from triptych_serving.bundle.manifest import TranslationManifest
from triptych_serving.runtime.arrays import stack_rows
from triptych_serving.runtime.session import Session
from triptych_training.checkpoints.translation import load_checkpoint
from triptych_training.decoding.greedy import greedy

from ..fixtures.cuda_kernels import unfit_nodes
from ..fixtures.half import HALF_BUNDLE
from ..fixtures.toy import HERE, SOURCES

SLOTS, STEPS = 5, 30
FEW = 12  # sentences
Array = NDArray[Any]


@pytest.fixture(scope="module", params=["committed", pytest.param("exported", marks=pytest.mark.full)])
def bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """The committed bundle, and one that is exported now."""
    if request.param == "committed":
        return open_bundle(HALF_BUNDLE)
    options = ExportOptions(tmp_path_factory.mktemp("models"), name="toy", precisions=("fp16", "fp32"))
    return open_bundle(export(HERE / "checkpoint", options, lambda line: None))


@pytest.fixture(scope="module")
def sources() -> list[list[int]]:
    return [encoding.ids for encoding in load_checkpoint(HERE / "checkpoint").tokenizer.encode_batch(SOURCES[::7])]


@pytest.fixture(scope="module")
def answers(sources: list[list[int]]) -> list[list[int]]:
    """PyTorch's, ends included."""
    model = load_checkpoint(HERE / "checkpoint").model
    return [[*answer, model.config.eos_id] for answer in greedy(model, sources, STEPS)]


class Memory:
    """A step graph over memory of its own, bound once: `next` over `tokens`, `advanced` over `positions`."""

    def __init__(self, bundle: Bundle) -> None:
        manifest = bundle.manifest_of(TranslationManifest)
        shape, limits, self.start = manifest.decoder, manifest.limits, manifest.tokens.start
        self.encoder, step = (Session(bundle.path(f"{kind}.fp16.onnx")) for kind in ("encoder", "step"))
        names = [f"{kind}_{layer}" for layer in range(shape.layers) for kind in ("key", "value")]
        self.last = limits.max_target_tokens - 1
        chance = np.random.default_rng(1)  # what idle rows find
        sizes = (shape.heads, self.last + 1, shape.head_dim), (1, limits.max_source_tokens, shape.heads * shape.head_dim)
        self.cache, self.memory = (
            (30 * chance.standard_normal((len(names), SLOTS, *size))).astype(np.float16) for size in sizes
        )
        self.tokens, self.positions = np.full(SLOTS, 7), np.full(SLOTS, self.last, np.int32)
        self.lengths, self.forced = np.ones(SLOTS, np.int64), np.full(SLOTS, -1)
        vectors = {"tokens": self.tokens, "positions": self.positions, "lengths": self.lengths, "forced": self.forced}
        caches = dict(zip(names, self.cache, strict=True))
        memories = {f"memory_{name}": part for name, part in zip(names, self.memory, strict=True)}
        self.binding = step.bind(
            vectors | {f"cache_{name}": part for name, part in caches.items()} | memories,
            {"next": self.tokens, "advanced": self.positions} | {f"present_{name}": part for name, part in caches.items()},
        )

    def join(self, slot: int, source: list[int]) -> None:
        [memory] = self.encoder.run({"source": np.array([source]), "lengths": np.array([len(source)], np.int32)})
        self.memory[:, slot, :, : len(source)] = memory[:, 0]
        self.tokens[slot], self.positions[slot], self.lengths[slot] = self.start, 0, len(source)

    def step(self) -> list[int]:
        self.binding.run()
        tokens: list[int] = self.tokens.tolist()
        return tokens


def test_rows_come_and_go_over_garbage_and_nobody_tells_the_graph_where_they_are(
    bundle: Bundle, sources: list[list[int]], answers: list[list[int]]
) -> None:
    memory = Memory(bundle)
    waiting = list(range(len(sources)))
    rows: dict[int, tuple[int, list[int]]] = {}
    found: dict[int, list[int]] = {}
    while waiting or rows:
        free = [slot for slot in range(SLOTS) if slot not in rows]
        if waiting and free:  # one at a time: all rows stand at different positions
            rows[free[0]] = (waiting[0], [])
            memory.join(free[0], sources[waiting.pop(0)])
        for slot, token in enumerate(memory.step()):
            if slot in rows:
                index, tokens = rows[slot]
                tokens.append(token)
                if len(tokens) == len(answers[index]):
                    found[index] = rows.pop(slot)[1]
    assert [found[index] for index in range(len(sources))] == answers


def test_a_row_that_nobody_needs_stays_at_the_last_position(bundle: Bundle, sources: list[list[int]]) -> None:
    memory = Memory(bundle)
    memory.join(2, sources[0])
    for step in range(1, 80):
        memory.step()
        assert memory.positions.tolist() == [memory.last if slot != 2 else min(step, memory.last) for slot in range(SLOTS)]
    assert np.isfinite(memory.cache).all()


def test_forced_tokens_are_given_and_read(bundle: Bundle, sources: list[list[int]], answers: list[list[int]]) -> None:
    memory = Memory(bundle)
    memory.join(1, sources[3])
    given = answers[5]
    for token in given[:3]:
        memory.forced[1] = token
        assert memory.step()[1] == token
    memory.forced[1] = -1
    after = memory.step()[1]
    model = load_checkpoint(HERE / "checkpoint").model
    logits = model(torch.tensor([sources[3]]), torch.tensor([[model.config.bos_id, *given[:3]]]))
    assert after == int(logits[0, -1].argmax())


def test_the_search_graph_gives_pytorch_s_probabilities_and_weights_that_end_with_the_source(
    bundle: Bundle, sources: list[list[int]]
) -> None:
    memory, rows = Memory(bundle), 3
    for slot in range(rows):
        memory.join(slot, sources[slot])
    session = Session(bundle.path("search.fp16.onnx"))
    names = [name.removeprefix("cache_") for name in session.inputs if name.startswith("cache_")]
    inputs: dict[str, Array] = {
        "tokens": memory.tokens[:rows],
        "positions": memory.positions[:rows],
        "lengths": memory.lengths[:rows],
        "forced": np.array([5, 6, 7]),
        "edit_tokens": np.zeros((rows, 1), np.int64),
        "edit_factors": np.ones((rows, 1), np.float32),
        "edit_offsets": np.zeros((rows, 1), np.float32),
        "candidates": np.array([4]),
        **{f"cache_{name}": part[:rows] for name, part in zip(names, memory.cache, strict=True)},
        **{f"memory_{name}": part[:rows] for name, part in zip(names, memory.memory, strict=True)},
    }
    found = dict(zip(session.outputs, session.run({name: inputs[name] for name in session.inputs}), strict=True))
    model = load_checkpoint(HERE / "checkpoint").model
    for row in range(rows):
        logits = model(torch.tensor([sources[row]]), torch.tensor([[model.config.bos_id]]))[0, 0]
        expected = logits.log_softmax(-1).detach().numpy()
        np.testing.assert_allclose(found["log_probabilities"][row], expected, atol=0.05)
        np.testing.assert_array_equal(found["top_tokens"][row], np.argsort(-found["log_probabilities"][row])[:4])
        assert found["forced_log_probabilities"][row, 0] == found["log_probabilities"][row, 5 + row]
        weights = found["attention"][row]
        assert weights[: len(sources[row])].sum() == pytest.approx(1, abs=1e-5)
        assert not weights[len(sources[row]) :].any()
    assert found["attention"].dtype == found["log_probabilities"].dtype == np.float32


def test_scores_are_near_those_of_fp32(bundle: Bundle, sources: list[list[int]], answers: list[list[int]]) -> None:
    start = bundle.manifest_of(TranslationManifest).tokens.start
    inputs = {
        "source": stack_rows(sources, 0, np.int64),
        "lengths": np.array([len(source) for source in sources], np.int32),
        "targets": stack_rows([[start, *answer] for answer in answers], 0, np.int64),
    }
    [half], [whole] = (Session(bundle.path(f"score.{precision}.onnx")).run(inputs) for precision in ("fp16", "fp32"))
    assert half.dtype == np.float32
    for row, other, answer in zip(half, whole, answers, strict=True):
        np.testing.assert_allclose(row[: len(answer)], other[: len(answer)], atol=0.05)


@pytest.mark.parametrize("kind", ["step", "search"])
def test_every_node_of_a_step_has_a_kernel_on_cuda(bundle: Bundle, kind: str) -> None:
    assert unfit_nodes(onnx.load(bundle.path(f"{kind}.fp16.onnx"), load_external_data=False), ("candidates",)) == []


def test_nothing_of_a_step_is_copied_into_another_layout(bundle: Bundle) -> None:
    layers = bundle.manifest_of(TranslationManifest).decoder.layers
    nodes = onnx.load(bundle.path("step.fp16.onnx"), load_external_data=False).graph.node
    kinds = [(node.domain, node.op_type) for node in nodes]
    assert kinds.count(("com.microsoft", "GroupQueryAttention")) == kinds.count(("", "Attention")) == layers
    assert not {"Transpose", "Concat", "Slice", "Split", "Shape", "If", "Loop", "Softmax"} & {kind for _, kind in kinds}


def test_the_report_counts_tokens_behind_pytorch_s_own(bundle: Bundle) -> None:
    manifest = bundle.manifest
    assert (set(manifest.precisions), manifest.default_precision) == ({"fp16", "fp32"}, "fp32")
    report = manifest.parity["fp16"]
    assert report["forced_tokens"] > 5_000
    assert report["forced_token_agreement_percent"] >= 99.9
    assert report["token_agreement_percent"] > 99
    assert manifest.metrics["bleu_fp16"] > 99
    assert manifest.provenance["opset_fp16"] == 24
    assert "forced token agreement percent" in Path(bundle.folder, "MODEL_CARD.md").read_text(encoding="utf-8")


def test_a_model_whose_activations_leave_float16_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's answers stay as they were: what one layer multiplies, the next divides by."""
    for least in ("MIN_SENTENCES", "MIN_DISTINCT"):
        monkeypatch.setattr(parity, least, FEW)
    checkpoint = load_checkpoint(HERE / "checkpoint")
    layer = checkpoint.model.decoder.layers[1].feedforward
    with torch.no_grad():
        layer.expand.weight *= 30_000
        layer.expand.bias *= 30_000
        layer.contract.weight /= 30_000
    family = TranslationFamily(TranslationSource.of(checkpoint), checkpoint.samples[:FEW], shipped=("fp32", "int8", "fp16"))
    with pytest.raises(RangeError) as caught:
        family.measure(tmp_path, lambda line: None)
    assert str(caught.value).startswith("fp16: activations of decoder.layers.1.feedforward.expand: ")


def test_numbers_that_are_none_show_as_wrong_tokens(tmp_path: Path, sources: list[list[int]], answers: list[list[int]]) -> None:
    """int8 may answer what it likes; what is wrong in fp16 is a wrong graph."""
    sample = ParitySample(sources[:FEW], [answer[:-1] for answer in answers[:FEW]], STEPS)
    assert forced_percent(HALF_BUNDLE, sample) > 99
    folder = shutil.copytree(HALF_BUNDLE, tmp_path / "1")
    weights = np.fromfile(folder / "weights.fp16.bin", np.float16)
    np.full_like(weights, np.nan).tofile(folder / "weights.fp16.bin")
    write_manifest(folder, json.loads((folder / "bundle.json").read_text(encoding="utf-8")))
    assert forced_percent(folder, sample) < 50


def forced_percent(folder: Path, sample: ParitySample) -> float:
    bundle = open_bundle(folder)
    found = teacher_force(bundle, "fp16", FEW, sample.sources, sample.expected)
    end = bundle.manifest_of(TranslationManifest).tokens.end
    return forced_agreement(found, sample, end)["forced_token_agreement_percent"]
