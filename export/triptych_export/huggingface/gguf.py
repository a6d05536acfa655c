"""GGUF files of llama.cpp, as folders of the Hugging Face families that they were made of. Weights are restored to float32.

Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import BPE
from torch import Tensor

from triptych_export.errors import SourceError
from triptych_export.huggingface.chat import Chat, checked_template
from triptych_export.huggingface.checkpoint.weights import StoredWeights
from triptych_export.huggingface.folder import Folder, Members, one_line
from triptych_export.huggingface.tokenizers.piece_model import BPE as PIECES
from triptych_export.huggingface.tokenizers.piece_model import Piece, PieceModel, PieceType
from triptych_export.huggingface.tokenizers.piece_tokenizer import Vocabulary, piece_tokenizer
from triptych_export.huggingface.tokenizers.special_tokens import special_token
from triptych_training.models.rotary import RotaryScaling

# By architecture: the class of its checkpoints, and their names of the tensors.
LLAMA_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "blk.{i}.attn_norm": "model.layers.{i}.input_layernorm",
    "blk.{i}.attn_q": "model.layers.{i}.self_attn.q_proj",
    "blk.{i}.attn_k": "model.layers.{i}.self_attn.k_proj",
    "blk.{i}.attn_v": "model.layers.{i}.self_attn.v_proj",
    "blk.{i}.attn_q_norm": "model.layers.{i}.self_attn.q_norm",  # of Qwen3
    "blk.{i}.attn_k_norm": "model.layers.{i}.self_attn.k_norm",
    "blk.{i}.attn_output": "model.layers.{i}.self_attn.o_proj",
    "blk.{i}.ffn_norm": "model.layers.{i}.post_attention_layernorm",
    "blk.{i}.ffn_gate": "model.layers.{i}.mlp.gate_proj",
    "blk.{i}.ffn_up": "model.layers.{i}.mlp.up_proj",
    "blk.{i}.ffn_down": "model.layers.{i}.mlp.down_proj",
}
# Norms before and after each sub-layer, of Gemma 2 and 3; OLMo 2 has the latter only.
GEMMA_NAMES = {
    **LLAMA_NAMES,
    "blk.{i}.post_attention_norm": "model.layers.{i}.post_attention_layernorm",
    "blk.{i}.ffn_norm": "model.layers.{i}.pre_feedforward_layernorm",
    "blk.{i}.post_ffw_norm": "model.layers.{i}.post_feedforward_layernorm",
}
PHI3_NAMES = {
    **LLAMA_NAMES,
    "blk.{i}.attn_qkv": "model.layers.{i}.self_attn.qkv_proj",
    "blk.{i}.ffn_up": "model.layers.{i}.mlp.gate_up_proj",
}
LFM2_NAMES = {
    **LLAMA_NAMES,
    "token_embd_norm": "model.embedding_norm",
    "blk.{i}.attn_norm": "model.layers.{i}.operator_norm",
    "blk.{i}.attn_q_norm": "model.layers.{i}.self_attn.q_layernorm",
    "blk.{i}.attn_k_norm": "model.layers.{i}.self_attn.k_layernorm",
    "blk.{i}.attn_output": "model.layers.{i}.self_attn.out_proj",
    "blk.{i}.ffn_norm": "model.layers.{i}.ffn_norm",
    "blk.{i}.ffn_gate": "model.layers.{i}.feed_forward.w1",
    "blk.{i}.ffn_up": "model.layers.{i}.feed_forward.w3",
    "blk.{i}.ffn_down": "model.layers.{i}.feed_forward.w2",
    "blk.{i}.shortconv.conv": "model.layers.{i}.conv.conv",
    "blk.{i}.shortconv.in_proj": "model.layers.{i}.conv.in_proj",
    "blk.{i}.shortconv.out_proj": "model.layers.{i}.conv.out_proj",
}


@dataclass(frozen=True)
class GgufFamily:
    """Description of an architecture of llama.cpp: how its files differ from the checkpoints of its class."""

    architecture: str  # class of its checkpoints
    names: Mapping[str, str] = field(default_factory=lambda: LLAMA_NAMES)  # the checkpoints' names of the tensors
    # Metadata besides MEMBERS, and the members of config.json that they become; absent or 0: no member.
    members: Mapping[str, str] = field(default_factory=dict)
    model_type: str = ""  # of config.json; empty: the architecture's name
    neighbours: bool = False  # queries and keys are rotated with their neighbours; checkpoints pair the halves of a head
    norm_shift: float = 0.0  # what the checkpoints' norms lack
    # Layers of the model whose attention is scaled by the share of its width that a head has; that of others by a head's size.
    wide_layers: int = 0


WINDOW = {"attention.sliding_window": "sliding_window"}
LIMITS = {name: name for name in ("attn_logit_softcapping", "final_logit_softcapping")}
GRANITE = {
    "attention.scale": "attention_multiplier",
    "embedding_scale": "embedding_multiplier",
    "residual_scale": "residual_multiplier",
    "logit_scale": "logits_scaling",
}
LOCAL_BASE = {"rope.freq_base_swa": "rope_local_base_freq"}
PHI3 = {
    **WINDOW,
    "rope.scaling.original_context_length": "original_max_position_embeddings",
    "rope.scaling.attn_factor": "attention_factor",
}
FAMILIES: Mapping[str, GgufFamily] = {
    "gemma": GgufFamily("GemmaForCausalLM", norm_shift=1.0),
    "gemma2": GgufFamily("Gemma2ForCausalLM", GEMMA_NAMES, {**WINDOW, **LIMITS}, norm_shift=1.0, wide_layers=46),
    "gemma3": GgufFamily(
        "Gemma3ForCausalLM", GEMMA_NAMES, {**WINDOW, **LIMITS, **LOCAL_BASE}, "gemma3_text", norm_shift=1.0, wide_layers=62
    ),
    "granite": GgufFamily("GraniteForCausalLM", members=GRANITE, neighbours=True),
    "lfm2": GgufFamily(
        "Lfm2ForCausalLM", LFM2_NAMES, {"shortconv.l_cache": "conv_L_cache", "attention.layer_norm_rms_epsilon": "norm_eps"}
    ),
    "llama": GgufFamily("LlamaForCausalLM", neighbours=True),
    "olmo2": GgufFamily("Olmo2ForCausalLM", GEMMA_NAMES),
    "phi3": GgufFamily("Phi3ForCausalLM", PHI3_NAMES, PHI3),
    "qwen2": GgufFamily("Qwen2ForCausalLM"),
    "qwen3": GgufFamily("Qwen3ForCausalLM"),
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
SHARED_HEADS = "attention.head_count_kv"
OPTIONAL = (SHARED_HEADS, "attention.key_length", "rope.freq_base")
NEUTRAL = (
    *("vocab_size", "attention.value_length"),
    *("rope.dimension_count", "rope.scaling.type", "rope.scaling.factor", "rope.scaling.finetuned"),
)
DIVISORS = "rope_freqs.weight"  # of the rotary frequencies, where a checkpoint has rope_type llama3
FACTORS = {"short_factor": "rope_factors_short.weight", "long_factor": "rope_factors_long.weight"}  # the same of longrope
STARTING = ("llama-bpe", "lfm2")  # tokenizers that take whole words without merges, and put a token before texts
# How byte-level tokenizers cut texts before they merge bytes, by llama.cpp's names; "": as GPT-2.
DIGITS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{%s}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CUTS = {
    "gpt-2": "",
    **dict.fromkeys(("smollm", "starcoder", "refact"), r"\p{N}"),
    "qwen2": DIGITS % "1",
    **dict.fromkeys(("llama-bpe", "lfm2", "dbrx"), DIGITS % "1,3"),
}


def open_gguf(path: Path) -> "GgufFolder":
    """Open a GGUF file.

    Raises:
        SourceError: the file is damaged or of an architecture that is not supported.
    """
    from gguf import GGUFReader

    class Reader(GGUFReader):  # type: ignore[misc]
        """Reads nothing beyond the end of a file, where the base class finds any number of empty elements."""

        def _get(self, offset: int, dtype: Any, count: int = 1, *arguments: Any, **named: Any) -> Any:
            found = super()._get(offset, dtype, count, *arguments, **named)
            if len(found) < count:
                raise ValueError(f"{count:,} values at byte {offset:,} do not fit into the file")
            return found

    try:
        reader = Reader(path)
        metadata = {name: field.contents() for name, field in reader.fields.items()}
    except (OSError, ValueError, KeyError, IndexError, RecursionError) as error:
        raise SourceError(f"{path}: not a GGUF file, or damaged ({one_line(error)})") from error
    if isinstance(parts := metadata.get("split.count"), int) and parts > 1:
        raise SourceError(f"{path}: one of {parts} parts of a model; join them: llama-gguf-split --merge FIRST_PART WHOLE.gguf")
    if (kind := metadata.get("general.type", "model")) == "adapter":
        raise SourceError(f"{path}: general.type {kind!r} is not supported; export PEFT's folder that it was made of")
    if (kind := metadata.get("general.architecture")) not in list(FAMILIES):  # it may be a list itself
        raise SourceError(f"{path}: general.architecture {kind!r} is not supported; supported: {', '.join(FAMILIES)}")
    return GgufFolder(path, metadata=metadata, reader=reader)


@dataclass(frozen=True)
class GgufFolder(Folder):
    """One GGUF file."""

    metadata: Mapping[str, Any] = field(default_factory=dict)
    reader: Any = None

    @property
    def family(self) -> GgufFamily:
        """Description of the file's architecture."""
        return FAMILIES[self.metadata["general.architecture"]]

    @cached_property
    def config(self) -> Members:
        """The members that config.json would have."""
        kind = self.metadata["general.architecture"]
        given = {name.removeprefix(f"{kind}."): value for name, value in self.metadata.items() if name.startswith(f"{kind}.")}
        if unknown := sorted(given.keys() - MEMBERS.keys() - self.family.members.keys() - set(NEUTRAL)):
            raise SourceError(f"{self.path}: {kind}.{unknown[0]}: {given[unknown[0]]!r:.60} is not supported")
        by_layer = given.get(SHARED_HEADS) if isinstance(given.get(SHARED_HEADS), list) else []
        needed = [name for name in MEMBERS if name in given or name not in OPTIONAL]
        wanted = {theirs: MEMBERS[theirs] for theirs in needed if not (by_layer and theirs == SHARED_HEADS)}
        wanted |= {theirs: ours for theirs, ours in self.family.members.items() if given.get(theirs)}
        members: dict[str, Any] = {ours: self._positive(f"{kind}.{theirs}") for theirs, ours in wanted.items()}
        if by_layer:
            members |= self._layers(by_layer)
        width = members["hidden_size"] // members["num_attention_heads"]
        size = members.get("head_dim", width)
        if wide := self.family.wide_layers:
            members["query_pre_attn_scalar"] = width if members["num_hidden_layers"] == wide else size
        if (rotated := given.get("rope.dimension_count", size)) != size:
            if kind != "phi3":
                raise SourceError(f"{self.path}: {kind}.rope.dimension_count: {rotated} is not {size}")
            members["partial_rotary_factor"] = rotated / size
        if (scaling := given.get("rope.scaling.type", "none")) != "none":
            members["rope_scaling"] = {"rope_type": scaling, "factor": given.get("rope.scaling.factor")}
        tensors = {tensor.name: tensor for tensor in self.reader.tensors}
        if DIVISORS in tensors:
            members["rope_scaling"] = self._llama3(torch.tensor(tensors[DIVISORS].data), members, size)
        if factors := {ours: tensors[theirs].data.tolist() for ours, theirs in FACTORS.items() if theirs in tensors}:
            members["rope_scaling"] = {
                "rope_type": "longrope",
                "attention_factor": members.pop("attention_factor", None),
                **factors,
            }
        ends = [self._special(name) for name in ("eos", "eot")]
        return Members(
            {
                **members,
                "model_type": self.family.model_type or kind,
                "architectures": [self.family.architecture],
                "vocab_size": len(self._tokens),
                "tie_word_embeddings": "output.weight" not in tensors,
                "eos_token_id": list(dict.fromkeys(end for end in ends if end is not None)) or None,
                "bos_token_id": self._special("bos"),
                "pad_token_id": self._special("padding"),
                **({"block_auto_adjust_ff_dim": False} if kind == "lfm2" else {}),
            }
        )

    def _layers(self, heads: Sequence[Any]) -> dict[str, Any]:
        """Return the members that follow from the heads of keys and values of each layer: those without have convolutions."""
        most = max(heads)
        if set(heads) - {0, most} or (0 in heads and self.family.names is not LFM2_NAMES):
            raise SourceError(f"{self.path}: {SHARED_HEADS}: {heads!r:.80}; different numbers of heads are not supported")
        kinds = {"layer_types": ["full_attention" if each else "conv" for each in heads]} if 0 in heads else {}
        return {"num_key_value_heads": most, **kinds}

    def config_error(self, problem: str) -> SourceError:
        """Make an error about the model's shape or its special ids."""
        return SourceError(f"{self.path}: {problem}")

    def weights(self) -> StoredWeights:
        """Return the tensors under the checkpoint's names."""
        return StoredWeights({self.path: _Shard(self)})

    def tokenizer(self) -> Tokenizer:
        """Make the tokenizer; raises SourceError if its kind is not supported."""
        tokens, kinds = self._tokens, self._for_each_token("tokenizer.ggml.token_type")
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
        # Without this member, llama.cpp decides by the kind of the tokenizer.
        starts = model == "llama" or self.metadata.get("tokenizer.ggml.pre") in STARTING
        if self.metadata.get("tokenizer.ggml.add_bos_token", starts):
            start = tokens[self._special("bos", needed=True)]
            ids = [(start, tokenizer.token_to_id(start))]
            tokenizer.post_processor = processors.TemplateProcessing(single=[start, "$A"], special_tokens=ids)
        return tokenizer

    def chat(self) -> Chat:
        """Return the chat template and the texts of special tokens."""
        roles = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
        ids = {f"{ours}_token": self._special(theirs) for ours, theirs in roles.items()}
        texts = {name: self._tokens[id] for name, id in ids.items() if id is not None}
        name = "tokenizer.chat_template"
        return Chat(checked_template(self.metadata.get(name, ""), f"{self.path}: {name}"), texts)

    @property
    def _tokens(self) -> Sequence[str]:
        tokens: Sequence[str] = self._needed("tokenizer.ggml.tokens")
        return tokens

    def _for_each_token(self, name: str) -> Sequence[Any]:
        values: Sequence[Any] = self._needed(name)
        if len(values) != len(self._tokens):
            raise SourceError(f"{self.path}: {name}: {len(values):,} values for {len(self._tokens):,} tokens")
        return values

    def _special(self, role: str, needed: bool = False) -> Any:
        """Return the id of a special token, or None."""
        name = f"tokenizer.ggml.{role}_token_id"
        id = self._needed(name) if needed else self.metadata.get(name)
        if id is not None and not 0 <= id < len(self._tokens):
            raise SourceError(f"{self.path}: {name}: {id:,} is outside the vocabulary of {len(self._tokens):,} tokens")
        return id

    def _positive(self, name: str) -> float:
        value = self._needed(name)
        if not isinstance(value, int | float) or value <= 0:
            raise SourceError(f"{self.path}: {name}: {value!r:.60}, expected a number above 0")
        return value

    def _needed(self, name: str) -> Any:
        if name not in self.metadata:
            raise SourceError(f"{self.path}: {name} is missing")
        return self.metadata[name]

    def _llama3(self, divisors: Tensor, members: Mapping[str, Any], size: int) -> Mapping[str, Any]:
        """Return the scaling that divisors of the rotary frequencies come from; raises SourceError if it is another one."""
        scaling = RotaryScaling("llama3", max(1.0, float(divisors.max())))
        plain = members.get("rope_theta", 10_000.0) ** -(torch.arange(0, size, 2) / size)
        same = divisors.shape == plain.shape and torch.allclose(plain / divisors, scaling.apply(plain), rtol=1e-4, atol=0)
        names = ("low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
        limits = dict(zip(names, (scaling.low, scaling.high, scaling.original), strict=True))
        if not same or "rope_scaling" in members:
            raise SourceError(f"{self.path}: {DIVISORS}: a scaling of rotary positions; only Llama 3's is supported: {limits}")
        return {"rope_type": scaling.kind, "factor": scaling.factor, **limits}

    def _byte_level(self, tokens: Sequence[str]) -> Tokenizer:
        cut = self.metadata.get("tokenizer.ggml.pre", "gpt-2")
        if cut not in CUTS:
            raise SourceError(f"{self.path}: tokenizer.ggml.pre {cut!r} is not supported; supported: {', '.join(CUTS)}")
        merges = [tuple(merge.split(" ")) for merge in self._needed("tokenizer.ggml.merges")]
        ids = {token: id for id, token in enumerate(tokens)}
        try:
            tokenizer = Tokenizer(BPE(ids, merges, ignore_merges=cut in STARTING))
        except Exception as error:  # the package has no class for its errors
            raise SourceError(f"{self.path}: tokenizer.ggml.merges: the tokens lack a part or a result: {error}") from error
        whole = CUTS[cut] in ("", CUTS["smollm"])  # then cut as GPT-2 does, too
        steps = [pre_tokenizers.Split(Regex(CUTS[cut]), "isolated")] if CUTS[cut] else []
        last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=whole)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*steps, last])
        tokenizer.decoder = decoders.ByteLevel()
        if cut == "qwen2":
            tokenizer.normalizer = normalizers.NFC()
        return tokenizer

    def _pieces(self, tokens: Sequence[str], kinds: Sequence[int], special: Sequence[AddedToken]) -> Tokenizer:
        scores = self._for_each_token("tokenizer.ggml.scores")
        pieces = tuple(Piece(t, score, PieceType(k)) for t, score, k in zip(tokens, scores, kinds, strict=True))
        prefix = bool(self.metadata.get("tokenizer.ggml.add_space_prefix", True))
        model = PieceModel(pieces, PIECES, dummy_prefix=prefix, trims=False, byte_fallback=PieceType.BYTE in kinds)
        unknown = tokens[list(kinds).index(PieceType.UNKNOWN)] if PieceType.UNKNOWN in kinds else tokens[0]
        return piece_tokenizer(model, Vocabulary(tokens, unknown, [special_token(unknown), *special]))


