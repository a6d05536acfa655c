"""Imported encoder-decoder models against transformers: the same logits, and served answers equal to those of `generate()`.

Small models of every family with large random weights; all texts of a comparison are one call, of many lengths.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from triptych.decoding import DecodingOptions, SplitSentences
from triptych_export.bundle_files import write_graph
from triptych_export.exporter import ExportOptions, export
from triptych_export.families import translation
from triptych_export.families.translation import TranslationFamily, write_translation
from triptych_export.graphs.attention import write_attention_graph
from triptych_export.graphs.tracing import trace_translation
from triptych_export.graphs.translation import GraphSettings
from triptych_export.graphs.weight_folding import fuse_norms
from triptych_export.huggingface.architectures.kept import keep_files
from triptych_export.huggingface.architectures.registry import load
from triptych_export.huggingface.folder import open_folder
from triptych_export.onnx_files.weights import weight_graphs
from triptych_export.original import compare_with_original
from triptych_export.quantization.weights_file import WeightsFile
from triptych_export.translation_source import TranslationSource
from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.decoding.engine import EngineOptions
from triptych_serving.models.decode_model import DecodeModelOptions
from triptych_serving.models.translation.translator import Translator
from triptych_serving.runtime.session import Session
from triptych_training.data.batches import pad
from triptych_training.decoding.greedy import greedy

from ..fixtures.huggingface import VARIANTS, small_model
from ..fixtures.json_files import edit_json
from ..fixtures.optimum import optimum
from ..fixtures.quick_trials import quick_trials  # noqa: F401
from ..fixtures.sentences import SENTENCES

WORDS = 25  # of a sentence, which is then short enough for all models
TEXTS = [" ".join(sentence.split()[:WORDS]) for sentence in SENTENCES]
QUICK, FEW, MANY = 6, 30, 110  # number of texts; of the last, at least 100 are equal
CLOSE = 5e-5  # sums of log-probabilities, some tens
SPECIAL = ("pad_token_id", "eos_token_id", "bos_token_id", "decoder_start_token_id")
Tokens = list[int]


@dataclass(frozen=True)
class Case:
    """A model, and languages where it has several."""

    family: str
    variant: str
    source: str = ""
    target: str = ""
    before: str = ""  # put before the text, for transformers
    generation: dict[str, Any] = field(default_factory=dict)  # other defaults of the checkpoint
    kept: bool = False  # from the ONNX files of Optimum's layout, which are served as they are
    unknown: str = ""  # a type that no family of the export has, in place of the checkpoint's

    @property
    def name(self) -> str:
        """Name in `PAIRS`."""
        return f"{self.family} {self.variant}"

    def __str__(self) -> str:
        return " ".join(filter(None, (self.name, self.source, self.target)))


PAIRS = {
    "marian languages": [("", "fra", ">>fra<< "), ("", "ces", ">>ces<< ")],
    "mbart50 tied": [("en_XX", "ro_RO", ""), ("de_DE", "en_XX", "")],
    "mbart50 untied": [("fr_XX", "de_DE", "")],
    "mbart25 tied": [("en_XX", "ro_RO", "")],
    "m2m100 tied": [("en", "de", "")],
    "m2m100 odd": [("en", "ha", "")],
    "m2m100 untied": [("ha", "en", "")],
    "nllb tied": [("eng_Latn", "deu_Latn", ""), ("deu_Latn", "zho_Hans", "")],
    "nllb legacy": [("fra_Latn", "eng_Latn", "")],
    "t5 languages": [("zh", "de", "<2de> "), ("de", "sr_Latn", "<2sr_Latn> ")],
    "t5 translator": [("en", "de", "translate English to German: "), ("en", "fr", "translate English to French: ")],
}
# Where config.json has settings for a task, which `generate` itself does not read, they are in the generation_config.json too.
GENERATION = {"t5 translator": {"num_beams": 4, "max_length": 32, "early_stopping": True}}


def cases() -> Iterator[Case]:
    """All variants, and some pairs of each."""
    for family, variants in VARIANTS.items():
        for variant in variants:
            for pair in PAIRS.get(f"{family} {variant}", [("", "", "")]):
                yield Case(family, variant, *pair, generation=GENERATION.get(f"{family} {variant}", {}))


class Loaded:
    """One checkpoint, loaded by transformers and by this package."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.case = case
        path = small_model(case.family, case.variant, folder / "checkpoint")
        self.model = transformers.AutoModelForSeq2SeqLM.from_pretrained(path).eval()
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(path)
        if case.generation:
            special = {name: getattr(self.model.generation_config, name) for name in SPECIAL}
            self.model.generation_config = transformers.GenerationConfig(**special, **case.generation)
            self.model.generation_config.save_pretrained(path)
        if case.unknown:
            edit_json(path / "config.json", model_type=case.unknown)
        self.folder = open_folder(str(path))
        loaded = keep_files(self.folder, weight_graphs(optimum(case.family))) if case.kept else load(self.folder)
        assert isinstance(loaded, TranslationSource)
        self.source = loaded

    @torch.inference_mode()
    def generate(self, texts: Sequence[str], **options: Any) -> list[Tokens]:
        """Translate with transformers; omit the decoder's start token, the end token and everything after it."""
        if self.case.source:
            self.tokenizer.src_lang = self.case.source
        inputs = self.tokenizer([self.case.before + text for text in texts], padding=True, return_tensors="pt")
        inputs.pop("token_type_ids", None)
        source = self.source
        if len(source.targets) > 1 and (forced := source.targets[self.case.target].forced):
            options["forced_bos_token_id"] = forced[0]
        rows = self.model.generate(**inputs, do_sample=False, **options).tolist()
        return [_until(row[1:], source.model.config.eos_id) for row in rows]


