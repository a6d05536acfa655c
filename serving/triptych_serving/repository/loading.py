"""Loading: from a bundle to the model of its task, and from a repository to a registry."""

import logging
from dataclasses import dataclass, field, replace
from pathlib import Path

from triptych_serving.bundle.bundle import Bundle, open_bundle
from triptych_serving.bundle.manifest import (
    AutoencoderManifest,
    ImageManifest,
    PromptedTranslationManifest,
    TensorsManifest,
    TextGenerationManifest,
    TextManifest,
)
from triptych_serving.encoding.options import DEFAULTS, EncoderOptions
from triptych_serving.errors import BundleError
from triptych_serving.models.decode_model import DecodeModelOptions
from triptych_serving.models.generation.generator import Generator
from triptych_serving.models.generation.image_generator import ImageGenerator
from triptych_serving.models.generation.prompted_translator import PromptedTranslator
from triptych_serving.models.image.autoencoder import Autoencoder
from triptych_serving.models.image.image_model import ImageModel
from triptych_serving.models.model import Model
from triptych_serving.models.tensors.tensor_model import TensorModel
from triptych_serving.models.text.text_model import TextModel
from triptych_serving.models.translation.translator import Translator
from triptych_serving.repository.placement import CPU_ALONE, Hardware, Placement, place
from triptych_serving.repository.registry import ModelVersion, Registry, State
from triptych_serving.repository.repository import ModelFolder, VersionFolder, chosen_models
from triptych_serving.repository.warmup import WarmUp, warm
from triptych_serving.runtime.memory.budget import Budgets
from triptych_serving.runtime.process import give_way

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Loader:
    """Loads bundles of every task. Thread-safe."""

    decoders: DecodeModelOptions  # its precision applies to every task
    encoders: EncoderOptions
    warm_up: WarmUp = WarmUp.NONE
    hardware: Hardware = CPU_ALONE  # devices that models may run on
    budgets: Budgets = field(default_factory=Budgets)  # memory of the GPUs, shared by all models
    gives_way: bool = False  # the loading thread, and the threads of what it loads, get less CPU than the main thread

    def attempt(self, entry: VersionFolder) -> tuple[Model | None, str]:
        """Return the model, or why it cannot be loaded: no error stops the server. `gives_way` lowers the thread's priority."""
        if self.gives_way:
            give_way()
        try:
            return self._load(entry), ""
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a panic in the tokenizers' Rust is no Exception
            fault = " ".join(str(error).split())
            if not isinstance(error, BundleError):
                fault = f"{entry.folder}: cannot be loaded: {fault or type(error).__name__}"
                logger.debug("model %s version %d: loading failed", entry.name, entry.version, exc_info=error)
            logger.error("model %s version %d cannot be served: %s", entry.name, entry.version, fault)
            return None, fault

    def _load(self, entry: VersionFolder) -> Model:
        """Check a bundle, load its graphs, start its engine and warm it up.

        Raises:
            BundleError: something is missing, damaged, not loadable by the runtime, or not for the devices.
            DeviceError: a device failed, or has no room.
        """
        # A link may point to other files when a graph is read later, or at any moment in between.
        model = self._make(entry, open_bundle(entry.folder.resolve()))
        try:
            warm(model, self.warm_up)
        except BaseException:
            model.close(drain=False)
            raise
        return model

    def _make(self, entry: VersionFolder, bundle: Bundle) -> Model:
        """Make the model of a bundle's task, with the precision and on the devices that are chosen for it."""
        about, manifest = (entry.name, entry.version, bundle), bundle.manifest
        encoders, decoders = self.encoders, self.decoders
        if isinstance(manifest, TextManifest | ImageManifest | TensorsManifest):
            placement = _place(entry, bundle, encoders.precision or decoders.precision, self.hardware)
            encoders = replace(encoders, precision=placement.precision)
            if placement.on_gpu:
                encoders = replace(encoders, devices=placement.devices, budgets=self.budgets)
            if isinstance(manifest, TensorsManifest):
                return TensorModel(*about, encoders)
            return TextModel(*about, encoders) if isinstance(manifest, TextManifest) else ImageModel(*about, encoders)
        if isinstance(manifest, AutoencoderManifest):
            placement = _place(entry, bundle, encoders.precision or decoders.precision, replace(self.hardware, gpus=()))
            return Autoencoder(*about, replace(encoders, precision=placement.precision))
        placement = _place(entry, bundle, decoders.precision, self.hardware)
        eager = decoders.eager or self.warm_up is WarmUp.ALL
        decoders = replace(decoders, precision=placement.precision, eager=eager)
        if placement.on_gpu:
            engine = replace(decoders.engine, slots=self.hardware.slots, devices=placement.devices, budgets=self.budgets)
            decoders = replace(decoders, engine=engine)
        if isinstance(manifest, PromptedTranslationManifest):
            return PromptedTranslator(*about, decoders)
        if isinstance(manifest, TextGenerationManifest):
            return (Generator if manifest.colours is None else ImageGenerator)(*about, decoders)
        return Translator(*about, decoders)


def _place(entry: VersionFolder, bundle: Bundle, precision: str | None, hardware: Hardware) -> Placement:
    placement = place(bundle, precision, hardware)
    if placement.remark:
        logger.info("model %s version %d runs on the CPU: %s", entry.name, entry.version, placement.remark)
    return placement


def load_registry(
    root: Path,
    options: DecodeModelOptions,
    only: str = "",
    encoders: EncoderOptions = DEFAULTS,
    hardware: Hardware = CPU_ALONE,
    version: str = "",
) -> Registry:
    """Load one version of every model, or of the one named `only`.

    A model that cannot be loaded does not stop the others.

    Args:
        options: how translation models are loaded; its precision applies to every model.
        only: a model's name, or empty.
        encoders: how models of the other tasks are loaded.
        version: a number or a label; empty: the stable one, else the newest.

    Raises:
        RepositoryError: the repository is missing or empty.
        NotFoundError: `only` names no model, or it has no such version.
    """
    folders = chosen_models(root, only).values()
    entries = [(folder, folder.find(version)) for folder in folders]
    loader = Loader(options, encoders, hardware=hardware, budgets=Budgets(hardware.memory_limit))
    return Registry([_load_one(folder, entry, loader) for folder, entry in entries])


def _load_one(folder: ModelFolder, entry: VersionFolder, loader: Loader) -> ModelVersion:
    model, fault = (None, folder.fault) if folder.fault else loader.attempt(entry)
    labels = folder.policy.labels_of(entry.version)
    return ModelVersion(entry, State.FAILED if model is None else State.READY, model, fault, labels)
