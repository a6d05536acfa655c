"""Attention graphs, derived from graphs of this commit and of earlier ones."""

import numpy as np
import pytest
from onnx import helper

from triptych_export.graphs.attention import expose_attention
from triptych_export.graphs.operators import DOMAIN, OWN_DOMAIN, PER_ROW_MATMUL
from triptych_export.quantization.functions import add_function, per_row_product

from ....fixtures.onnx_models import kinds, onnx_model, values

WIDTH = 8


@pytest.mark.parametrize(
    ("operator", "domain"), [("MatMul", ""), (PER_ROW_MATMUL, OWN_DOMAIN), ("DynamicQuantizeMatMul", DOMAIN)]
)
def test_a_layer_of_the_first_position_gets_the_queries_of_all(operator: str, domain: str) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["states"]),
        helper.make_node("Slice", ["states", "start", "stop", "axis"], ["first"]),
        helper.make_node(
            operator, ["first", "weights", "scales"][: 2 if operator == "MatMul" else 3], ["query"], domain=domain
        ),
        helper.make_node("MultiHeadAttention", ["query", "states", "states"], ["y"], domain=DOMAIN, num_heads=2),
    ]
    constants = {name: np.array([value]) for name, value in {"start": 0, "stop": 1, "axis": 1}.items()}
    constants |= {"weights": np.eye(WIDTH, dtype=np.float32), "scales": np.ones(WIDTH, np.float32)}
    model = onnx_model(nodes, values({"x": ["B", "T", WIDTH]}), values({"y": ["B", 1, WIDTH]}), constants)
    if operator == PER_ROW_MATMUL:
        add_function(model, per_row_product(with_bias=False))
    expose_attention(model)
    assert [output.name for output in model.graph.output] == ["encoder"]
    assert operator in kinds(model)
    assert "Slice" not in kinds(model)
