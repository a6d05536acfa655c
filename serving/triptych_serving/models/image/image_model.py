"""A loaded image model: decoding in threads, the graph behind one engine."""

import math
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from triptych_serving.bundle.bundle import Bundle, read_labels
from triptych_serving.bundle.manifest import ImageManifest
from triptych_serving.bundle.manifest.image import LABELS_FILE
from triptych_serving.encoding.cuda.image_runner import DeviceImageRunner, image_plan
from triptych_serving.encoding.image_runner import ImageRunner
from triptych_serving.encoding.loading import GraphRunners
from triptych_serving.encoding.options import DEFAULTS, EncoderOptions
from triptych_serving.models.capabilities import describe
from triptych_serving.models.encoder_model import EncoderModel
from triptych_serving.models.image.image_job import ClassifiedImage, ImageJob, ImageParts
from triptych_serving.models.image.image_limiter import ImageLimiter
from triptych_serving.models.request_cost import check_range
from triptych_serving.runtime.cpu_info import usable_cpus
from triptych_serving.runtime.process import give_way

DEFAULT_TOP_K = 5
IN_FLIGHT = 64  # images of one request being decoded or run; the others wait as files, and leave room for other requests
DECODED_BYTES = 512 << 20  # of all waiting images
PIXELS_PER_TOKEN = 256  # patches of 16 x 16 pixels, the unit of batch sizes
# A hidden size of n implies 12 * n * n weights per layer, 2 bytes each; no model has fewer than 4 layers.
LEAST_BYTES_PER_SQUARE = 4 * 12 * 2


class ImageModel(EncoderModel):
    """A model of the image family."""

    manifest: ImageManifest

    def __init__(self, name: str, version: int, bundle: Bundle, options: EncoderOptions = DEFAULTS) -> None:
        super().__init__(name, version, bundle, options)
        self.manifest = manifest = bundle.manifest_of(ImageManifest)
        self.labels = read_labels(bundle.path(LABELS_FILE))
        spec = manifest.image
        pixels = spec.height * spec.width
        row_size = max(1, pixels // PIXELS_PER_TOKEN)
        runners = GraphRunners(
            math.isqrt(self.weight_bytes // LEAST_BYTES_PER_SQUARE),
            lambda session: ImageRunner(session, spec),
            lambda limits, session: image_plan(limits, row_size, manifest.label_count, session),
            DeviceImageRunner,
        )
        self._start(bundle, options, runners)
        most = min(options.limits.waiting_rows, max(IN_FLIGHT, DECODED_BYTES // (3 * pixels)))
        self.limiter = ImageLimiter(most, self.engine, row_size, options.limits)
        self._pool = ThreadPoolExecutor(
            usable_cpus(), f"triptych-decode-{name}", initializer=give_way if options.gives_way else None
        )
        self._parts = ImageParts(self.engine, spec, self.labels, row_size, self.limiter, self._pool)

    def classify(self, images: Sequence[bytes], top_k: int = DEFAULT_TOP_K) -> list[ClassifiedImage]:
        """Rank the labels of each image; order is kept.

        Args:
            images: JPEG, PNG or WebP files.
            top_k: labels of each image; all if the model has fewer.

        Raises:
            ServingError: an image is not acceptable (the first one is named), or the runtime failed.
        """
        jobs: deque[ImageJob] = deque()
        results: list[ClassifiedImage] = []
        with self.limiter.admit(len(images)):
            try:
                for index, data in enumerate(images):
                    if len(jobs) == IN_FLIGHT:
                        results.append(jobs.popleft().result())
                    jobs.append(self.begin(data, top_k, f"images[{index}]"))
                while jobs:
                    results.append(jobs.popleft().result())
            finally:
                for job in jobs:
                    job.cancel()
        return results

    def begin(self, data: bytes, top_k: int | None, field: str, deadline: float | None = None) -> ImageJob:
        """Start one image, which `limiter` has admitted.

        Args:
            data: JPEG, PNG or WebP file.
            top_k: labels; None: 5.
            field: request field, for errors.
            deadline: monotonic seconds.

        Raises:
            InvalidInputError: `top_k` is out of range.
            UnavailableError: the model is shutting down.
        """
        k = min(check_range("top_k", DEFAULT_TOP_K if top_k is None else top_k, 1), len(self.labels))
        return ImageJob(self._parts, data, k, field, deadline)

    def count_rows(self) -> tuple[int, int]:
        running, waiting = super().count_rows()
        return running, waiting + self.limiter.waiting

    def describe(self) -> str:
        size = f"{self.manifest.image.width} x {self.manifest.image.height} pixels"
        return f"{describe(self.capabilities)} into {len(self.labels):,} labels, {self._encoder.takes}, {size}"

    def close(self, drain: bool = True) -> None:
        self.limiter.close()
        if drain:
            self.limiter.wait()
        self._pool.shutdown(wait=drain, cancel_futures=not drain)
        super().close(drain)
