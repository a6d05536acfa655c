"""From a bundle to the model of its task."""

from dataclasses import replace

from triptych_serving.bundle import open_bundle
from triptych_serving.encoder import EncoderOptions
from triptych_serving.imagemodel import ImageModel
from triptych_serving.manifest import ImageManifest, TextManifest
from triptych_serving.model import Model
from triptych_serving.repository import Entry
from triptych_serving.textmodel import TextModel
from triptych_serving.translator import Translator, TranslatorOptions


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