class Comparison(Loaded):
    """One checkpoint, and its bundle."""

    def __init__(self, case: Case, folder: Path) -> None:
        super().__init__(case, folder)
        if case.unknown:
            bundle = self.export(folder / "models")
        else:
            write_translation(self.source, bundle := folder / "bundle", lambda line: None, precisions=("fp32",))
        options = DecodeModelOptions("fp32", EngineOptions(workers=1, slots=16))
        self.translator = Translator("imported", 1, open_bundle(bundle), options)

    def export(self, models: Path) -> Path:
        """Export the files of Optimum alone, and compare few texts: the tests compare more."""
        (self.folder.path / "model.safetensors").unlink()
        shutil.copytree(optimum(self.case.family), self.folder.path, dirs_exist_ok=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(translation, "RANDOM_SENTENCES", translation.FEWEST_SENTENCES)
            patch.setattr(translation, "RANDOM_LENGTH", 10)
            options = ExportOptions(models, source_language="en", target_language="en")
            return export(self.folder.path, options, lambda line: None)

    def serve(self, texts: Sequence[str], **options: Any) -> list[Tokens]:
        """Translate with the exported bundle."""
        decoding = replace(DecodingOptions(split_sentences=SplitSentences.OFF), **options)
        prepared = self.translator.prepare(texts, decoding, self.case.source, self.case.target)
        self.translator.run(prepared.rows)
        return [row.tokens for text in prepared.texts for row in text.rows]


def _until(row: Tokens, end: int) -> Tokens:
    return row[: row.index(end)] if end in row else row


class CloseCalls:
    """Watches beam searches of transformers while it is entered.

    They add log-probabilities in float32, whose last digits decide between hypotheses that are equally good; the engine adds
    in float64 and may keep the other one.
    """

    def __init__(self) -> None:
        self.sentences: set[int] = set()  # of which two of the best candidates were as good as equal
        self._choose = transformers.GenerationMixin._get_top_k_continuations

    def __enter__(self) -> "CloseCalls":
        def watch(model: Any, accumulated_log_probs: torch.Tensor, beams_to_keep: int, **others: Any) -> Any:
            best = accumulated_log_probs.topk(beams_to_keep + 1).values
            close = (best[:, :-1] - best[:, 1:] < CLOSE).any(1)
            self.sentences |= set(close.nonzero()[:, 0].tolist())
            return self._choose(model, accumulated_log_probs=accumulated_log_probs, beams_to_keep=beams_to_keep, **others)

        transformers.GenerationMixin._get_top_k_continuations = watch
        return self

    def __exit__(self, *_: object) -> None:
        transformers.GenerationMixin._get_top_k_continuations = self._choose


def compare(case: Case, folder: Path, texts: Sequence[str]) -> None:
    """Compare the answers of a checkpoint."""
    comparison = Comparison(case, folder)
    with closing(comparison.translator):
        compare_answers(comparison, texts)
    compare_attention(comparison.model, folder / "bundle/attend.fp32.onnx")


def compare_answers(comparison: Comparison, texts: Sequence[str]) -> None:
    """Greedy search and beams, as the checkpoint's own settings say but for the number of beams; then these themselves."""
    with CloseCalls() as none:
        plain = comparison.generate(texts, num_beams=1)
    assert len(set(map(tuple, plain))) >= len(texts) / 2
    assert_same(plain, comparison.serve(texts, beam_size=1), none.sentences)
    with CloseCalls() as calls:
        expected = comparison.generate(texts, num_beams=4)
    assert_same(expected, comparison.serve(texts, beam_size=4), calls.sentences)
    with CloseCalls() as calls:
        expected = comparison.generate(texts[:FEW])
    assert_same(expected, comparison.serve(texts[:FEW]), calls.sentences)


@torch.no_grad()
def compare_attention(model: Any, graph: Path) -> None:
    """Compare the weights of every layer and head for random tokens."""
    source, target, end = torch.randint(9, 200, (1, 13)), torch.randint(9, 200, (1, 9)), torch.zeros(1, 1, dtype=torch.int64)
    model.set_attn_implementation("eager")  # the only one that returns weights
    expected = model(input_ids=source, decoder_input_ids=target, output_attentions=True)
    inputs, kinds = {"source": source.numpy(), "targets": torch.cat((target, end), 1).numpy()}, ("encoder", "decoder", "cross")
    for kind, found in zip(kinds, Session(graph).run(inputs, kinds), strict=True):
        wanted = torch.stack(expected[f"{kind}_attentions"], 1).numpy()
        np.testing.assert_allclose(found, wanted, atol=1e-4, err_msg=kind)
        assert wanted.std() > 0.02  # not uniform


def assert_same(expected: Sequence[Tokens], found: Sequence[Tokens], close: Set[int]) -> None:
    """Ten of eleven are equal, and where one differs it was a close call; shows the first difference that was none."""
    different = {index for index, (a, b) in enumerate(zip(expected, found, strict=True)) if a != b}
    if wrong := sorted(different - close):
        first = wrong[0]
        pytest.fail(f"{len(wrong)} of {len(expected)} differ, number {first}: {expected[first]}, served {found[first]}")
    assert len(different) <= len(expected) // 11


@torch.inference_mode()
def test_a_graph_with_relative_positions_scores_as_transformers_does(tmp_path: Path) -> None:
    """The full tier has the searches of all variants."""
    loaded = Loaded(Case("t5", "short"), tmp_path)
    path, model = tmp_path / "score.onnx", fuse_norms(loaded.source.model)
    graph = trace_translation("score", model, GraphSettings(loaded.source.max_source, loaded.source.max_target))
    write_graph(graph, path, WeightsFile(tmp_path / "weights.bin"), "fp32")
    lengths, rows = np.array([13, 4, 9], np.int32), torch.randint(9, 200, (3, 13))
    mask, targets = torch.arange(13) < torch.from_numpy(lengths)[:, None], torch.randint(9, 200, (3, 10))
    targets[:, 0] = loaded.source.model.config.bos_id
    given = {"source": rows.numpy(), "lengths": lengths, "targets": targets.numpy()}
    [found] = Session(path).run(given)
    logits = loaded.model(input_ids=rows, attention_mask=mask, decoder_input_ids=targets[:, :-1]).logits
    wanted = logits.log_softmax(-1).gather(2, targets[:, 1:, None])[..., 0]
    np.testing.assert_allclose(found, wanted, atol=1e-4)
    write_attention_graph(path, tmp_path / "attend.onnx")
    compare_attention(loaded.model, tmp_path / "attend.onnx")


KEPT = [
    pytest.param(Case("pegasus", "tied", kept=True, unknown="pegasus_new"), id="pegasus"),
    pytest.param(Case("t5", "gated", kept=True), id="t5", marks=pytest.mark.full),
]


@pytest.fixture(scope="module", params=KEPT)
def kept(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Comparison]:
    """Files that are kept: Pegasus's decoder is merged with the one with a past, T5's is not."""
    comparison = Comparison(request.param, tmp_path_factory.mktemp("kept"))
    with closing(comparison.translator):
        yield comparison


def test_an_export_of_files_that_are_kept_says_so(kept: Comparison) -> None:
    if not kept.case.unknown:
        pytest.skip("the export would read the weights from these files")
    manifest = kept.translator.manifest
    assert (manifest.task, manifest.family) == ("translation", "pegasus_new")
    names = "decoder_model_merged.onnx and encoder_model.onnx"
    assert manifest.provenance["original"].startswith(f"{names}: served as it is, since no weights can be read from it: ")
    assert manifest.parity["fp32"]["identical"]
    assert manifest.metrics["tokens_per_second_16_rows"] > 0


def test_files_that_are_kept_answer_as_transformers_does(kept: Comparison) -> None:
    compare_answers(kept, TEXTS[:QUICK])


def test_sources_of_files_that_are_kept_end_only_where_the_tokenizer_ends_them(kept: Comparison, tmp_path: Path) -> None:
    shutil.copytree(kept.folder.path, tmp_path / "bare")
    edit_json(tmp_path / "bare/tokenizer.json", post_processor=None)
    edit_json(tmp_path / "bare/tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast")
    source = keep_files(open_folder(str(tmp_path / "bare")), weight_graphs(optimum(kept.case.family)))
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "bare")
    assert isinstance(source, TranslationSource)
    assert source.target_tokenizer is not None
    assert [source.tokenizer.encode(text).ids for text in TEXTS[:QUICK]] == theirs(TEXTS[:QUICK])["input_ids"]
    assert source.target_tokenizer.encode(TEXTS[0]).ids[-1] == source.model.config.eos_id


