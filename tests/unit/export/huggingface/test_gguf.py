"""Metadata of GGUF files; tests/parity reads a whole file."""

import math
import re
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from triptych_export.errors import SourceError
from triptych_export.huggingface.gguf import DIVISORS, GgufFolder, open_gguf

SIZES = {"block_count": 1, "context_length": 64, "embedding_length": 128, "feed_forward_length": 16, "attention.head_count": 2}
TOKENIZER = {"model": "gpt2", "tokens": ["<s>", "</s>", "a", "b", "ab"], "token_type": [3, 3, 1, 1, 1], "merges": ["a b"]}
METADATA: dict[str, Any] = {
    "general.architecture": "llama",
    **{f"llama.{name}": value for name, value in SIZES.items()},
    **{"llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.rope.freq_base": 500_000.0},
    **{f"tokenizer.ggml.{name}": value for name, value in TOKENIZER.items()},
    **{"tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.bos_token_id": 0, "tokenizer.ggml.eos_token_id": 1},
}
OPTIONAL = {"llama.rope.freq_base", "tokenizer.ggml.add_bos_token", "tokenizer.ggml.eos_token_id"}
NEEDED = sorted(METADATA.keys() - OPTIONAL - {"general.architecture", "tokenizer.ggml.model"})


def opened(divisors: NDArray[np.float32] | None = None, **changes: Any) -> GgufFolder:
    """Open a file with METADATA and the given members, of which None removes one."""
    metadata = {name: value for name, value in (METADATA | changes).items() if value is not None}
    tensors = [] if divisors is None else [SimpleNamespace(name=DIVISORS, data=divisors, shape=divisors.shape)]
    return GgufFolder(Path("model.gguf"), metadata=metadata, reader=SimpleNamespace(tensors=tensors))


def read(folder: GgufFolder) -> None:
    _ = folder.config
    folder.tokenizer()
    folder.chat()


@pytest.mark.parametrize("name", NEEDED)
def test_missing_metadata_is_named(name: str) -> None:
    with pytest.raises(SourceError, match=f"^model.gguf: {name} is missing$"):
        read(opened(**{name: None}))


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("llama.attention.head_count", 0, "0, expected a number above 0"),
        ("llama.attention.head_count", [2, 2], r"\[2, 2\], expected a number above 0"),
        ("tokenizer.ggml.bos_token_id", 9_999, "9,999 is outside the vocabulary of 5 tokens"),
        ("tokenizer.ggml.eos_token_id", 5, "5 is outside the vocabulary of 5 tokens"),
        ("tokenizer.ggml.unknown_token_id", 5, "5 is outside the vocabulary of 5 tokens"),
        ("tokenizer.ggml.token_type", [3, 3], "2 values for 5 tokens"),
        ("tokenizer.ggml.merges", ["a c"], "the tokens lack a part or a result: .*`c`"),
        ("tokenizer.chat_template", "{% for %}", "not a chat template: .*; correct it, or remove it"),
    ],
)
def test_metadata_that_cannot_be_used_is_named(name: str, value: Any, problem: str) -> None:
    with pytest.raises(SourceError, match=f"^model.gguf: {name}: {problem}"):
        read(opened(**{name: value}))


@pytest.mark.parametrize(
    ("parts", "stored", "fault"),
    [
        (1, gguf.GGMLQuantizationType.Q8_K, "output.weight: the gguf package does not read Q8_K"),
        (
            2,
            gguf.GGMLQuantizationType.F32,
            "one of 2 parts of a model; join them: llama-gguf-split --merge FIRST_PART WHOLE.gguf",
        ),
    ],
)
def test_a_file_that_cannot_be_read_whole_is_refused(
    parts: int, stored: gguf.GGMLQuantizationType, fault: str, tmp_path: Path
) -> None:
    writer = gguf.GGUFWriter(path := tmp_path / "model.gguf", "llama")
    for name, value in SIZES.items():
        writer.add_uint32(f"llama.{name}", value)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_token_list(TOKENIZER["tokens"])
    writer.add_uint16("split.count", parts)
    writer.add_tensor("output.weight", np.zeros((1, 292), np.uint8), raw_dtype=stored)
    for step in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file, writer.close):
        step()
    with pytest.raises(SourceError, match=f"^{re.escape(str(path))}: {fault}$"):
        open_gguf(path).weights().tensor("lm_head.weight")