class _Shard:
    """Tensors of a GGUF file under the checkpoint's names."""

    def __init__(self, folder: GgufFolder) -> None:
        self._path, self._config, self._family = folder.path, folder.config.whole, folder.family
        kept = [tensor for tensor in folder.reader.tensors if tensor.name not in (DIVISORS, *FACTORS.values())]
        self._tensors = {_rename(tensor.name, self._family.names): tensor for tensor in kept}
        self.shapes = {name: torch.Size(int(size) for size in reversed(t.shape)) for name, t in self._tensors.items()}

    def read(self, name: str) -> Tensor:
        from gguf.quants import dequantize

        stored = self._tensors[name]
        try:
            values = dequantize(stored.data, stored.tensor_type)
        except NotImplementedError as error:
            raise SourceError(
                f"{self._path}: {stored.name}: the gguf package does not read {stored.tensor_type.name}"
            ) from error
        tensor = torch.from_numpy(values.copy()).view(self.shapes[name])
        if name.endswith("norm.weight"):
            return tensor - self._family.norm_shift
        if self._family.neighbours and re.search(r"\.[qk]_proj\.", name):
            heads = self._config["num_attention_heads"]
            count = heads if ".q_proj." in name else self._config.get("num_key_value_heads", heads)
            tensor = torch.unflatten(tensor, 0, (count, -1, 2)).transpose(1, 2).flatten(0, 2)
        return tensor


def _rename(name: str, names: Mapping[str, str]) -> str:
    """Return a tensor's name in the checkpoint; an unknown one stays, and is reported as unexpected."""
    stem, dot, part = name.rpartition(".")
    number = re.search(r"\.(\d+)\.", stem)
    known = names.get(stem if number is None else stem.replace(number[0], ".{i}.", 1))
    return f"{known.replace('{i}', number[1] if number else '')}{dot}{part}" if known else name
