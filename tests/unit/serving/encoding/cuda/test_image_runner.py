"""Images over a graph bound to device memory: results equal those of the same graph run directly."""

import random
from functools import partial
from itertools import cycle
from pathlib import Path

import pytest

from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.encoding import loading
from triptych_serving.encoding.cuda import graph as graph_module
from triptych_serving.encoding.cuda.device_resources import open_device_resources
from triptych_serving.models.image.image_model import ImageModel
from triptych_serving.runtime.device import CPU
from triptych_serving.scheduling.batch_scheduler import BatchLimits

from .....fixtures.encoders import png, write_image_bundle
from ...encoders import TWO_WAYS, both_ways
from ...runtime.memory.strict_memory import StrictMemory


@pytest.fixture(params=[1, graph_module.LANDING_BYTES])
def _strict(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace streams by strict ones, with landing blocks and without."""
    monkeypatch.setattr(graph_module, "LANDING_BYTES", request.param)
    streams = cycle((StrictMemory, partial(StrictMemory, runs=False)))  # the session's, that of transfers
    opened = partial(open_device_resources, opened=lambda device: next(streams)())
    monkeypatch.setattr(loading, "open_device_resources", opened)


@pytest.mark.usefixtures("_strict")
def test_labels_equal_those_of_the_graph_itself(repository: Path) -> None:
    rng = random.Random(5)
    bundle = open_bundle(write_image_bundle(repository, precisions=TWO_WAYS))
    with both_ways(ImageModel, bundle, limits=BatchLimits(batch_rows=13)) as (plain, bucketed):
        for count in (1, 2, 5, 13, 40):
            images = [png((rng.randrange(256), rng.randrange(256), rng.randrange(256))) for _ in range(count)]
            for k in (1, 2, 3):
                mine, expected = (
                    [label for image in model.classify(images, k) for label in image.labels] for model in (bucketed, plain)
                )
                assert [label.label for label in mine] == [label.label for label in expected]
                assert [label.score for label in mine] == pytest.approx([label.score for label in expected], rel=1e-6)
        assert bucketed.describe().startswith("classifies images into 3 labels")
        assert "CPU, fp16, weights of" in bucketed.describe()
        assert (bucketed.devices, bucketed.reserved) == ((CPU,), {})