@torch.inference_mode()
def test_files_that_are_kept_sample_and_align(kept: Comparison) -> None:
    """A sample of one candidate is the greedy answer; the alignment is the last layer's mean attention."""
    greedy_tokens = kept.serve(TEXTS[:QUICK], beam_size=1)
    assert kept.serve(TEXTS[:QUICK], beam_size=1, sampling_topk=1, sampling_temperature=0.7) == greedy_tokens
    decoding = DecodingOptions(split_sentences=SplitSentences.OFF, beam_size=1, return_alignment=True)
    prepared = kept.translator.prepare(TEXTS[:QUICK], decoding, "", "")
    kept.translator.run(prepared.rows)
    kept.model.set_attn_implementation("eager")
    for row in prepared.rows:
        start = kept.source.model.config.bos_id
        given = {"input_ids": torch.tensor([row.source]), "decoder_input_ids": torch.tensor([[start, *row.tokens]])}
        wanted = kept.model(**given, output_attentions=True).cross_attentions[-1][0].mean(0)
        found = torch.from_numpy(row.hypotheses[0].attention)
        torch.testing.assert_close(found, wanted[: len(found)], rtol=1e-3, atol=1e-4)


@pytest.mark.full
@pytest.mark.parametrize("case", list(cases()), ids=str)
def test_every_variant_answers_as_transformers_does(case: Case, tmp_path: Path) -> None:
    compare(case, tmp_path, TEXTS[:MANY])


