"""Warnings about memory that models which translate or continue texts may need."""

from contextlib import closing

import pytest

from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.decoding.engine import EngineOptions
from triptych_serving.models import decode_model
from triptych_serving.models.decode_model import DecodeModelOptions
from triptych_serving.models.translation.translator import Translator

from ....fixtures.toy import BUNDLE


@pytest.mark.parametrize("share", [3, 1])
def test_caches_that_may_take_most_of_the_memory_are_a_warning(
    share: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    options = DecodeModelOptions("fp32", EngineOptions(1, 4))
    with closing(Translator("toy", 1, open_bundle(BUNDLE), options)) as model:
        needed = model.engine.bytes
    monkeypatch.setattr(decode_model, "usable_memory", lambda: share * needed)
    with closing(Translator("toy", 1, open_bundle(BUNDLE), options)):
        warnings = [record.getMessage() for record in caplog.records]
    if share == 1:
        assert "choose fewer --slots or --workers" in warnings[0]
        assert warnings[0].startswith("model toy version 1: caches may take ")
    else:
        assert warnings == []
