"""Checkpoint folders of the encoder families.

Their config.json also has the head and the labels. Those of image models have no tokenizer, and instead of samples.json some
validation images, samples/*.jpg.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from triptych_training.checkpoints.folder import CONFIG, Config, load_folder, make_member, named_architecture, save_folder
from triptych_training.checks import at_least
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
    EncoderModel,
)
from triptych_training.models.deberta import DebertaConfig
from triptych_training.models.elmo import Elmo, ElmoConfig
from triptych_training.models.image_gpt import ImageGpt
from triptych_training.models.modernbert import ModernBertConfig
from triptych_training.models.pvt import Pvt, PvtConfig
from triptych_training.models.resnet import ResNet, ResNetConfig
from triptych_training.models.swin import Swin, SwinConfig
from triptych_training.models.vit import Vit, VitConfig
from triptych_training.models.word2vec import PAD, StaticEmbedding, Word2Vec, Word2VecConfig

BERT, VIT, WORD2VEC = "triptych-bert", "triptych-vit", "triptych-word2vec"
ELMO = "triptych-elmo"
ENCODERS: dict[str, type[EncoderConfig]] = {"bert": BertConfig, "modernbert": ModernBertConfig, "deberta": DebertaConfig}
SAMPLE_IMAGES = "samples"

Sample = str | tuple[str, str]
TrainedImageModel = Vit | Pvt | Swin | ResNet
ImageModel = TrainedImageModel | ImageGpt
ImageConfig = VitConfig | PvtConfig | SwinConfig | ResNetConfig
# Image models that are trained here: the member of config.json that has their shape, its type, and the model's.
IMAGE_KINDS: dict[str, tuple[str, type[ImageConfig], type[TrainedImageModel]]] = {
    VIT: ("vit", VitConfig, Vit),
    "triptych-pvt": ("pvt", PvtConfig, Pvt),
    "triptych-swin": ("swin", SwinConfig, Swin),
    "triptych-resnet": ("resnet", ResNetConfig, ResNet),
}

# Members of TextCheckpoint that config.json has under the same name.
OPTIONS: dict[str, type] = {"pairs": bool, "singles": bool, "family": str, "pooling": str, "normalize": bool}

HEADS: dict[type, str] = {
    BertForPretraining: "pretraining",
    BertForSequenceClassification: "text-classification",
    BertForTokenClassification: "token-classification",
    BertForQuestionAnswering: "question-answering",
    BertForEmbedding: "embedding",
    StaticEmbedding: "embedding",
    Elmo: "embedding",
}


@dataclass(frozen=True)
class TextCheckpoint:
    """Trained model of the BERT family, or one that embeds texts (Word2Vec, ELMo), with its tokenizer and metadata."""

    model: BertModel  # in evaluation mode
    tokenizer: Tokenizer  # its post-processor builds [CLS] A [SEP] B [SEP]
    labels: Sequence[str] = ()  # names of the classes
    provenance: Mapping[str, Any] = field(default_factory=dict)  # how the model was trained
    samples: Sequence[Sample] = ()  # texts for the exporter's parity check
    pairs: bool = False  # a text classifier takes pairs of texts
    singles: bool = False  # with `pairs`: it takes single texts as well
    template: Sequence[str] = ()  # what is tokenized of an input, see TextManifest of triptych_serving; empty: its texts
    family: str = BERT  # name of the architecture
    pooling: str = "mean"  # how to make a text's vector from the states: "mean" or "cls" (of a GptEncoder the last one)
    normalize: bool = False  # scale that vector to length 1
    prompts: Mapping[str, str] = field(default_factory=dict)  # texts that callers may put before theirs, by name
    regression: bool = False  # the labels of a text classifier are quantities
    aggregation: str = "simple"  # how a token classifier makes entities, see TextManifest of triptych_serving

    @property
    def head(self) -> str:
        """Name of the model's head."""
        return HEADS[type(self.model)]


