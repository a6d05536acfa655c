"""Imported decoder-only models, and an ONNX file, in the engine against `generate()` of transformers, alone and in company."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import ModelProto, TensorProto, helper

from triptych.decoding import DecodingOptions
from triptych_export.exporter import ExportOptions, export
from triptych_export.families import generation
from triptych_export.graphs.tracing import HALF_OPSET
from triptych_models import REPOSITORY
from triptych_serving.bundle.bundle import Bundle, open_bundle
from triptych_serving.bundle.manifest import WITH_INT8_CACHES
from triptych_serving.decoding import prompt_cache
from triptych_serving.decoding.engine import EngineOptions
from triptych_serving.models.decode_model import DecodeModelOptions
from triptych_serving.models.generation.generator import Generator
from triptych_serving.models.generation.options import GenerationRequest
from triptych_serving.runtime.native.library import native_kernels
from triptych_serving.runtime.session import SessionPlace
from triptych_serving.scheduling.engine import run_rows
from triptych_text.steps import finish

from ..fixtures.archives import unpacked
from ..fixtures.decoders import small_decoder
from ..fixtures.json_files import edit_json
from ..fixtures.optimum import optimum
from ..fixtures.quick_trials import quick_trials  # noqa: F401
from ..fixtures.sentences import SENTENCES
from ..fixtures.toy import TEXT_GENERATION_MODELS
from .test_huggingface_decoders import check_scores

PROMPTS = [SENTENCES[place][: 1 + 7 * place % 60] for place in range(8)]
NEW = 10
BIASES = {token: 3.0 if token % 3 else -4.0 for token in range(0, 300, 5)}
SEQUENCES = {(token,): bias for token, bias in BIASES.items()}
# Decoding options, or biases, and the arguments of `generate()`.
SEARCHES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "greedy": ({}, {}),
    "repetition penalty": ({"repetition_penalty": 1.4}, {"repetition_penalty": 1.4}),
    "n-grams and length": ({"no_repeat_ngram_size": 2, "min_length": 6}, {"no_repeat_ngram_size": 2, "min_new_tokens": 6}),
    "beams": (
        {"beam_size": 3, "num_hypotheses": 2, "length_penalty": 0.5},
        {"num_beams": 3, "num_return_sequences": 2, "length_penalty": 0.5},
    ),
    "penalized beams": ({"beam_size": 2, "repetition_penalty": 1.4}, {"num_beams": 2, "repetition_penalty": 1.4}),
    "biases": ({"logit_bias": BIASES}, {"sequence_bias": SEQUENCES}),
    "biased beams": (
        {"logit_bias": BIASES, "beam_size": 3, "min_length": 6, "no_repeat_ngram_size": 2},
        {"sequence_bias": SEQUENCES, "num_beams": 3, "min_new_tokens": 6, "no_repeat_ngram_size": 2},
    ),
}


NATIVE = pytest.mark.skipif(native_kernels() is None, reason="without native kernels, fp32 is equal but for the last bits")


FLOAT_CACHES = ("gpt2", "opt", "lfm2")  # here, heads of the first two have 8 channels
BYTE_CACHES = () if native_kernels() is None else tuple(WITH_INT8_CACHES.values())
MORE = ("gpt2", "llama", "llama odd", "qwen3", "smollm3", "gemma3 tied", "gptj", "neox", "opt", "phi3", "granite", "gemma2")
FAMILIES = ["gemma3", *(pytest.param(each, marks=pytest.mark.full) for each in (*MORE, "lfm2"))]
FILE = "decoder_model_merged.onnx"
Exported = tuple[Any, Bundle]


def precisions(family: str) -> tuple[str, ...]:
    if family == "gemma3":
        return ("int4", "fp32", *BYTE_CACHES)
    return ("int4", "int8", "fp32", "fp16", *(() if family in FLOAT_CACHES else BYTE_CACHES))


def merged(model: ModelProto) -> ModelProto:
    """Make both branches of a decoder that may have a past, as Optimum merges them."""
    graph = model.graph
    branch = helper.make_graph(graph.node, "branch", [], graph.output, graph.initializer)
    names = [one.name for one in graph.output]
    node = helper.make_node("If", ["use_cache_branch"], names, then_branch=branch, else_branch=branch)
    flag = helper.make_tensor_value_info("use_cache_branch", TensorProto.BOOL, [1])
    both = helper.make_graph([node], "merged", [*graph.input, flag], graph.output)
    return helper.make_model(both, opset_imports=model.opset_import, ir_version=model.ir_version)


def save_file(folder: Path) -> Any:
    """Save a GPT-2 of an unknown architecture as Optimum does, without weights; returns the model."""
    model = small_decoder("gpt2", folder)
    (folder / "model.safetensors").unlink()
    edit_json(folder / "config.json", model_type="gpt_new", head_dim=model.config.n_embd // model.config.n_head)
    file = merged(onnx.load(optimum("gpt2") / "model.onnx"))
    for one in file.graph.input:  # ONNX Runtime GenAI does not declare the size of heads
        if one.name.startswith("past_key_values"):
            one.type.tensor_type.shape.dim[3].dim_param = "kv_cache_dim"
    onnx.save(file, folder / FILE)
    return model


@pytest.fixture(scope="module")
def export_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Exported]:
    """Export a family, or a file that is kept, once: the model of transformers, and the bundle.

    The full tier has bundles in all precisions, among them one of Gemma 3.
    """

    @cache
    def make(family: str) -> Exported:
        folder: Path = tmp_path_factory.mktemp("decoder")
        layers = {"num_hidden_layers": 1} if family == "gemma3" else {}  # test_huggingface_decoders has two
        model = save_file(folder / "checkpoint") if family == "file" else small_decoder(family, folder / "checkpoint", **layers)
        (folder / "texts.txt").write_text("\n\n".join(SENTENCES[:40]))
        options = ExportOptions(folder, allow_inexact=True)
        if family != "file":
            options = replace(options, precisions=precisions(family), valid=[str(folder / "texts.txt")])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(generation, "MOST_PROMPTS", 34)
            patch.setattr(generation, "NEW_TOKENS", 8)
            return model, open_bundle(export(folder / "checkpoint", options, lambda line: None))

    return make


@pytest.fixture(scope="module", params=[*FAMILIES, "file"])
def models(request: pytest.FixtureRequest, export_of: Callable[[str], Exported]) -> Any:
    model, bundle = export_of(request.param)
    with closing(Generator("model", 1, bundle, DecodeModelOptions("fp32", EngineOptions(workers=1)))) as generator:
        yield model, generator, bundle


def test_a_file_is_served_as_it_is(export_of: Callable[[str], Exported]) -> None:
    manifest = export_of("file")[1].manifest
    assert (manifest.task, manifest.family) == ("text-generation", "gpt_new")
    assert manifest.provenance["original"].startswith(f"{FILE}: served as it is, since no weights can be read from it: ")
    assert manifest.parity["fp32"]["identical"]
    assert manifest.metrics["tokens_per_second_16_rows"] > 0


@pytest.mark.parametrize("family", FAMILIES)
def test_an_export_reports_on_every_precision(family: str, export_of: Callable[[str], Exported]) -> None:
    manifest = export_of(family)[1].manifest
    assert set(manifest.precisions) == set(precisions(family))
    assert manifest.default_precision == "int4"
    assert manifest.parity["fp32"]["identical"] or manifest.parity["fp32"]["ties"]
    assert manifest.parity["int4"]["decisions"] > 1_000
    if "fp16" in manifest.precisions:
        assert manifest.parity["fp16"]["near_agreement_percent"] > 97
        assert manifest.parity["fp16"]["decisions"] == manifest.parity["int4"]["decisions"]
        assert manifest.metrics["perplexity_fp16"] == pytest.approx(manifest.metrics["perplexity_fp32"], rel=0.01)
    if "int8-caches" in manifest.precisions:
        assert all(manifest.parity[cached]["decisions"] == manifest.parity["int4"]["decisions"] for cached in BYTE_CACHES)
        changed = manifest.metrics["perplexity_int4_int8_caches"]
        assert changed == pytest.approx(manifest.metrics["perplexity_int4"], rel=0.1)
        assert manifest.metrics["perplexity_int8_caches"] == pytest.approx(manifest.metrics["perplexity_fp32"], rel=0.1)
    assert manifest.metrics["perplexity_int4"] == pytest.approx(manifest.metrics["perplexity_fp32"], rel=1)


@pytest.mark.parametrize("search", SEARCHES)
@torch.inference_mode()
def test_searches_give_the_tokens_of_generate(models: Any, search: str) -> None:
    model, generator, _ = models
    given, arguments = dict(SEARCHES[search][0]), SEARCHES[search][1]
    biases = given.pop("logit_bias", {})
    options = DecodingOptions(sampling_topk=1, **given)
    request = GenerationRequest(prompts=PROMPTS, options=options, max_tokens=NEW, logit_bias=biases)
    prepared = finish(generator.admit_steps(None, request))
    generator.lanes.open_for(prepared.rows)
    run_rows(generator.engine, prepared.rows, "prompts")
    ends = generator.manifest.tokens.ends
    for row in prepared.rows:
        ids = torch.tensor([[*row.source, *row.prefix]])
        found = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW, do_sample=False, pad_token_id=ends[0], **arguments
        )
        wanted = [_until(tokens, ends) for tokens in found[:, ids.shape[1] :].tolist()]
        assert [list(one.tokens[row.prompt :]) for one in row.hypotheses] == wanted


@pytest.mark.parametrize(
    ("family", "precision"),
    [
        ("embedded", "int8"),
        pytest.param("gemma3", "fp32", marks=NATIVE),
        pytest.param("gemma3", "int8-caches", marks=NATIVE),
        *(pytest.param(family, "fp32", marks=[NATIVE, pytest.mark.full]) for family in MORE),
        *(pytest.param(family, "int8", marks=pytest.mark.full) for family in MORE),
        *(
            pytest.param(family, precision, marks=[NATIVE, pytest.mark.full])
            for family in MORE
            if family not in FLOAT_CACHES
            for precision in WITH_INT8_CACHES.values()
        ),
    ],
)
def test_scores_are_equal_in_any_company_and_chunks(
    family: str, precision: str, export_of: Callable[[str], Exported], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not only equal tokens: what a prompt's neighbours change in the last bits may turn any later token."""
    bundle = open_bundle(REPOSITORY / "gpt-en" / "1") if family == "embedded" else export_of(family)[1]
    searches: list[dict[str, Any]] = [{}, {"top_logprobs": 2}, {"top_logprobs": 0, "echo": True}]
    engine = EngineOptions(workers=1, slots=24)

    def generate(prompts: list[str], company: int, cache: int) -> list[Any]:
        options, found = DecodeModelOptions(precision, engine, prefix_cache_bytes=cache), list[Any]()
        with closing(Generator("model", 1, bundle, options)) as generator:
            for search in searches:
                for start in range(0, len(prompts), company):
                    some = prompts[start : start + company]
                    request = GenerationRequest(
                        prompts=some, options=DecodingOptions(sampling_topk=1), max_tokens=NEW, **search
                    )
                    found += [(one.text, one.choices[0].log_probabilities) for one in generator.generate(request)]
        return found

    prompts = [*PROMPTS, PROMPTS[5] + PROMPTS[6], PROMPTS[5] + PROMPTS[7], PROMPTS[5]]
    alone = generate(prompts, 1, 0)
    assert generate(prompts, len(prompts), 0) == alone
    assert generate(prompts, len(prompts), 1 << 26) == alone
    monkeypatch.setattr(prompt_cache, "SMALLEST_CHUNK", 5)
    monkeypatch.setattr(prompt_cache, "LARGEST_CHUNK", 5)
    assert generate(prompts, 7, 1 << 26) == alone


