"""Decoder-only models in folders of sentence-transformers: the vectors of their states in transformers, served."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import save_file
from tokenizers import Tokenizer, processors

from triptych_export.errors import SourceError
from triptych_export.exporter import ExportOptions, export
from triptych_export.families import text as families_text
from triptych_export.huggingface.architectures.registry import load
from triptych_export.huggingface.folder import Folder
from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.bundle.manifest import TextManifest
from triptych_serving.encoding.options import EncoderOptions
from triptych_serving.errors import InvalidInputError
from triptych_serving.models.text import text_model
from triptych_serving.models.text.tasks import EMBEDDING_TASK
from triptych_serving.models.text.text_model import TextModel
from triptych_serving.runtime.native.library import LEVEL
from triptych_training.checkpoints.encoder import TextCheckpoint
from triptych_training.models.rotary import Rotary

from ..fixtures.decoders import END, byte_tokenizer, small_decoder
from ..fixtures.json_files import write_json, write_pooling
from ..fixtures.sentences import SENTENCES

TEXTS = [SENTENCES[0], "x", SENTENCES[1] + " " + SENTENCES[2], SENTENCES[3][:20]]


@dataclass(frozen=True)
class Case:
    """A small checkpoint with modules."""

    variant: str
    pooling: str
    before: tuple[str, ...] = ()  # tokens before a text; END is after it
    dense: Sequence[tuple[int, bool, str]] = ()  # outputs, bias and activation of each layer
    changes: dict[str, Any] = field(default_factory=dict)


CASES = {
    "qwen3": Case("qwen3", "lasttoken"),
    "olmo2": Case("olmo2", "lasttoken"),
    "hunyuan": Case("hunyuan", "mean"),
    "granite": Case("granite", "mean"),
    "mistral": Case("mistral", "lasttoken", ("<|im_start|>",)),
    "gpt2": Case("gpt2", "mean", dense=[(7, True, "activation.Tanh")]),
    "eurobert": Case("eurobert", "mean", ("<|im_start|>",)),
    "gemma": Case(
        *("gemma3", "mean", ("<|im_start|>",), [(40, False, "linear.Identity"), (12, False, "linear.Identity")]),
        {"use_bidirectional_attention": True, "sliding_window": 6},
    ),
}


HALF = ("qwen3", "olmo2", "gpt2", "gemma")  # norms of heads, of all heads, layer norms, and both directions


def write_eurobert(folder: Path) -> None:
    sizes = {"hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 2, "max_position_embeddings": 128}
    ids = {"vocab_size": 360, "bos_token_id": 1, "eos_token_id": 0, "pad_token_id": 0, "mask_token_id": 2}
    torch.manual_seed(2)
    model = transformers.EuroBertModel(
        transformers.EuroBertConfig(
            **sizes, **ids, num_attention_heads=4, num_key_value_heads=2, rope_parameters={"rope_theta": 250.0}
        )
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0 if parameter.dim() > 1 else 1.0, 0.3)
    model.save_pretrained(folder)
    byte_tokenizer().save(str(folder / "tokenizer.json"))


VECTORS = {"module_input_name": "sentence_embedding", "module_output_name": "sentence_embedding"}  # in newer files


def write_case(case: Case, folder: Path) -> Path:
    if case.variant == "eurobert":
        write_eurobert(folder)
    else:
        small_decoder(case.variant, folder, **case.changes)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    around = [*case.before, "$A", END]
    ids = [(token, tokenizer.token_to_id(token)) for token in (*case.before, END)]
    tokenizer.post_processor = processors.TemplateProcessing(single=around, special_tokens=ids)
    tokenizer.save(str(folder / "tokenizer.json"))
    write_json(folder / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": END})
    kinds = [*["Dense"] * len(case.dense), "Normalize"]
    write_pooling(folder, {"embedding_dimension": 1, "pooling_mode": case.pooling}, *kinds)
    width = transformers.AutoConfig.from_pretrained(folder).hidden_size
    torch.manual_seed(1)
    for number, (outputs, bias, activation) in enumerate(case.dense, start=2):
        place = folder / f"{number}_Dense"
        place.mkdir()
        config = {"in_features": width, "out_features": outputs, "bias": bias, **(VECTORS if number > 2 else {})}
        write_json(place / "config.json", {**config, "activation_function": f"torch.nn.modules.{activation}"})
        tensors = {"linear.weight": torch.randn(outputs, width), **({"linear.bias": torch.randn(outputs)} if bias else {})}
        save_file(tensors, place / "model.safetensors")
        width = outputs
    return folder


@torch.inference_mode()
def expected_vectors(case: Case, folder: Path) -> np.ndarray[Any, Any]:
    model = transformers.AutoModel.from_pretrained(folder).float().eval()
    tokenizer, vectors = Tokenizer.from_file(str(folder / "tokenizer.json")), []
    for text in TEXTS:
        states = model(torch.tensor([tokenizer.encode(text).ids])).last_hidden_state[0]
        vector = states.mean(0) if case.pooling == "mean" else states[-1]
        torch.manual_seed(1)
        for outputs, bias, activation in case.dense:
            vector = torch.randn(outputs, len(vector)) @ vector + (torch.randn(outputs) if bias else 0)
            vector = torch.tanh(vector) if activation.endswith("Tanh") else vector
        vectors.append(vector / vector.norm())
    return torch.stack(vectors).numpy()


@pytest.mark.parametrize("name", CASES)
def test_vectors_equal_those_of_transformers(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    folder = write_case(case, tmp_path / "theirs")
    precisions = ("fp32", "fp16") if name in HALF else ("fp32",)
    options = ExportOptions(tmp_path / "models", precisions=precisions)
    bundle = open_bundle(export(folder, options, lambda line: None))
    assert "outputs as in transformers" in str(bundle.manifest.provenance["original"])
    manifest = bundle.manifest_of(TextManifest)
    expected = expected_vectors(case, folder)
    assert (manifest.task, manifest.hidden_size, manifest.normalize) == ("text-embedding", expected.shape[1], True)
    assert bool(manifest.causal_head) == (name not in ("gemma", "eurobert"))
    with closing(TextModel("model", 1, bundle, EncoderOptions("fp32", runs=1))) as served:
        alone = [served.run(EMBEDDING_TASK, [text])[0].values for text in TEXTS]
        together = [each.values for each in served.run(EMBEDDING_TASK, TEXTS)]
    np.testing.assert_allclose(alone, expected, atol=2e-5)
    np.testing.assert_allclose(together, expected, atol=2e-5)


def test_without_kernels_texts_are_bounded_by_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX Runtime's causal attention needs memory for all pairs of tokens."""
    case = CASES["mistral"]
    folder = write_case(case, tmp_path / "theirs")
    monkeypatch.setattr(families_text, "SHORT", 10)
    bundle = open_bundle(export(folder, ExportOptions(tmp_path / "models", precisions=("fp32",)), lambda line: None))
    heads, runs = 8, 2
    assert bundle.manifest_of(TextManifest).pair_bytes == heads * 8
    monkeypatch.setattr(text_model, "usable_memory", lambda: 2 * runs * heads * 8 * 12**2)
    options = EncoderOptions("fp32", runs=runs)
    with closing(TextModel("model", 1, bundle, options)) as served:
        assert len(served.run(EMBEDDING_TASK, TEXTS)) == len(TEXTS)
    monkeypatch.setenv(LEVEL, "off")
    with closing(TextModel("model", 1, bundle, options)) as served:
        [result] = served.run(EMBEDDING_TASK, ["x"])
        assert "at most 12 tokens" in served.describe()
        with pytest.raises(InvalidInputError, match="at most 12"):
            served.run(EMBEDDING_TASK, TEXTS)
    np.testing.assert_allclose(result.values, expected_vectors(case, folder)[TEXTS.index("x")], atol=2e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"activation_function": "torch.nn.modules.activation.Mish"}, r"2_Dense/config\.json: .*Mish' is none of"),
        ({"activation_function": []}, r"activation_function: '\[\]' is none of"),
        ({"out_features": 0}, "out_features: 0 is no number above 0"),
        ({"layers": 3}, "layers: 3 is not supported"),
    ],
)
def test_dense_layers_that_are_not_supported_are_rejected(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    folder = write_case(CASES["gpt2"], tmp_path)
    config = {"in_features": 24, "out_features": 7, "activation_function": "torch.nn.modules.linear.Identity"}
    write_json(folder / "2_Dense/config.json", {**config, **changes})
    with pytest.raises(SourceError, match=message):
        load(Folder(folder))


def test_a_decoder_has_no_first_token_to_pool(tmp_path: Path) -> None:
    folder = write_case(CASES["qwen3"], tmp_path)
    write_json(folder / "1_Pooling/config.json", {"pooling_mode": "cls"})
    with pytest.raises(SourceError, match="pooling by cls is not supported; supported: mean, lasttoken"):
        load(Folder(folder))


def test_long_texts_are_limited(tmp_path: Path) -> None:
    folder = write_case(CASES["mistral"], tmp_path)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": 12})
    checkpoint = load(Folder(folder))
    assert isinstance(checkpoint, TextCheckpoint)
    assert checkpoint.model.config.max_positions == 12
    assert {len(module.cosines) for module in checkpoint.model.modules() if isinstance(module, Rotary)} == {12}
