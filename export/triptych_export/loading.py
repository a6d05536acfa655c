"""Loading of checkpoints, from triptych_training or Hugging Face, as exportable families."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, TypeVar

from triptych_export.errors import ExportError, SourceError
from triptych_export.families.autoencoder import AutoencoderFamily
from triptych_export.families.family import Family
from triptych_export.families.generation import GenerationFamily
from triptych_export.families.image import ImageFamily
from triptych_export.families.onnx_encoders import OnnxImageClassifier, OnnxTextEncoder, task_of
from triptych_export.families.tensors import TensorsFamily
from triptych_export.families.text import STATIC_PRECISIONS, TextFamily, read_samples
from triptych_export.families.translation import TranslationFamily
from triptych_export.generation_source import GenerationSource
from triptych_export.graphs.generation import takes_int8_caches
from triptych_export.huggingface.adapters import merge_adapter
from triptych_export.huggingface.architectures import registry
from triptych_export.huggingface.architectures.ctranslate2 import CTranslate2Folder, is_ctranslate2, load_ctranslate2
from triptych_export.huggingface.architectures.kept import keep_files
from triptych_export.huggingface.architectures.zero_shot import CLIP_MODEL, read_prompts
from triptych_export.huggingface.checkpoint.config import check_members
from triptych_export.huggingface.checkpoint.generation import FILE as GENERATION_CONFIG
from triptych_export.huggingface.checkpoint.generation import read_decoder_generation
from triptych_export.huggingface.folder import ADAPTER, CONFIG, GGUF, Folder, neutral, open_folder
from triptych_export.huggingface.gguf import open_gguf
from triptych_export.huggingface.static_embeddings import is_word_file, load_static_folder, load_word_file, static_kind
from triptych_export.onnx_files.decoder import OnnxDecoder
from triptych_export.onnx_files.layout import FOLDERS, find_graphs, has_graphs
from triptych_export.onnx_files.layout import SUFFIX as ONNX_SUFFIX
from triptych_export.onnx_files.weights import weight_graphs
from triptych_export.options import ExportOptions
from triptych_export.original import compare_with_original
from triptych_export.translation_prompt import ask_to_translate
from triptych_export.translation_source import TranslationSource
from triptych_serving.bundle.manifest import (
    FP16,
    IMAGE_CLASSIFICATION,
    INT4,
    INT4_INT8_CACHES,
    INT8_CACHES,
    INT8_WEIGHTS,
    WITH_INT8_CACHES,
)
from triptych_training.checkpoints.encoder import (
    BERT,
    ELMO,
    IMAGE_KINDS,
    WORD2VEC,
    ImageCheckpoint,
    TextCheckpoint,
    load_bert_checkpoint,
    load_elmo,
    load_image_checkpoint,
    load_word_vectors,
)
from triptych_training.checkpoints.gpt import GPT, load_gpt_checkpoint
from triptych_training.checkpoints.translation import CONFIGS, RNN, load_checkpoint
from triptych_training.checkpoints.vae import VAE, load_vae_checkpoint
from triptych_training.data.corpus import read_pairs
from triptych_training.data.documents import read_texts
from triptych_training.models.elmo import Elmo
from triptych_training.models.image_gpt import ImageGpt
from triptych_training.models.word2vec import StaticEmbedding

Source = TypeVar("Source", GenerationSource, TranslationSource)

GENERATIVE = ("ForCausalLM", "LMHeadModel")  # suffixes of class names


def _with_settings(source: Source, folder: Path) -> Source:
    """Add the decoding options of a generation_config.json beside a checkpoint of ours, if there is one."""
    place = Folder(folder)
    if not place.has(GENERATION_CONFIG):
        return source
    settings = read_decoder_generation(place, source.model.config.max_positions)
    check_members(place, neutral(" ".join(place.config.whole)), ours=True)
    samples = isinstance(source, TranslationSource) and "sampling_topk" in settings.members
    if unsupported := "do_sample" if samples else settings.unsupported:
        raise SourceError(f"{folder / GENERATION_CONFIG}: {unsupported}: not supported as a default; leave it out")
    return replace(source, generation=settings.members)


LOADERS: Mapping[str, Callable[[Path], registry.Loaded]] = {
    **dict.fromkeys(CONFIGS, lambda folder: _with_settings(TranslationSource.of(load_checkpoint(folder)), folder)),
    BERT: load_bert_checkpoint,
    **dict.fromkeys(IMAGE_KINDS, load_image_checkpoint),
    GPT: lambda folder: _with_settings(GenerationSource.of(load_gpt_checkpoint(folder)), folder),
    WORD2VEC: load_word_vectors,
    ELMO: load_elmo,
}
OURS = (*LOADERS, VAE)
OF_CHECKPOINTS = ("shortlist", "lower_capitals", "source_language", "target_language", "ignore_config")  # of Transformers
GENAI_CONFIG = "genai_config.json"  # of ONNX Runtime GenAI, whose builder writes no config.json
ENCODERS = "text encoders and image classifiers"
CACHED_DECODERS = (
    "decoder-only models without convolutions or slopes whose heads have a multiple of 16 channels, where native kernels "
    "are installed"
)
MODELS = {  # with a precision that others lack
    INT8_WEIGHTS: ENCODERS,
    FP16: f"translation models, decoder-only models, {ENCODERS} but ImageGPT",
    INT8_CACHES: f"translation models and {CACHED_DECODERS}",
    INT4: "decoder-only models",
    INT4_INT8_CACHES: CACHED_DECODERS,
}


class Opened(NamedTuple):
    """A loaded checkpoint: its family, the files with its weights, and where it comes from, for the manifest."""

    family: Family
    weights: Sequence[Path]
    origin: Mapping[str, str]


def open_checkpoint(name: str, options: ExportOptions, scratch: Path) -> Opened:
    """Load a checkpoint from a path or from the Hugging Face hub; files that the export needs until its end go to `scratch`.

    Raises:
        SourceError: there is no checkpoint, its architecture is unknown, it has no samples, or options do not apply to it.
        TrainingError: a checkpoint of triptych_training, or a file of samples, cannot be read.
        ParityError: our model does not compute what that of transformers computes.
    """
    if _is_kept(Path(name)):
        _refuse_labels(Path(name), options)
        return _open_graphs(Path(name), options)
    if name.endswith((ONNX_SUFFIX, GGUF)) and not Path(name).exists():
        raise SourceError(f"{name}: there is no such file")
    if options.config_from:
        raise SourceError(f"config_from: only for ONNX files; {name} is none")
    if is_word_file(Path(name)):
        _refuse_labels(Path(name), options)
        return Opened(_static(load_word_file(Path(name)), name, options), (Path(name),), {})
    folder = open_gguf(Path(name)) if name.endswith(GGUF) else open_folder(name, options.revision)
    if folder.has(ADAPTER) and not (whole := weight_files(folder.path)):
        merged = merge_adapter(folder, options.base_model, scratch / "merged")
        try:
            opened = _open_folder(merged, options)
        except ExportError as error:  # the merged folder is removed at the end
            raise type(error)(str(error).replace(str(merged.path), f"{merged.adapter} with {merged.base}")) from error
        return opened._replace(weights=(*merged.weights, *weight_files(merged.base)))
    if folder.has(ADAPTER) and (own := sorted(folder.path.glob("adapter_model.*"))):
        fault = f"has weights of a PEFT adapter, {own[0].name}, and of a whole model, {whole[0].name}"
        raise SourceError(f"{folder.path}: {fault}; move those that are not wanted into another folder")
    if options.base_model:
        raise SourceError(f"base_model: only for PEFT adapters; {name} is none")
    return _open_folder(folder, options)


def _open_folder(folder: Folder, options: ExportOptions) -> Opened:
    """Open a folder, or a GGUF file, that has all weights."""
    if not (folder.has(CONFIG) and folder.architecture == CLIP_MODEL):
        _refuse_labels(folder.path, options)
    if opened := _open_other_formats(folder, options):
        return opened
    if options.ignore_config:
        folder = _noted(replace(folder, ignored=options.ignore_config), "ignored_config", ", ".join(options.ignore_config))
    architecture = str(folder.config.get("architecture", ""))
    if architecture in OURS:
        return Opened(_open_ours(folder, architecture, options), weight_files(folder.path), folder.origin)
    return _open_theirs(folder, architecture, options)


def _open_other_formats(folder: Folder, options: ExportOptions) -> Opened | None:
    """Open ONNX files, tables of vectors and models of CTranslate2; None if the folder is none of them."""
    if is_ctranslate2(folder.path) and not weight_files(folder.path):
        model = CTranslate2Folder(folder.path, folder.origin, options.ignore_config)
        loaded = load_ctranslate2(model, options.source_language, options.target_language)
        return Opened(_family(loaded, model, options), (model.file.path,), model.origin)
    if _is_kept(folder.path):
        return _open_graphs(folder.path, options, folder.origin)
    if static_kind(folder):
        checkpoint, weights = load_static_folder(folder)
        return Opened(_static(checkpoint, str(folder.path), options), (weights,), folder.origin)
    return None


def _is_kept(path: Path) -> bool:
    """Tell whether ONNX files are served as they are: all but generative models, of which only the weights are read."""
    if not has_graphs(path) or weight_files(path):
        return False
    folder = Folder(path)
    return path.is_file() or not folder.has(CONFIG) or not folder.architecture.endswith(GENERATIVE)


def _open_theirs(folder: Folder, architecture: str, options: ExportOptions) -> Opened:
    """Open a checkpoint of Hugging Face's libraries."""
    if architecture and not folder.model_type:
        raise SourceError(
            f"{folder.path}: architecture {architecture!r} is unknown; supported: {', '.join(OURS)}, "
            "types of Hugging Face, and those of timm with a pretrained_cfg"
        )
    prompts = read_prompts(options.labels, options.templates) if folder.architecture == CLIP_MODEL else None
    graphs = () if weight_files(folder.path) else weight_graphs(folder.path)
    try:
        loaded = registry.load(folder, options.source_language, options.target_language, prompts)
    except SourceError as error:
        if not graphs:
            raise
        try:
            loaded = keep_files(folder, graphs, options.source_language, options.target_language)
        except SourceError as other:
            raise SourceError(f"{error}; nor can the file be served as it is: {other}") from other
        if options.shortlist:
            raise SourceError(f"shortlist: not for ONNX files that are served as they are, {folder.path}") from error
        kept = loaded.model
        if isinstance(kept, OnnxDecoder) and (wrong := set(options.precisions or ()) - {kept.precision}):
            raise SourceError(f"precision {min(wrong)}: {folder.path} has {kept.precision}, and is served as it is") from error
        names = " and ".join(path.name for path in graphs)
        folder = _noted(folder, "original", f"{names}: served as it is, since no weights can be read from it: {error}")
    else:
        folder = _noted(folder, "original", compare_with_original(folder, loaded, options.allow_different))
    if prompts is not None:
        folder = _noted(folder, "zero_shot", prompts.describe())
    return Opened(_family(loaded, folder, options), weight_files(folder.path) or graphs, folder.origin)


