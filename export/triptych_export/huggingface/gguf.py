"""GGUF files of llama.cpp, as folders of the Hugging Face families that they were made of. Weights are restored to float32.

Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import BPE
from torch import Tensor

from triptych_export.errors import SourceError
from triptych_export.huggingface.checkpoint.weights import StoredWeights
from triptych_export.huggingface.folder import Folder, Members
from triptych_export.huggingface.tokenizers.piece_model import BPE as PIECES
from triptych_export.huggingface.tokenizers.piece_model import Piece, PieceModel, PieceType
from triptych_export.huggingface.tokenizers.piece_tokenizer import Vocabulary, piece_tokenizer
from triptych_export.huggingface.tokenizers.special_tokens import special_token

SUFFIX = ".gguf"
INSTALL = "reading GGUF files needs the package gguf: pip install gguf"
# By architecture: the class of its checkpoints, and their names of the tensors.
LLAMA_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "blk.{i}.attn_norm": "model.layers.{i}.input_layernorm",
    "blk.{i}.attn_q": "model.layers.{i}.self_attn.q_proj",
    "blk.{i}.attn_k": "model.layers.{i}.self_attn.k_proj",
    "blk.{i}.attn_v": "model.layers.{i}.self_attn.v_proj",
    "blk.{i}.attn_output": "model.layers.{i}.self_attn.o_proj",
    "blk.{i}.ffn_norm": "model.layers.{i}.post_attention_layernorm",
    "blk.{i}.ffn_gate": "model.layers.{i}.mlp.gate_proj",
    "blk.{i}.ffn_up": "model.layers.{i}.mlp.up_proj",
    "blk.{i}.ffn_down": "model.layers.{i}.mlp.down_proj",
}
FAMILIES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "llama": ("LlamaForCausalLM", LLAMA_NAMES),
    "qwen2": ("Qwen2ForCausalLM", LLAMA_NAMES),
}
# Metadata of the architecture, and the members of config.json that they become.
MEMBERS = {
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "rope.freq_base": "rope_theta",
}
NEUTRAL = ("vocab_size", "attention.value_length", "rope.dimension_count", "rope.scaling.type", "rope.scaling.factor")
# How byte-level tokenizers cut texts before they merge bytes, by llama.cpp's names; "": as GPT-2.
DIGITS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{%s}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CUTS = {"gpt-2": "", "smollm": r"\p{N}", "qwen2": DIGITS % "1", "llama-bpe": DIGITS % "1,3"}


def open_gguf(path: Path) -> "GgufFolder":
    """Open a GGUF file.

    Raises:
        SourceError: the package gguf is not installed, or the file is damaged or of an architecture that is not supported.
    """
    try:
        from gguf import GGUFReader
    except ImportError as error:
        raise SourceError(f"{path}: {INSTALL}") from error
    try:
        reader = GGUFReader(path)
        metadata = {name: field.contents() for name, field in reader.fields.items()}
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise SourceError(f"{path}: not a GGUF file, or damaged ({' '.join(str(error).split())})") from error
    if (kind := metadata.get("general.architecture")) not in FAMILIES:
        raise SourceError(f"{path}: general.architecture {kind!r} is not supported; supported: {', '.join(FAMILIES)}")
    return GgufFolder(path, metadata=metadata, reader=reader)


@dataclass(frozen=True)
class GgufFolder(Folder):
    """One GGUF file."""

    metadata: Mapping[str, Any] = ()  # type: ignore[assignment]
    reader: Any = None

    @cached_property
    def config(self) -> Members:
        """The members that config.json would have."""
        kind = self.metadata["general.architecture"]
        given = {name.removeprefix(f"{kind}."): value for name, value in self.metadata.items() if name.startswith(f"{kind}.")}
        if unknown := sorted(given.keys() - MEMBERS.keys() - set(NEUTRAL)):
            raise SourceError(f"{self.path}: {kind}.{unknown[0]}: {given[unknown[0]]!r:.60} is not supported")
        members = {ours: given[theirs] for theirs, ours in MEMBERS.items() if theirs in given}
        size = members.get("head_dim", members["hidden_size"] // members["num_attention_heads"])
        if given.get("rope.dimension_count", size) != size:
            raise SourceError(f"{self.path}: {kind}.rope.dimension_count: {given['rope.dimension_count']} is not {size}")
        if (scaling := given.get("rope.scaling.type", "none")) != "none":
            members["rope_scaling"] = {"type": scaling, "factor": given.get("rope.scaling.factor")}
        names = {tensor.name for tensor in self.reader.tensors}
        ends = [self.metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot")]
        return Members(
            {
                **members,
                "model_type": kind,
                "architectures": [FAMILIES[kind][0]],
                "vocab_size": len(self.metadata["tokenizer.ggml.tokens"]),
                "tie_word_embeddings": "output.weight" not in names,
                "eos_token_id": list(dict.fromkeys(end for end in ends if end is not None)) or None,
                "bos_token_id": self.metadata.get("tokenizer.ggml.bos_token_id"),
                "pad_token_id": self.metadata.get("tokenizer.ggml.padding_token_id"),
            }
        )

    def weights(self) -> StoredWeights:
        """Return the tensors under the checkpoint's names."""
        return StoredWeights({self.path: _Shard(self)})

    def tokenizer(self) -> Tokenizer:
        """Make the tokenizer; raises SourceError if its kind is not supported."""
        tokens, kinds = (self.metadata[f"tokenizer.ggml.{name}"] for name in ("tokens", "token_type"))
        special = [special_token(token) for token, kind in zip(tokens, kinds, strict=True) if kind == PieceType.CONTROL]
        model = self.metadata.get("tokenizer.ggml.model")
        if model == "gpt2":
            tokenizer = self._byte_level(tokens)
            added = [
                AddedToken(t, normalized=False) for t, kind in zip(tokens, kinds, strict=True) if kind == PieceType.USER_DEFINED
            ]
            tokenizer.add_tokens([*special, *added])
        elif model == "llama":
            tokenizer = self._pieces(tokens, kinds, special)
        else:
            raise SourceError(f"{self.path}: tokenizer.ggml.model {model!r} is not supported; supported: gpt2, llama")
        if self.metadata.get("tokenizer.ggml.add_bos_token", model == "llama"):
            start = tokens[self.metadata["tokenizer.ggml.bos_token_id"]]
            ids = [(start, tokenizer.token_to_id(start))]
            tokenizer.post_processor = processors.TemplateProcessing(single=[start, "$A"], special_tokens=ids)
        return tokenizer

    def chat(self) -> tuple[str, Mapping[str, str]]:
        """Return the chat template and the texts of special tokens."""
        tokens, roles = self.metadata["tokenizer.ggml.tokens"], {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
        ids = {f"{ours}_token": self.metadata.get(f"tokenizer.ggml.{theirs}_token_id") for ours, theirs in roles.items()}
        texts = {name: tokens[id] for name, id in ids.items() if id is not None}
        return str(self.metadata.get("tokenizer.chat_template", "")), texts

    def _byte_level(self, tokens: Sequence[str]) -> Tokenizer:
        cut = self.metadata.get("tokenizer.ggml.pre", "gpt-2")
        if cut not in CUTS:
            raise SourceError(f"{self.path}: tokenizer.ggml.pre {cut!r} is not supported; supported: {', '.join(CUTS)}")
        merges = [tuple(merge.split(" ")) for merge in self.metadata["tokenizer.ggml.merges"]]
        ids = {token: id for id, token in enumerate(tokens)}
        tokenizer = Tokenizer(BPE(ids, merges, ignore_merges=cut == "llama-bpe"))
        whole = not CUTS[cut] or cut == "smollm"  # then cut as GPT-2 does, too
        steps = [pre_tokenizers.Split(Regex(CUTS[cut]), "isolated")] if CUTS[cut] else []
        last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=whole)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*steps, last])
        tokenizer.decoder = decoders.ByteLevel()
        if cut == "qwen2":
            tokenizer.normalizer = normalizers.NFC()
        return tokenizer

    def _pieces(self, tokens: Sequence[str], kinds: Sequence[int], special: Sequence[AddedToken]) -> Tokenizer:
        scores = self.metadata["tokenizer.ggml.scores"]
        pieces = tuple(Piece(t, score, PieceType(k)) for t, score, k in zip(tokens, scores, kinds, strict=True))
        prefix = bool(self.metadata.get("tokenizer.ggml.add_space_prefix", True))
        model = PieceModel(pieces, PIECES, dummy_prefix=prefix, trims=False, byte_fallback=PieceType.BYTE in kinds)
        unknown = tokens[list(kinds).index(PieceType.UNKNOWN)] if PieceType.UNKNOWN in kinds else tokens[0]
        return piece_tokenizer(model, Vocabulary(tokens, unknown, [special_token(unknown), *special]))


