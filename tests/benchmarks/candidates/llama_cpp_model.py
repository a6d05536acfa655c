"""llama.cpp through llama-cpp-python. The checkpoint of a Llama is written as a GGUF file at first."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType
from numpy.typing import NDArray

from candidates.candidate import Answer, Candidate, Decoding
from candidates.generators import id_answers, read_ids

KINDS = {"fp32": "F32", "int8": "Q8_0", "int8-caches": "Q8_0", "int4": "Q4_1", "int4-int8-caches": "Q4_1"}


def write_gguf(checkpoint: Path, path: Path, kind: GGMLQuantizationType) -> None:
    """Write a Llama of transformers without its tokenizer; embeddings have 8 bits where the other weights have 4."""
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(checkpoint).float()
    config = model.config
    if config.model_type != "llama":
        raise ValueError(f"{config.model_type}: only checkpoints of Llama are converted")
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_tokenizer_model("none")
    writer.add_vocab_size(config.vocab_size)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    for name, tensor in model.state_dict().items():
        stem, _, part = name.rpartition(".")
        values = tensor.numpy()
        if stem == "lm_head" and config.tie_word_embeddings:
            continue
        if stem.endswith(("q_proj", "k_proj")):  # pairs of neighbours are rotated
            heads = config.num_attention_heads if stem.endswith("q_proj") else config.num_key_value_heads
            values = values.reshape(heads, 2, -1, config.hidden_size).swapaxes(1, 2).reshape(values.shape)
        own = kind if values.ndim > 1 else GGMLQuantizationType.F32
        if own is GGMLQuantizationType.Q4_1 and stem.endswith(("embed_tokens", "lm_head")):
            own = GGMLQuantizationType.Q8_0
        quantized = gguf.quantize(np.ascontiguousarray(values), own)
        writer.add_tensor(f"{names.get_name(stem)}.{part}", quantized, raw_dtype=own)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class LlamaCppGenerator(Candidate):
    """llama.cpp; the prompts of a call are one batch, and so are their tokens in each step."""

    name, family = "llama.cpp", "llama.cpp"

    def __init__(self, checkpoint: Path, folder: Path, precision: str, threads: int) -> None:
        import llama_cpp  # type: ignore[import-not-found]

        path = folder / f"{precision}.gguf"
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            write_gguf(checkpoint, path, GGMLQuantizationType[KINDS[precision]])
        self._library, self._threads = llama_cpp, threads
        self._quiet = llama_cpp.llama_log_callback(lambda level, text, data: None)
        llama_cpp.llama_log_set(self._quiet, None)
        self._model = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
        self._size = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self._model))
        self.settings = llama_cpp.llama_print_system_info().decode()

    def translate(self, texts: Sequence[str], decoding: Decoding) -> list[Answer]:
        prompts = read_ids(texts)
        parameters = self._library.llama_context_default_params()
        parameters.n_ctx, parameters.n_seq_max = len(prompts) * (len(prompts[0]) + decoding.limit), len(prompts)
        parameters.n_batch = len(prompts) * len(prompts[0])
        parameters.n_threads = parameters.n_threads_batch = self._threads
        context = self._library.llama_init_from_model(self._model, parameters)
        batch = self._library.llama_batch_init(parameters.n_batch, 0, 1)
        try:
            return id_answers(np.stack(list(self._generate(context, batch, prompts, decoding.limit)), 1).tolist())
        finally:
            self._library.llama_batch_free(batch)
            self._library.llama_free(context)

    def _generate(self, context: Any, batch: Any, prompts: list[list[int]], limit: int) -> Iterator[NDArray[np.int64]]:
        """Yield the next token of each prompt, `limit` times."""
        start, tokens = 0, np.array(prompts)
        for _ in range(limit):
            rows, count = tokens.shape
            batch.n_tokens = rows * count
            for at, token in enumerate(tokens.reshape(-1).tolist()):
                batch.token[at], batch.pos[at] = token, start + at % count
                batch.n_seq_id[at], batch.seq_id[at][0] = 1, at // count
                batch.logits[at] = at % count == count - 1
            if self._library.llama_decode(context, batch):
                raise RuntimeError("llama.cpp did not decode a batch")
            start += count
            pointers = [self._library.llama_get_logits_ith(context, (row + 1) * count - 1) for row in range(rows)]
            logits = [np.ctypeslib.as_array(pointer, (self._size,)) for pointer in pointers]
            found = np.array([each.argmax() for each in logits])
            yield found
            tokens = found[:, None]
