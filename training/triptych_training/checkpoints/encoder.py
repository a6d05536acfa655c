"""Checkpoint folders of the encoder families: what training writes and export reads.

config.json         format, architecture, shape, head, labels, training provenance
model.safetensors   weights
tokenizer.json      BERT: Hugging Face tokenizers format
samples.json        BERT: some validation texts, or pairs of texts, for the exporter's parity check (optional)
samples/*.jpg       ViT: some validation images for the same
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from triptych_training.checkpoints.config import CONFIG, attempt, make_member, need_files, read_config, write_config
from triptych_training.checkpoints.weights import WEIGHTS, assign_weights, read_weights, save_weights, weight_faults
from triptych_training.data.tokenizer import load_tokenizer, save_tokenizer, vocabulary_faults
from triptych_training.errors import CheckpointError
from triptych_training.models.bert import (
    BertConfig,
    BertForEmbedding,
    BertForPretraining,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
    EncoderConfig,
)
from triptych_training.models.modernbert import ModernBertConfig
from triptych_training.models.swin import Swin
from triptych_training.models.vit import Vit, VitConfig

BERT, VIT = "triptych-bert", "triptych-vit"
ENCODERS: dict[str, type[EncoderConfig]] = {"bert": BertConfig, "modernbert": ModernBertConfig}
SAMPLES = "samples.json"
SAMPLE_IMAGES = "samples"

Sample = str | tuple[str, str]

OPTIONS = ("singles", "family", "pooling", "normalize")  # members of BertCheckpoint that config.json may lack

HEADS: dict[type, str] = {
    BertForPretraining: "pretraining",
    BertForSequenceClassification: "text-classification",
    BertForTokenClassification: "token-classification",
    BertForQuestionAnswering: "question-answering",
    BertForEmbedding: "embedding",
}


@dataclass(frozen=True)
class BertCheckpoint:
    """A trained model of the BERT family with all that belongs to it.

    Args:
        model: in evaluation mode.
        tokenizer: whose post-processor builds [CLS] A [SEP] B [SEP].
        labels: names of the classes.
        provenance: what training says of itself.
        samples: texts for the exporter's parity check.
        pairs: a text classifier's inputs are pairs of texts.
        singles: where `pairs`: they may be single texts as well.
        family: the architecture's name.
        pooling: "mean" or "cls", how the model's vectors are meant to be made.
        normalize: they are meant to have length 1.
    """

    model: BertModel
    tokenizer: Tokenizer
    labels: Sequence[str] = ()
    provenance: Mapping[str, Any] = field(default_factory=dict)
    samples: Sequence[Sample] = ()
    pairs: bool = False
    singles: bool = False
    family: str = BERT
    pooling: str = "mean"
    normalize: bool = False

    @property
    def head(self) -> str:
        """What the model is for."""
        return HEADS[type(self.model)]


@dataclass(frozen=True)
class ImagePreprocessing:
    """From an image file to the model's pixels: resize, crop, then (pixel / 255 - mean) / std a channel.

    `resize`: "stretch" to resize_height x resize_width (0: height x width), or "shortest-edge" to `resize_size`; height x width
    are then cut from the centre.
    """

    height: int
    width: int
    resize: str = "stretch"
    resize_size: int = 0
    interpolation: str = "bilinear"
    mean: tuple[float, float, float] = (0.5, 0.5, 0.5)
    std: tuple[float, float, float] = (0.5, 0.5, 0.5)
    resize_height: int = 0
    resize_width: int = 0


@dataclass(frozen=True)
class ImageCheckpoint:
    """A model that labels images with all that belongs to it; `samples` are image files, `family` names the architecture."""

    model: Vit | Swin
    labels: Sequence[str]
    image: ImagePreprocessing
    provenance: Mapping[str, Any] = field(default_factory=dict)
    samples: Sequence[bytes] = ()
    family: str = VIT


@dataclass(frozen=True)
class VitCheckpoint(ImageCheckpoint):
    """A trained ViT: what a checkpoint folder holds."""

    model: Vit


def save_bert_checkpoint(checkpoint: BertCheckpoint, folder: Path) -> None:
    """Write `folder`; the weights come last, so that a folder with weights is whole."""
    folder.mkdir(parents=True, exist_ok=True)
    model = checkpoint.model
    members = {
        "encoder": next(name for name, kind in ENCODERS.items() if isinstance(model.config, kind)),
        "bert": asdict(model.config),
        "head": checkpoint.head,
        "next_sentence": isinstance(model, BertForPretraining) and model.next_sentence is not None,
        "independent": isinstance(model, BertForSequenceClassification) and model.independent,
        "labels": list(checkpoint.labels),
        **{name: getattr(checkpoint, name) for name in ("pairs", *OPTIONS)},
        "provenance": dict(checkpoint.provenance),
    }
    write_config(folder / CONFIG, BERT, members)
    save_tokenizer(checkpoint.tokenizer, folder / "tokenizer.json")
    if checkpoint.samples:
        samples = json.dumps(list(checkpoint.samples), ensure_ascii=False, indent=0)
        (folder / SAMPLES).write_text(samples + "\n", encoding="utf-8")
    save_weights(model, folder)


def load_bert_checkpoint(folder: Path) -> BertCheckpoint:
    """Read a checkpoint folder; the model is in evaluation mode on the CPU.

    Raises:
        CheckpointError: files are missing or damaged, or weights and configuration disagree; all faults at once.
    """
    need_files(folder, (CONFIG, WEIGHTS, "tokenizer.json"))
    kinds = {"bert": dict, "head": str, "next_sentence": bool, "labels": list, "pairs": bool}
    faults: list[str] = []
    config = attempt(faults, lambda: read_config(folder / CONFIG, BERT, kinds))
    model = attempt(faults, lambda: _make_bert(config, folder / CONFIG)) if config else None
    tokenizer = attempt(faults, lambda: load_tokenizer(folder / "tokenizer.json"))
    samples = attempt(faults, lambda: _read_samples(folder / SAMPLES))
    weights = attempt(faults, lambda: read_weights(folder / WEIGHTS))
    if model and weights is not None:
        faults += weight_faults(model, weights, folder / WEIGHTS)
    if model and tokenizer:
        faults += vocabulary_faults(tokenizer, model.config.vocabulary_size, folder / "tokenizer.json")
    if faults or config is None or model is None or weights is None or tokenizer is None:
        raise CheckpointError("; ".join(faults))
    assign_weights(model, weights)
    model.eval()
    options = {name: config[name] for name in OPTIONS if name in config}
    labels, provenance = tuple(config["labels"]), config.get("provenance", {})
    return BertCheckpoint(model, tokenizer, labels, provenance, samples or (), config["pairs"], **options)


def save_vit_checkpoint(checkpoint: VitCheckpoint, folder: Path) -> None:
    """Write `folder`; the weights come last, so that a folder with weights is whole."""
    folder.mkdir(parents=True, exist_ok=True)
    members = {
        "vit": asdict(checkpoint.model.config),
        "labels": list(checkpoint.labels),
        "image": asdict(checkpoint.image),
        "provenance": dict(checkpoint.provenance),
    }
    write_config(folder / CONFIG, VIT, members)
    if checkpoint.samples:
        (folder / SAMPLE_IMAGES).mkdir(exist_ok=True)
    for index, data in enumerate(checkpoint.samples):
        (folder / SAMPLE_IMAGES / f"{index:04d}.jpg").write_bytes(data)
    save_weights(checkpoint.model, folder)


def load_vit_checkpoint(folder: Path) -> VitCheckpoint:
    """Read a checkpoint folder; the model is in evaluation mode on the CPU.

    Raises:
        CheckpointError: files are missing or damaged, or weights and configuration disagree; all faults at once.
    """
    need_files(folder, (CONFIG, WEIGHTS))
    path = folder / CONFIG
    faults: list[str] = []
    config = attempt(faults, lambda: read_config(path, VIT, {"vit": dict, "labels": list, "image": dict}))
    model = attempt(faults, lambda: make_member(path, "vit", lambda: Vit(VitConfig(**config["vit"])))) if config else None
    image = attempt(faults, lambda: make_member(path, "image", lambda: _image(config["image"]))) if config else None
    weights = attempt(faults, lambda: read_weights(folder / WEIGHTS))
    if model and weights is not None:
        faults += weight_faults(model, weights, folder / WEIGHTS)
    if model and config and len(config["labels"]) != model.config.classes:
        faults.append(f"{path}: labels has {len(config['labels'])} names, the model {model.config.classes} classes")
    if faults or config is None or model is None or image is None or weights is None:
        raise CheckpointError("; ".join(faults))
    assign_weights(model, weights)
    files = sorted((folder / SAMPLE_IMAGES).glob("*.jpg"))
    samples = tuple(file.read_bytes() for file in files)
    return VitCheckpoint(model.eval(), tuple(config["labels"]), image, config.get("provenance", {}), samples)


def _make_bert(config: Mapping[str, Any], path: Path) -> BertModel:
    classes = len(config["labels"])
    makers: dict[str, Callable[[EncoderConfig], BertModel]] = {
        "pretraining": lambda shape: BertForPretraining(shape, config["next_sentence"]),
        "text-classification": lambda shape: BertForSequenceClassification(shape, classes, config.get("independent", False)),
        "token-classification": lambda shape: BertForTokenClassification(shape, classes),
        "question-answering": BertForQuestionAnswering,
        "embedding": BertForEmbedding,
    }
    if config["head"] not in makers:
        raise CheckpointError(f"{path}: head: {config['head']!r} is unknown; supported: {', '.join(makers)}")
    encoder = config.get("encoder", "bert")
    if encoder not in ENCODERS:
        raise CheckpointError(f"{path}: encoder: {encoder!r} is unknown; supported: {', '.join(ENCODERS)}")
    return make_member(path, "bert", lambda: makers[config["head"]](ENCODERS[encoder](**config["bert"])))


def _image(values: Mapping[str, Any]) -> ImagePreprocessing:
    return ImagePreprocessing(**{**values, "mean": tuple(values["mean"]), "std": tuple(values["std"])})


def _read_samples(path: Path) -> list[Sample]:
    if not path.exists():
        return []
    try:
        return [text if isinstance(text, str) else (str(text[0]), str(text[1])) for text in json.loads(path.read_text("utf-8"))]
    except (OSError, ValueError, TypeError, IndexError) as error:
        raise CheckpointError(f"{path}: damaged ({error})") from error