class _Shard:
    """Tensors of a GGUF file under the checkpoint's names."""

    def __init__(self, folder: GgufFolder) -> None:
        self._config = folder.config.whole
        names = FAMILIES[self._config["model_type"]][1]
        self._tensors = {_rename(tensor.name, names): tensor for tensor in folder.reader.tensors}
        self.shapes = {name: torch.Size(int(size) for size in reversed(t.shape)) for name, t in self._tensors.items()}

    def read(self, name: str) -> Tensor:
        from gguf.quants import dequantize

        stored = self._tensors[name]
        tensor = torch.from_numpy(dequantize(stored.data, stored.tensor_type).copy()).view(self.shapes[name])
        if self._config["model_type"] == "llama" and re.search(r"\.[qk]_proj\.", name):
            heads = self._config["num_attention_heads"]
            count = heads if ".q_proj." in name else self._config.get("num_key_value_heads", heads)
            # llama.cpp rotates neighbours; checkpoints pair the halves of a head.
            tensor = torch.unflatten(tensor, 0, (count, -1, 2)).transpose(1, 2).flatten(0, 2)
        return tensor


def _rename(name: str, names: Mapping[str, str]) -> str:
    """Return a tensor's name in the checkpoint; an unknown one stays, and is reported as unexpected."""
    stem, dot, part = name.rpartition(".")
    number = re.search(r"\.(\d+)\.", stem)
    known = names.get(stem if number is None else stem.replace(number[0], ".{i}.", 1))
    return f"{known.replace('{i}', number[1] if number else '')}{dot}{part}" if known else name