@dataclass(frozen=True)
class ImagePreprocessing:
    """Steps from an image file to the model's pixels: resize, crop, then (pixel / 255 - mean) / std per channel.

    `resize` is "stretch", to resize_height x resize_width (0: height x width), or "shortest-edge", to `resize_size`; then
    height x width are cropped from the centre; `round_crop` says where if an odd pixel is left over, see serving's ImageSpec.
    Raises ValueError if a size is out of range.
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
    round_crop: bool = False

    def __post_init__(self) -> None:
        at_least(1, self, "height", "width")
        at_least(0, self, "resize_size", "resize_height", "resize_width")


@dataclass(frozen=True)
class ImageCheckpoint:
    """Image classifier with its metadata; `samples` are image files, `family` names the architecture."""

    model: ImageModel
    labels: Sequence[str]
    image: ImagePreprocessing
    provenance: Mapping[str, Any] = field(default_factory=dict)
    samples: Sequence[bytes] = ()
    family: str = VIT


@dataclass(frozen=True)
class TrainedImageClassifier(ImageCheckpoint):
    """Image classifier that was trained here, as a checkpoint folder holds it."""

    model: TrainedImageModel


def make_image_model(config: ImageConfig) -> TrainedImageModel:
    """Make the model that the configuration describes."""
    make: Callable[[ImageConfig], TrainedImageModel] = next(
        model for _, kind, model in IMAGE_KINDS.values() if isinstance(config, kind)
    )
    return make(config)


def image_member(config: ImageConfig) -> str:
    """Return the name of an architecture in config.json and recipe.json, such as "vit"."""
    return next(member for member, kind, _ in IMAGE_KINDS.values() if isinstance(config, kind))


def save_bert_checkpoint(checkpoint: TextCheckpoint, folder: Path) -> None:
    """Write `folder`."""
    model = checkpoint.model
    members = {
        "encoder": next(name for name, kind in ENCODERS.items() if isinstance(model.config, kind)),
        "bert": asdict(model.config),
        "head": checkpoint.head,
        "next_sentence": isinstance(model, BertForPretraining) and model.next_sentence is not None,
        "independent": isinstance(model, BertForSequenceClassification) and model.independent,
        "labels": list(checkpoint.labels),
        **{name: getattr(checkpoint, name) for name in OPTIONS},
        "provenance": dict(checkpoint.provenance),
    }
    save_folder(folder, BERT, members, model, checkpoint.tokenizer, checkpoint.samples)


def load_bert_checkpoint(folder: Path) -> TextCheckpoint:
    """Read a checkpoint folder; the model is in evaluation mode on the CPU.

    Raises:
        CheckpointError: files are missing or damaged, or weights and configuration disagree; lists all faults.
    """
    config, model, parts = load_folder(
        folder,
        BERT,
        "bert",
        lambda config: _read_bert(config, folder / CONFIG),
        {"encoder": str, "head": str, "next_sentence": bool, "independent": bool, "labels": list, **OPTIONS},
    )
    options = {name: config[name] for name in OPTIONS}
    if config["head"] == "token-classification":
        options["aggregation"] = "first"  # the only token of a word with a label in trainings
    return TextCheckpoint(**parts, model=model, labels=tuple(config["labels"]), provenance=config["provenance"], **options)


def save_image_checkpoint(checkpoint: TrainedImageClassifier, folder: Path) -> None:
    """Write `folder`."""
    member = image_member(checkpoint.model.config)
    architecture = next(name for name, kind in IMAGE_KINDS.items() if kind[0] == member)
    members = {
        member: asdict(checkpoint.model.config),
        "labels": list(checkpoint.labels),
        "image": asdict(checkpoint.image),
        "provenance": dict(checkpoint.provenance),
    }
    samples = {f"{SAMPLE_IMAGES}/{index:04d}.jpg": data for index, data in enumerate(checkpoint.samples)}
    save_folder(folder, architecture, members, checkpoint.model, others=samples)


def load_image_checkpoint(folder: Path) -> TrainedImageClassifier:
    """Read a checkpoint folder; the model is in evaluation mode on the CPU.

    Raises:
        CheckpointError: files are missing or damaged, or weights and configuration disagree; lists all faults.
    """
    path = folder / CONFIG
    named = named_architecture(path)
    architecture = named if named in IMAGE_KINDS else VIT
    member, kind, _ = IMAGE_KINDS[architecture]

    def make_model(config: Config) -> TrainedImageModel:
        model = make_image_model(kind(**config[member]))
        if len(config["labels"]) != model.config.classes:
            raise CheckpointError(f"{path}: labels has {len(config['labels'])} names, the model {model.config.classes} classes")
        return model

    def make_image(config: Config) -> ImagePreprocessing:
        values = config["image"]
        return ImagePreprocessing(**{**values, "mean": tuple(values["mean"]), "std": tuple(values["std"])})

    config, model, parts = load_folder(
        folder,
        architecture,
        member,
        make_model,
        {"labels": list, "image": dict},
        {"image": lambda config: make_member(path, "image", lambda: make_image(config))},
        tokenizer=False,
    )
    samples = tuple(file.read_bytes() for file in sorted((folder / SAMPLE_IMAGES).glob("*.jpg")))
    return TrainedImageClassifier(model, tuple(config["labels"]), parts["image"], config["provenance"], samples, architecture)


def make_bert(
    head: str, config: EncoderConfig, classes: int = 0, independent: bool = False, next_sentence: bool = False
) -> EncoderModel:
    """Make the model with a head, one of the names in `HEADS`; the last three arguments are those of some heads."""
    makers: dict[str, Callable[[], EncoderModel]] = {
        "pretraining": lambda: BertForPretraining(config, next_sentence),
        "text-classification": lambda: BertForSequenceClassification(config, classes, independent),
        "token-classification": lambda: BertForTokenClassification(config, classes),
        "question-answering": lambda: BertForQuestionAnswering(config),
        "embedding": lambda: BertForEmbedding(config),
    }
    return makers[head]()


def _read_bert(config: Config, path: Path) -> EncoderModel:
    head, encoder = config["head"], config["encoder"]
    for name, value, known in (("head", head, tuple(HEADS.values())), ("encoder", encoder, tuple(ENCODERS))):
        if value not in known:
            raise CheckpointError(f"{path}: {name}: {value!r} is unknown; supported: {', '.join(known)}")
    options = len(config["labels"]), config["independent"], config["next_sentence"]
    return make_bert(head, ENCODERS[encoder](**config["bert"]), *options)


def save_word_vectors(model: Word2Vec, tokenizer: Tokenizer, provenance: Mapping[str, Any], folder: Path) -> None:
    """Write `folder`."""
    save_folder(folder, WORD2VEC, {"word2vec": asdict(model.config), "provenance": provenance}, model, tokenizer)


def load_word_vectors(folder: Path) -> TextCheckpoint:
    """Read the input vectors of a trained Word2Vec as an embedding model.

    Raises:
        CheckpointError: files are missing or damaged, or weights and configuration disagree; lists all faults.
    """
    member = "word2vec"
    config, model, parts = load_folder(folder, WORD2VEC, member, lambda config: Word2Vec(Word2VecConfig(**config[member])))
    static = StaticEmbedding(model.inputs.weight.detach(), PAD).eval()
    return TextCheckpoint(static, parts["tokenizer"], provenance=config["provenance"], family=WORD2VEC)


def save_elmo(
    model: Elmo, tokenizer: Tokenizer, provenance: Mapping[str, Any], samples: Sequence[Sample], folder: Path
) -> None:
    """Write `folder`."""
    save_folder(folder, ELMO, {"elmo": asdict(model.config), "provenance": provenance}, model, tokenizer, samples)


def load_elmo(folder: Path) -> TextCheckpoint:
    """Read a trained ELMo as an embedding model.

    Raises:
        CheckpointError: files are missing or damaged, or weights and configuration disagree; lists all faults.
    """
    config, model, parts = load_folder(folder, ELMO, "elmo", lambda config: Elmo(ElmoConfig(**config["elmo"])))
    return TextCheckpoint(**parts, model=model, provenance=config["provenance"], family=ELMO)