SETTINGS: list[dict[str, Any]] = [
    {"no_repeat_ngram_size": 3, "length_penalty": 0.6, "early_stopping": True},
    {"no_repeat_ngram_size": 1, "early_stopping": False},
    {"repetition_penalty": 1.4, "length_penalty": 2.0, "early_stopping": False},
    {"repetition_penalty": 0.8, "early_stopping": True},
    {"min_length": 12, "early_stopping": "never", "length_penalty": 0.6},
    {"min_length": 20, "early_stopping": "never", "length_penalty": 2.0, "max_length": 24},
    {"bad_words_ids": [[9], [12], [15, 20], [30, 31, 32], [11, 11]], "early_stopping": "never", "length_penalty": -0.5},
    {"bad_words_ids": [[9], [12], [15, 20]], "renormalize_logits": True, "repetition_penalty": 1.2},
    {"forced_eos_token_id": 2, "max_length": 9, "length_penalty": 2.0, "early_stopping": False},
    {"forced_eos_token_id": 2, "max_length": 9, "length_penalty": 0.0, "early_stopping": True},
    {"forced_bos_token_id": 5, "max_length": 9, "no_repeat_ngram_size": 2},
    {"suppress_tokens": [9, 10, 11, 12, 13], "max_length": 5},
]


@pytest.mark.full
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("family", ["bart", "t5"])
def test_settings_of_a_checkpoint_mean_the_same(family: str, settings: dict[str, Any], tmp_path: Path) -> None:
    """Nothing else is in its generation_config.json but the special tokens."""
    settings = {"max_length": 40, "num_beams": 4, **settings}
    if "forced_eos_token_id" in settings and family == "t5":
        settings["forced_eos_token_id"] = 1
    compare(Case(family, "tied", generation=settings), tmp_path, TEXTS[:60])


@pytest.mark.full
def test_a_model_without_sentences_is_compared_on_tokens_drawn_by_lot(tmp_path: Path) -> None:
    """The comparison covers every language, and every precision runs."""
    source = load(open_folder(str(small_model("m2m100", "tied", tmp_path / "checkpoint"))))
    assert isinstance(source, TranslationSource)
    family = TranslationFamily(source, shipped=("fp32", "int8", "fp16"))
    family.write(tmp_path / "bundle", lambda line: None)
    parity, metrics = family.measure(tmp_path / "bundle", lambda line: None)
    assert parity["fp32"]["sentences"] == 200
    assert parity["fp32"]["distinct_outputs"] >= 100
    assert {"int8", "fp16"} < parity.keys()
    assert parity["fp16"]["forced_token_agreement_percent"] > 98
    assert metrics == {}
    assert family.source.model.projection.weight.is_meta  # the bundle took its place
    assert (family.default_name, family.describe().sentence) == ("m2m100", "Translates 8 languages to 8 languages.")