def _family(loaded: registry.Loaded, folder: Folder, options: ExportOptions, ours: bool = False) -> Family:
    """Make the family of a loaded checkpoint; one of `ours` needs samples, its own or given ones."""
    if options.translation_languages and not isinstance(loaded, GenerationSource):
        raise SourceError(f"translation_languages: only for decoder-only models; {folder.path} is a {_kind(folder)}")
    if isinstance(loaded, TranslationSource):
        _refuse_precisions((INT8_WEIGHTS, INT4, INT4_INT8_CACHES), folder, options)
        pairs = read_pairs(options.valid) or loaded.samples
        if ours:
            _require_samples(folder, "sentences", "pairs", bool(pairs))
        loaded = replace(loaded, lowers_capitals=options.lower_capitals)
        shipped = _with_int8_caches(options)
        return TranslationFamily(loaded, pairs, read_pairs(options.shortlist), shipped, options.allow_untrained)
    _refuse_of_translation(folder, options)
    if isinstance(loaded, GenerationSource):
        if options.translation_languages:
            loaded = ask_to_translate(loaded, options.translation_languages, options.translation_prompt)
        able = takes_int8_caches(loaded.model)
        _refuse_precisions((INT8_WEIGHTS,) if able else (INT8_WEIGHTS, *WITH_INT8_CACHES.values()), folder, options)
        shipped = _with_int8_caches(options) if able else options.shipped
        return GenerationFamily(loaded, list(read_texts(options.valid)), shipped)
    image_gpt = isinstance(loaded, ImageCheckpoint) and isinstance(loaded.model, ImageGpt)
    _refuse_precisions((INT4, *WITH_INT8_CACHES.values(), *([FP16] if image_gpt else [])), folder, options)
    if isinstance(loaded, TextCheckpoint):
        samples = read_samples(options.valid) or loaded.samples
        if ours:
            _require_samples(folder, "texts", "texts", bool(samples))
        return TextFamily(loaded, samples, options.shipped)
    if ours:
        _require_samples(folder, "images", "images", bool(options.valid or loaded.samples))
    return ImageFamily(loaded, options.valid, options.shipped)


