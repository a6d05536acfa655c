"""What an ImageSpec refuses."""

from typing import Any

import pytest

from triptych_serving.bundle.manifest.image import ImageSpec


def test_a_spec_has_the_manifests_values() -> None:
    spec = ImageSpec(height=224, width=192, resize="shortest-edge", resize_size=224, interpolation="bicubic")
    assert (spec.height, spec.width, spec.resize_size) == (224, 192, 224)
    assert ImageSpec(height=32, width=32, resize="stretch", resize_size=7).resize_size == 7
    assert ImageSpec(height=32, width=16).stretched == (32, 16)
    assert ImageSpec(height=32, width=16, resize_height=40).stretched == (40, 16)


@pytest.mark.parametrize(
    ("members", "fault"),
    [
        ({"height": 0}, "height is 0, it must be between 1 and 4096 pixels"),
        ({"width": 4097}, "width is 4097, it must be between 1 and 4096 pixels"),
        ({"resize": "squeeze"}, "resize is 'squeeze', it must be one of stretch, shortest-edge"),
        (
            {"interpolation": "cubic"},
            "interpolation is 'cubic', it must be one of nearest, box, bilinear, hamming, bicubic, lanczos",
        ),
        ({"resize": "shortest-edge"}, "resize_size is 0, it must be between 1 and 4096 pixels"),
        (
            {"resize": "shortest-edge", "resize_size": 31},
            "resize_size is 31, it must be 32 or more, the longer side of the crop",
        ),
        ({"resize_height": 31}, "resize_height is 31, it must be 32 or more, the height of the crop"),
        ({"resize_width": 15}, "resize_width is 15, it must be 16 or more, the width of the crop"),
        ({"resize_width": -1}, "resize_width is -1, it must be between 1 and 4096 pixels"),
    ],
)
def test_each_fault_names_member_value_and_limit(members: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        ImageSpec(**{"height": 32, "width": 16} | members)
    assert caught.value.args == (fault,)


def test_all_faults_are_reported_together() -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        ImageSpec(height=-1, width=0, resize="", interpolation="")
    assert [fault.split()[0] for fault in caught.value.args] == ["height", "width", "resize", "interpolation"]
