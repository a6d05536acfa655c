"""Every head and shape of the BERT family, with large random weights: the graph's numbers are PyTorch's."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from triptych_export.bundle_files import write_encoder
from triptych_export.graphs.text import text_graph
from triptych_export.graphs.tracing import trace_text
from triptych_export.parity.comparison import check_answers, compare_answers
from triptych_export.parity.text import TextRow, answer_in_session, answer_in_torch
from triptych_serving.bundle.manifest import FP16
from triptych_serving.runtime.arrays import stack_rows
from triptych_serving.runtime.native.library import native_kernels
from triptych_serving.runtime.session import ATTENTION, Session
from triptych_training.models.bert import (
    BertConfig,
    BertForPretraining,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
)
from triptych_training.models.deberta import DebertaConfig

from ..fixtures.cuda_kernels import unfit_nodes
from ..fixtures.noise import stir

VOCABULARY, LONGEST = 1_200, 24
SHAPE = {"model_dim": 48, "heads": 3, "feedforward_dim": 80, "layers": 1, "max_positions": LONGEST}
POST = BertConfig(VOCABULARY, **SHAPE)
PRE = BertConfig(VOCABULARY, **SHAPE, norm="pre", activation="relu", norm_epsilon=1e-5)
MODELS: dict[str, Callable[[], BertModel]] = {
    "pre-training": lambda: BertForPretraining(POST),
    "without next sentence, pre-norm": lambda: BertForPretraining(PRE, next_sentence=False),
    "text classification": lambda: BertForSequenceClassification(POST, 3),
    "token classification, pre-norm": lambda: BertForTokenClassification(PRE, 20),
    "question answering": lambda: BertForQuestionAnswering(POST),
}
# A single distance has a bucket of its own up to half of the buckets, so that both kinds of buckets are met.
DISENTANGLED = DebertaConfig(VOCABULARY, **SHAPE, position_buckets=8, max_distance=LONGEST, mask_id=4)
MODELS["DeBERTa"] = lambda: BertForPretraining(DISENTANGLED, next_sentence=False)
ROTARY = BertConfig(VOCABULARY, **SHAPE, theta=100.0, rotary_divisor=1.5, gated=True, bias=False)
MODELS["rotary positions"] = lambda: BertForPretraining(ROTARY, next_sentence=False)
QUICK = ("pre-training",)  # test_encoder_export has text classification, test_huggingface_text a norm before each layer
PARAMETERS = [pytest.param(m, id=name, marks=[] if name in QUICK else [pytest.mark.full]) for name, m in MODELS.items()]
Exported = tuple[BertModel, Path]


def write(model: BertModel, folder: Path, precisions: Sequence[str]) -> Exported:
    stir(model, 0.1)
    write_encoder(folder, precisions, lambda half: trace_text(model, (), half))
    return model, folder


@pytest.fixture(scope="module", params=PARAMETERS)
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    return write(request.param(), tmp_path_factory.mktemp("graph"), ("fp32", "int8"))


@pytest.fixture(scope="module", params=PARAMETERS)
def half(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    return write(request.param(), tmp_path_factory.mktemp("half"), (FP16,))


@pytest.fixture
def rows() -> list[TextRow]:
    """Forty texts of 2 to 24 tokens, long beside short; every third has no mask, the others one to four."""
    chance = np.random.default_rng(3)
    rows = []
    for index in range(40):
        length = 2 + (7 * index) % (LONGEST - 1)
        ids = chance.integers(5, VOCABULARY, length).tolist()
        first = int(chance.integers(1, length + 1))
        places = list(range(index % 2, length, 1 + length // 4)) if index % 3 else []
        rows.append(TextRow(ids, [0] * first + [1] * (length - first), places))
    return rows


def test_numbers_are_those_of_pytorch_in_every_batch(exported: Exported, rows: list[TextRow]) -> None:
    model, folder = exported
    expected = [answer_in_torch(model, row) for row in rows]
    session = Session(folder / "graph.fp32.onnx")
    report = check_answers(expected, lambda size: answer_in_session(session, rows, size, pad=0))
    assert report["samples"] == 40
    assert report["decisions"] >= 40
    assert max(report["largest_difference"].values()) < 1e-3


def test_what_stands_in_padding_does_not_matter(exported: Exported, rows: list[TextRow]) -> None:
    session = Session(exported[1] / "graph.fp32.onnx")
    for quiet, loud in zip(answer_in_session(session, rows, 16, 0), answer_in_session(session, rows, 16, 1_000), strict=True):
        for name, values in quiet.items():
            np.testing.assert_allclose(loud[name], values, atol=1e-5, err_msg=name)


def test_int8_is_near_and_needs_no_slow_kernels(exported: Exported, rows: list[TextRow]) -> None:
    model, folder = exported
    expected = [answer_in_torch(model, row) for row in rows]
    fast = answer_in_session(Session(folder / "graph.int8.onnx", saturation_free=True), rows, 16, pad=0)
    safe = answer_in_session(Session(folder / "graph.int8.onnx"), rows, 16, pad=0)
    for left, right in zip(fast, safe, strict=True):
        for name, values in left.items():
            np.testing.assert_array_equal(values, right[name])
    report = compare_answers(expected, fast)
    assert report["mean_cosine"] > 0.97
    assert report["top_1_agreement_percent"] > 60


@pytest.mark.parametrize("native", [True, False], ids=["native", "ONNX Runtime's operators"])
def test_int8_answers_alone_as_in_company(exported: Exported, rows: list[TextRow], native: bool) -> None:
    if native and native_kernels() is None:
        pytest.skip("native kernels are not installed")
    kernels = native_kernels() if native else None
    session = Session(exported[1] / "graph.int8.onnx", saturation_free=True, kernels=kernels, kernel_set=ATTENTION)
    for alone, beside in zip(answer_in_session(session, rows, 1, 0), answer_in_session(session, rows, 16, 0), strict=True):
        for name, values in alone.items():
            np.testing.assert_allclose(beside[name], values, atol=1e-2, err_msg=name)


def test_fp16_is_nearer_and_names_the_same_tokens(half: Exported, rows: list[TextRow]) -> None:
    model, folder = half
    expected = [answer_in_torch(model, row) for row in rows]
    session = Session(folder / "graph.fp16.onnx")
    report = compare_answers(expected, answer_in_session(session, rows, 16, pad=0))
    assert report["mean_cosine"] > 0.9999
    assert report["top_1_agreement_percent"] > 98
    assert report["mean_probability_difference"] < 0.005
    outputs = session.run(given(rows[1:3], session))
    assert {values.dtype for values in outputs} <= {np.dtype(np.float32), np.dtype(np.int64)}


def test_fp16_can_be_captured_on_a_gpu(half: Exported) -> None:
    """Every node has a kernel on CUDA, and none waits for a number that the host takes from a shape."""
    assert unfit_nodes(onnx.load(half[1] / "graph.fp16.onnx", load_external_data=False), ("k",)) == []


def given(rows: list[TextRow], session: Session) -> dict[str, NDArray[Any]]:
    """Inputs of some rows, of which the first tokens are masks."""
    length = max(len(row.ids) for row in rows)
    inputs = {
        "ids": stack_rows([row.ids for row in rows], 0, np.int32),
        "segments": stack_rows([row.segments for row in rows], 0, np.int32),
        "lengths": np.array([len(row.ids) for row in rows], np.int32),
        "places": np.arange(len(rows)) * length,
        "k": np.array([3]),
    }
    return {name: inputs[name] for name in session.inputs}


def test_no_projection_but_the_narrow_ones_stays_in_float(exported: Exported) -> None:
    packed = isinstance(exported[0].config, BertConfig) and not exported[0].config.theta
    kinds = [node.op_type for node in onnx.load(exported[1] / "graph.int8.onnx", load_external_data=False).graph.node]
    assert kinds.count("PerRowAttention") == (POST.layers if packed else 0)
    assert kinds.count("PerRowGemm") + kinds.count("PerRowMatMul") >= (3 if packed else 4) * POST.layers
    # The mean, and labels or next sentence; DeBERTa's tokens with distances.
    assert kinds.count("Gemm") + kinds.count("MatMul") <= (2 if packed else 3)


def test_gelu_is_exact_and_one_operator(exported: Exported) -> None:
    model, folder = exported
    nodes = onnx.load(folder / "graph.fp32.onnx", load_external_data=False).graph.node
    kinds = [node.op_type for node in nodes]
    assert "Erf" not in kinds
    assert not any(a.s == b"tanh" for node in nodes if node.op_type == "Gelu" for a in node.attribute)
    assert kinds.count("Gelu") >= (POST.layers if model.config.activation == "gelu" else 0)


def test_padding_is_no_answer() -> None:
    graph = text_graph(BertForQuestionAnswering(POST), (), half=False)

    class States(nn.Module):
        def forward(self, ids: Tensor, *others: Tensor) -> Tensor:
            return torch.ones(*ids.shape, POST.model_dim)

    graph.encoder.states = States()  # the encoder's operators do not run in PyTorch
    ids, lengths = torch.full((2, 6), 9, dtype=torch.int32), torch.tensor([6, 2], dtype=torch.int32)
    *_, start, end = graph(ids, torch.zeros_like(ids), lengths)
    for logits in (start, end):
        assert logits.isfinite().tolist() == [[True] * 6, [True] * 2 + [False] * 4]
        assert logits[1, 2:].isneginf().all()