def _with_int8_caches(options: ExportOptions) -> Sequence[str]:
    """Return the precisions to ship, int8-caches among the usual ones."""
    first, *others = options.shipped
    return (first, INT8_CACHES, *others) if options.precisions is None else options.shipped


def _static(checkpoint: TextCheckpoint, name: str, options: ExportOptions) -> Family:
    """Open a table of vectors or an ELMo."""
    if given := [name for name in (*OF_CHECKPOINTS, "allow_different") if getattr(options, name)]:
        raise SourceError(f"{given[0]}: not for {checkpoint.family}, {name}")
    if wrong := [precision for precision in options.precisions or () if precision not in STATIC_PRECISIONS]:
        raise SourceError(f"precision {wrong[0]}: {checkpoint.family} has fp32 only, {name}")
    return TextFamily(checkpoint, read_samples(options.valid) or checkpoint.samples, STATIC_PRECISIONS)


def _noted(folder: Folder, name: str, value: str) -> Folder:
    """Add a line about the checkpoint to manifest and card."""
    return replace(folder, origin={**folder.origin, name: value})


def _open_graphs(path: Path, options: ExportOptions, origin: Mapping[str, str] | None = None) -> Opened:
    """Open ONNX files: an encoder if config.json names a class with a task, else a model of plain tensors."""
    place = path.parent if path.is_file() else path
    if place.name in FOLDERS and not (place / CONFIG).is_file():
        place = place.parent
    folder = Folder(options.config_from or place)
    if given := [name for name in OF_CHECKPOINTS if getattr(options, name)]:
        raise SourceError(f"{given[0]}: not for ONNX files, {path}")
    if path.is_dir() and not folder.has(CONFIG) and (path / GENAI_CONFIG).is_file():
        remedy = "copy that of the original checkpoint into it, or name the ONNX file to serve plain tensors"
        raise SourceError(f"{path}: has {GENAI_CONFIG}, but no {CONFIG}: {remedy}")
    files = find_graphs(path)
    if unknown := [name for name in options.precisions or () if name not in files]:
        raise SourceError(f"precision {', '.join(unknown)}: {path} has {', '.join(files)}, ONNX files are kept as they are")
    task = task_of(folder, files) if folder.has(CONFIG) else ""
    if task == IMAGE_CLASSIFICATION:
        family: Family = OnnxImageClassifier(folder, files, options.valid)
    elif task:
        family = OnnxTextEncoder(folder, files, read_samples(options.valid))
    else:
        family = TensorsFamily(files, options.valid, folder)
        if folder.has(CONFIG):
            named = folder.architecture or "a class that config.json lacks"
            origin = {**(origin or {}), "plain_tensors": f"{named} has no task here"}
    return Opened(family, [file.path for file in files.values()], origin or {})