@pytest.mark.parametrize(
    "family", ["committed", *(pytest.param(each, marks=pytest.mark.full) for each in ("gemma3 tied", "gpt2", "llama"))]
)
def test_fp16_graphs_over_device_memory_are_near_fp32(
    family: str, export_of: Callable[[str], Exported], monkeypatch: pytest.MonkeyPatch
) -> None:
    """fp16 graphs run on the CPU through the caches of GPUs: chunks, whole prompts, the prefix cache, beams, samples, echo."""
    if family == "committed":
        folders = {"fp16": unpacked("half_decoder"), "fp32": TEXT_GENERATION_MODELS}
        bundles = {precision: open_bundle(folder / "llama" / "1") for precision, folder in folders.items()}
    else:
        bundles = dict.fromkeys(("fp16", "fp32"), export_of(family)[1])
    assert onnx.load(bundles["fp16"].path("step.fp16.onnx")).opset_import[0].version == HALF_OPSET
    monkeypatch.setattr(prompt_cache, "LARGEST_CHUNK", 40)
    prompts = [SENTENCES[place][: 1 + 3 * place % 60] for place in range(24)]
    prompts += [prompts[5] + prompts[6], prompts[5] + prompts[7]]
    searches: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"sampling_topk": 1}, {"top_logprobs": 2}),
        ({"sampling_topk": 1}, {"top_logprobs": 1, "echo": True}),
        ({"beam_size": 3, "return_scores": True}, {}),
        ({"sampling_topk": 0, "sampling_temperature": 0.2, "seed": 4}, {"top_logprobs": 0}),
    ]
    found: dict[str, list[list[Any]]] = {}
    for precision, bundle in bundles.items():
        options = DecodeModelOptions(precision, EngineOptions(workers=1, slots=8), prefix_cache_bytes=1 << 26)
        with closing(Generator("model", 1, bundle, options)) as generator:
            assert any(isinstance(place, SessionPlace) for place in generator.lanes._places) == (precision == "fp16")
            found[precision] = [
                generator.generate(GenerationRequest(prompts=prompts, options=DecodingOptions(**given), max_tokens=12, **more))
                for given, more in searches
            ]
            assert generator.prefixes.hits
    for half, whole in zip(*found.values(), strict=True):
        equal = [(one, other) for one, other in zip(half, whole, strict=True) if one.text == other.text]
        assert len(equal) >= 0.85 * len(prompts)
        pairs = [
            (one.log_probability, other.log_probability)
            for half_one, whole_one in equal
            for one, other in zip(half_one.choices[0].log_probabilities, whole_one.choices[0].log_probabilities, strict=True)
            if one.log_probability is not None
        ] + [(one.choices[0].score, other.choices[0].score) for one, other in equal if one.choices[0].score is not None]
        differences = np.abs([one - other for one, other in pairs])
        assert differences.mean() < 0.02  # chunks depend on the time, and with them the last bits
        assert differences.max() < 0.5


@torch.inference_mode()
def test_scores_of_texts_are_those_of_pytorch(models: Any) -> None:
    model, generator, bundle = models
    check_scores(model, bundle, [generator.tokenizer.encode(text).ids for text in SENTENCES[:6]])


def _until(tokens: list[int], ends: Any) -> list[int]:
    return tokens[: next((place for place, token in enumerate(tokens) if token in ends), len(tokens))]