NEUTRAL: dict[str, Any] = {"num_beams": 1, "min_length": 0, "no_repeat_ngram_size": 0, "repetition_penalty": 1.0}
LENGTH = 30  # as transformers count: the decoder's start and the end included
FIRST_OF_FAMILY = [next(case for case in cases() if case.family == family) for family in VARIANTS]


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=[] if case in FIRST_OF_FAMILY else [pytest.mark.full]) for case in cases()],
    ids=str,
)
@torch.inference_mode()
def test_source_ids_logits_and_greedy_tokens_are_equal(case: Case, tmp_path: Path) -> None:
    loaded, texts = Loaded(case, tmp_path), TEXTS[:QUICK]
    source, config = loaded.source, loaded.source.model.config
    near = source.sources[case.source or next(iter(source.sources))]
    far = source.targets[case.target or next(iter(source.targets))]
    encoded = source.tokenizer.encode_batch([far.text + text for text in texts])
    sources = [[*far.before, *near.before, *encoding.ids, *near.after] for encoding in encoded]
    if case.source:
        loaded.tokenizer.src_lang = case.source
    assert sources == loaded.tokenizer([case.before + text for text in texts]).input_ids

    torch.manual_seed(3)
    ids = pad(sources, config.pad_id)
    target = torch.randint(0, config.vocabulary_size, (len(sources), 17))
    target[target == config.pad_id] = config.eos_id  # M2M100 gives padding no position, and never has it here
    target[:, 0] = config.bos_id
    mask = (ids != config.pad_id).long()
    expected = loaded.model(input_ids=ids, attention_mask=mask, decoder_input_ids=target).logits
    torch.testing.assert_close(source.model(ids, target), expected, rtol=1e-4, atol=1e-4)
    assert compare_with_original(loaded.folder, source).startswith("8 outputs as in transformers")

    generation = source.generation
    suppressed = [ids[0] for ids in generation.get("suppressed_tokens", ()) if len(ids) == 1]
    longest = LENGTH - 1 - generation.get("forced_end", False)
    answers = greedy(source.model, sources, longest, [far.forced] * len(sources), suppressed)
    assert answers == loaded.generate(texts, max_length=LENGTH, **NEUTRAL)
    assert len({tuple(answer) for answer in answers}) >= len(texts) // 2


Stored = dict[str, torch.Tensor]


def copies(stored: Stored) -> Stored:
    """Store a tied matrix under each of its names, and old versions' fixed positions, as pickles do."""
    shared = stored["model.shared.weight"]
    names = ("lm_head.weight", "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")
    return {**stored, **{name: shared.clone() for name in names}, "model.encoder.version": torch.ones(1)}


def decoder_only(stored: Stored) -> Stored:
    """Store the shared matrix under another of its names alone."""
    names = {"model.shared.weight": "model.decoder.embed_tokens.weight"}
    return {names.get(name, name): tensor for name, tensor in stored.items()}


def different(stored: Stored) -> Stored:
    """Store two different matrices although config.json ties them: then there are two."""
    return {**stored, "lm_head.weight": stored["model.shared.weight"].flip(0)}


def half(stored: Stored) -> Stored:
    return {name: tensor.half() for name, tensor in stored.items()}


def bare(stored: Stored) -> Stored:
    """Store the weights as the model without a head does: no prefix, no bias."""
    return {name.removeprefix("model."): tensor for name, tensor in stored.items() if name.startswith("model.")}


@pytest.mark.parametrize("change", [copies, decoder_only, different, half, bare])
@torch.inference_mode()
def test_however_embeddings_are_stored(change: Callable[[Stored], Stored], tmp_path: Path) -> None:
    folder = small_model("bart", "tied", tmp_path / "model")
    original = load_file(folder / "model.safetensors")
    save_file(change(original), folder / "model.safetensors", {"format": "pt"})
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32).eval()
    ours = load(open_folder(str(folder)))
    assert isinstance(ours, TranslationSource)
    source, target = torch.tensor([[0, 9, 8, 7, 2], [0, 5, 2, 1, 1]]), torch.tensor([[2, 0, 5, 6], [2, 0, 9, 9]])
    expected = theirs(input_ids=source, attention_mask=(source != 1).long(), decoder_input_ids=target).logits
    torch.testing.assert_close(ours.model(source, target), expected, rtol=1e-4, atol=1e-4)