def _open_ours(folder: Folder, architecture: str, options: ExportOptions) -> Family:
    """Open a checkpoint of triptych_training, which brings its samples and names its languages."""
    if options.source_language or options.target_language:
        raise SourceError(f"source_language, target_language: not applicable, {folder.path} records its languages")
    for name in ("ignore_config", "allow_different"):
        if getattr(options, name):
            raise SourceError(f"{name}: only for checkpoints of Hugging Face; {folder.path} is a {architecture}")
    if architecture == RNN:
        options = _only_float32(folder, options, "recurrent models")
    if architecture not in CONFIGS:
        _refuse_of_translation(folder, options)
    if architecture == VAE:
        _only_float32(folder, options, "autoencoders")
        return AutoencoderFamily(load_vae_checkpoint(folder.path), options.valid)
    loaded = LOADERS[architecture](folder.path)
    if isinstance(loaded, TextCheckpoint) and isinstance(loaded.model, StaticEmbedding | Elmo):
        return _static(loaded, str(folder.path), options)
    return _family(loaded, folder, options, ours=True)


def _require_samples(folder: Folder, missing: str, wanted: str, found: bool) -> None:
    if not found:
        raise SourceError(f"{folder.path}: holds no {missing} for the parity check; name a file of {wanted} with --valid")


