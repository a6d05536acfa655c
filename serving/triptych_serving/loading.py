"""From a bundle to the model of its task."""

import logging
from dataclasses import dataclass, replace

from triptych_serving.bundle import open_bundle
from triptych_serving.encoder import EncoderOptions
from triptych_serving.errors import BundleError
from triptych_serving.imagemodel import ImageModel
from triptych_serving.manifest import ImageManifest, TextManifest
from triptych_serving.model import Model
from triptych_serving.repository import Entry
from triptych_serving.textmodel import TextModel
from triptych_serving.translator import Translator, TranslatorOptions
from triptych_serving.warming import WarmUp, warm

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Loader:
    """Loads bundles of every task. Thread-safe."""

    translator: TranslatorOptions  # its precision counts for every task
    encoders: EncoderOptions
    warm_up: WarmUp = WarmUp.NONE

    def attempt(self, entry: Entry) -> tuple[Model | None, str]:
        """The model, or why it cannot be loaded: whatever goes wrong, the other models must be served."""
        try:
            return self._load(entry), ""
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a panic in the tokenizers' Rust is no Exception
            fault = " ".join(str(error).split())
            if not isinstance(error, BundleError):
                fault = f"{entry.folder}: cannot be loaded: {fault or type(error).__name__}"
                logger.debug("model %s version %d", entry.name, entry.version, exc_info=error)
            logger.error("model %s version %d cannot be served: %s", entry.name, entry.version, fault)
            return None, fault

    def _load(self, entry: Entry) -> Model:
        translator = replace(self.translator, eager=self.translator.eager or self.warm_up is WarmUp.ALL)
        model = load_model(entry, translator, self.encoders)
        try:
            warm(model, self.warm_up)
        except BaseException:
            model.close(drain=False)
            raise
        return model


def load_model(entry: Entry, options: TranslatorOptions, encoders: EncoderOptions) -> Model:
    """Check the bundle, load its graphs, start its engine. A precision named in `options` counts for every task.

    Raises:
        BundleError: anything is missing, damaged, or not what the runtime can load.
    """
    bundle = open_bundle(entry.folder)
    encoders = replace(encoders, precision=encoders.precision or options.precision)
    if isinstance(bundle.manifest, TextManifest):
        return TextModel(entry.name, entry.version, bundle, encoders)
    if isinstance(bundle.manifest, ImageManifest):
        return ImageModel(entry.name, entry.version, bundle, encoders)
    return Translator(entry.name, entry.version, bundle, options)