NAMED = struct.pack("<4sIQQQ", b"GGUF", 3, 0, 1, 1) + b"a"  # no tensors, and one member, whose name is "a"


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (struct.pack("<IIQ", 9, 0, 1_000), "1 values at byte 49 do not fit into the file"),
        (struct.pack("<IQ", 8, 2**63), "9,223,372,036,854,775,808 values at byte 45 do not fit"),
        (struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 2_000, "maximum recursion depth exceeded"),
    ],
    ids=["array", "text", "arrays in each other"],
)
def test_sizes_that_the_file_does_not_have_are_refused(value: bytes, problem: str, tmp_path: Path) -> None:
    (path := tmp_path / "model.gguf").write_bytes(NAMED + value)
    with pytest.raises(SourceError, match=rf"not a GGUF file, or damaged \({problem}"):
        open_gguf(path)


def test_an_architecture_that_is_no_name_is_refused(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(path := tmp_path / "model.gguf", "llama")
    writer.kv_data[0].clear()
    writer.add_array("general.architecture", ["llama"])
    for step in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file, writer.close):
        step()
    with pytest.raises(SourceError, match=r"general.architecture \['llama'\] is not supported"):
        open_gguf(path)


def test_a_file_of_an_adapter_names_the_remedy(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(path := tmp_path / "adapter.gguf", "llama")
    writer.add_type(gguf.GGUFType.ADAPTER)
    for step in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file, writer.close):
        step()
    with pytest.raises(SourceError, match=r"adapter\.gguf: general\.type 'adapter' is not supported; export PEFT's folder"):
        open_gguf(path)


def divisors_of(original: int) -> NDArray[np.float32]:
    """Compute the divisors of Llama 3.2 as llama.cpp's converter does."""
    factor, low, high = 32.0, 1.0, 4.0
    waves = 2 * math.pi * 500_000.0 ** (np.arange(0, 64, 2) / 64)
    smooth = (original / waves - low) / (high - low)
    mixed = 1 / ((1 - smooth) / factor + smooth)
    return np.where(waves < original / high, 1, np.where(waves > original / low, factor, mixed)).astype(np.float32)


def test_divisors_of_llama_3_become_its_scaling() -> None:
    folder = opened(divisors_of(8_192))
    limits = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8_192}
    assert folder.config["rope_scaling"] == {"rope_type": "llama3", "factor": 32.0, **limits}
    assert not folder.weights()


@pytest.mark.parametrize(
    ("divisors", "changes"),
    [
        (divisors_of(4_096), {}),
        (divisors_of(8_192)[1:], {}),
        (divisors_of(8_192), {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 2.0}),
    ],
    ids=["original", "number", "twice"],
)
def test_other_divisors_are_refused(divisors: NDArray[np.float32], changes: dict[str, Any]) -> None:
    with pytest.raises(SourceError, match=r"^model.gguf: rope_freqs.weight: .*only Llama 3's"):
        _ = opened(divisors, **changes).config


@pytest.mark.parametrize(("cut", "ids"), [("llama-bpe", [0, 4]), ("gpt-2", [4])])
def test_texts_begin_as_in_llama_cpp_where_the_file_does_not_say_it(cut: str, ids: list[int]) -> None:
    tokenizer = opened(**{"tokenizer.ggml.pre": cut, "tokenizer.ggml.add_bos_token": None}).tokenizer()
    assert tokenizer.encode("ab").ids == ids