def _refuse_labels(path: Path, options: ExportOptions) -> None:
    if options.labels or options.templates:
        raise SourceError(f"labels, hypothesis_template: only for a {CLIP_MODEL} of transformers; {path} is none")


def _refuse_of_translation(folder: Folder, options: ExportOptions) -> None:
    if given := [name for name in ("shortlist", "lower_capitals") if getattr(options, name)]:
        raise SourceError(f"{given[0]}: only for translation models; {folder.path} is a {_kind(folder)}")


def _only_float32(folder: Folder, options: ExportOptions, kind: str) -> ExportOptions:
    """Check the options for a model that has no other precision, and set that one."""
    if options.shortlist:
        raise SourceError(f"shortlist: only for Transformers; {folder.path} is a {_kind(folder)}")
    if wrong := [precision for precision in options.precisions or () if precision != "fp32"]:
        raise SourceError(f"precision {', '.join(wrong)}: {kind} have fp32 only; {folder.path} is a {_kind(folder)}")
    return replace(options, precisions=("fp32",))


def _refuse_precisions(precisions: Sequence[str], folder: Folder, options: ExportOptions) -> None:
    """Refuse precisions of other kinds of models."""
    for precision in precisions:
        if precision in options.shipped:
            raise SourceError(f"precision {precision}: only for {MODELS[precision]}; {folder.path} is a {_kind(folder)}")


def _kind(folder: Folder) -> str:
    return str(folder.config.get("architecture") or folder.model_type or folder.architecture)


def weight_files(folder: Path) -> tuple[Path, ...]:
    """List the weight files of a folder, or of a path that is one; safetensors take precedence."""
    if folder.suffix == GGUF and folder.is_file():
        return (folder,)
    patterns = ("model*.safetensors", "pytorch_model*.bin")
    return next((tuple(files) for pattern in patterns if (files := sorted(folder.glob(pattern)))), ())
