"""Memory plan of a translation model on a GPU, computed before anything is allocated."""

from collections.abc import Iterable, Mapping

from triptych_serving.bundle.bundle import Bundle
from triptych_serving.bundle.manifest import TranslationManifest
from triptych_serving.decoding.cuda.kv_cache import TOKENS, Prefill, bytes_for
from triptych_serving.decoding.cuda.slots import DeviceSlots
from triptych_serving.decoding.kv_cache import cache_lengths
from triptych_serving.decoding.lane_factory import SEARCH_SLOTS
from triptych_serving.models.translation.scoring import LOGIT_BYTES
from triptych_serving.runtime.external_data import external_bytes
from triptych_serving.runtime.session import LIBRARY_BYTES

# Upper bounds for intermediate results; the widest arrays have the vocabulary's size, or four times the model's width.
STEP_BYTES_PER_TOKEN = 16  # per vocabulary entry and row: logits, their softmax in 32 bits, workspace of the top-k
ENCODER_ARRAYS = 24  # of the model's width, 16 bits, per source token
SCORE_ARRAYS = 4  # of the logits' size


def memory_plan(bundle: Bundle, precision: str, slots: int, vocabulary: int) -> Mapping[str, int]:
    """Return the bytes on each device by purpose, for lanes of all kinds and scores.

    Args:
        precision: of its graphs, with 16 bits.
        slots: rows of a greedy lane.

    Raises:
        BundleError: a file is not a graph.
    """
    manifest = bundle.manifest_of(TranslationManifest)
    graphs, shape, limits = manifest.precisions[precision], manifest.decoder, manifest.limits
    width = shape.heads * shape.head_dim
    names = [name for name in (graphs.encoder, graphs.step, graphs.search, graphs.score) if name]
    searches = SEARCH_SLOTS * slots if graphs.search else 0
    prefill = Prefill.bytes_for(cache_lengths(limits)[1], (2 * shape.layers, 1, width))
    running = (slots + searches) * vocabulary * STEP_BYTES_PER_TOKEN + TOKENS * width * 2 * ENCODER_ARRAYS
    return {
        "weights": weight_bytes(bundle, names),
        "libraries": len(names) * LIBRARY_BYTES,
        f"caches of {slots} rows": bytes_for(shape, limits, slots) + DeviceSlots.bytes_for(slots) + prefill,
        f"caches of {searches} beams and samples": bytes_for(shape, limits, searches),
        "between operators": running + (SCORE_ARRAYS * LOGIT_BYTES if graphs.score else 0),
    }


def weight_bytes(bundle: Bundle, graphs: Iterable[str]) -> int:
    """Return the bytes of graphs whose sessions do not share weights. Raises BundleError: a file is not a graph."""
    return sum(bundle.manifest.files[name].bytes + external_bytes(bundle.path(name)) for name in graphs)
