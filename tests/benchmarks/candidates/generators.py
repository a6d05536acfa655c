"""Implementations of text generation with one checkpoint. A prompt is a text of token ids, such as "17 5 230".

CTranslate2 and onnxruntime-genai need `pip install ctranslate2 onnxruntime-genai`; each converts the checkpoint at first.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from candidates.candidate import Answer, Candidate, Decoding
from candidates.triptych_model import GrpcCandidate
from triptych.decoding import DecodingOptions
from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.models.decode_model import DecodeModelOptions
from triptych_serving.models.generation.generator import Generator
from triptych_serving.models.generation.options import GenerationRequest

TYPES = {"fp32": "float32", "int8-caches": "int8"}  # other precisions have CTranslate2's own names


def read_ids(prompts: Sequence[str]) -> list[list[int]]:
    """Return the ids of prompts, all equally long."""
    return [list(map(int, prompt.split())) for prompt in prompts]


def id_answers(rows: Sequence[Sequence[int]]) -> list[Answer]:
    """Return the generated ids as the tokenizer of the checkpoint writes them."""
    return [Answer(" ".join(map(str, row)), len(row)) for row in rows]


class TriptychGenerator(Candidate):
    """Triptych's engine in this process, without the prefix cache, which repeated prompts would fill."""

    name, family = "Triptych", "Triptych"

    def __init__(self, folder: Path, precision: str) -> None:
        self._generator = Generator("model", 1, open_bundle(folder), DecodeModelOptions(precision, prefix_cache_bytes=0))
        self.settings = self._generator.describe()

    def translate(self, texts: Sequence[str], decoding: Decoding) -> list[Answer]:
        options = DecodingOptions(sampling_topk=1)
        found = self._generator.generate(GenerationRequest(prompts=texts, options=options, max_tokens=decoding.limit))
        return [Answer(one.text.strip(), one.choices[0].token_count) for one in found]

    def close(self) -> None:
        self._generator.close()


class TriptychGrpcGenerator(GrpcCandidate):
    """`triptych serve` in another process, called through the Python client: one request with all prompts."""

    def __init__(self, repository: Path, precision: str) -> None:
        super().__init__(["--models", str(repository), "--precision", precision, "--prefix-cache-bytes", "0"])

    def translate(self, texts: Sequence[str], decoding: Decoding) -> list[Answer]:
        found = self._client.generate_many(texts, sampling_topk=1, max_tokens=decoding.limit)
        return [Answer(one.text.strip(), one.choices[0].token_count) for one in found]


class CTranslate2Generator(Candidate):
    """CTranslate2's Generator; a call is one batch."""

    name, family = "CTranslate2", "CTranslate2"

    def __init__(self, checkpoint: Path, folder: Path, precision: str, threads: int) -> None:
        import ctranslate2  # type: ignore[import-untyped]
        from ctranslate2.converters import TransformersConverter  # type: ignore[import-untyped]

        if not folder.exists():
            TransformersConverter(str(checkpoint)).convert(str(folder))
        compute_type = TYPES.get(precision, precision)
        self._generator = ctranslate2.Generator(str(folder), "cpu", compute_type=compute_type, intra_threads=threads)

    def translate(self, texts: Sequence[str], decoding: Decoding) -> list[Answer]:
        found = self._generator.generate_batch(
            [text.split() for text in texts],
            max_length=decoding.limit,
            min_length=decoding.limit,
            sampling_topk=1,
            include_prompt_in_result=False,
        )
        return id_answers([one.sequences_ids[0] for one in found])


class GenaiGenerator(Candidate):
    """onnxruntime-genai with the graph of its own builder; a call is one batch."""

    name, family = "onnxruntime-genai", "onnxruntime-genai"

    def __init__(self, checkpoint: Path, folder: Path, threads: int) -> None:
        import onnxruntime_genai  # type: ignore[import-not-found]

        if not (folder / "genai_config.json").exists():
            builder = [sys.executable, "-m", "onnxruntime_genai.models.builder", "-p", "fp32", "-e", "cpu"]
            subprocess.run([*builder, "-m", str(checkpoint), "-i", str(checkpoint), "-o", str(folder)], check=True)
        config = onnxruntime_genai.Config(str(folder))
        config.overlay(f'{{"model": {{"decoder": {{"session_options": {{"intra_op_num_threads": {threads}}}}}}}}}')
        self._genai, self._model = onnxruntime_genai, onnxruntime_genai.Model(config)

    def translate(self, texts: Sequence[str], decoding: Decoding) -> list[Answer]:
        prompts, parameters = read_ids(texts), self._genai.GeneratorParams(self._model)
        length = len(prompts[0]) + decoding.limit
        parameters.set_search_options(batch_size=len(prompts), max_length=length, min_length=length, do_sample=False)
        generator = self._genai.Generator(self._model, parameters)
        generator.append_tokens(prompts)
        while not generator.is_done():
            generator.generate_next_token()
        return id_answers([generator.get_sequence(row)[len(prompts[0]) :].tolist() for row in range(len(prompts))])


class TransformersGenerator(Candidate):
    """`generate` of transformers, fp32, scaled dot-product attention; a call is one batch."""

    name, family = "transformers", "transformers"

    def __init__(self, checkpoint: Path, threads: int) -> None:
        import torch
        import transformers

        torch.set_num_threads(threads)
        self._torch = torch
        self._model: Any = transformers.AutoModelForCausalLM.from_pretrained(checkpoint).eval()

    def translate(self, texts: Sequence[str], decoding: Decoding) -> list[Answer]:
        ids = self._torch.tensor(read_ids(texts))
        most = {"max_new_tokens": decoding.limit, "min_new_tokens": decoding.limit}
        with self._torch.inference_mode():
            found = self._model.generate(
                ids, attention_mask=self._torch.ones_like(ids), do_sample=False, pad_token_id=0, **most
            )
        return id_answers(found[:, ids.shape[1] :].tolist())
