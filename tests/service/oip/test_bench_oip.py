"""`triptych bench --protocol oip` against this server: what comes back, what is counted, and reports of real runs."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from triptych_bench.native import NativeTarget
from triptych_bench.oip import OipTarget
from triptych_bench.target import RequestSpec, Sample, Target, TargetError
from triptych_client.connection import Settings

from ...fixtures.encoders import png
from ...fixtures.toy import SOURCES, TARGETS
from ..support.processes import ServerProcess

Result = TypeVar("Result")
TEXT = "anna lives in paris"
CASES = {
    "fill": ("fill", "fill-mask", "one two [MASK]", {"top_k": 2}),
    "embed another's": ("embed", "fill-mask", TEXT, {"pooling": "mean"}),
    "classify-text": ("classify-text", "text-classification", "one two", {"top_k": 1}),
    "classify-text pairs of another": ("classify-text", "pairs", ("one", "two three"), {}),
    "classify-tokens": ("classify-tokens", "token-classification", TEXT, {"aggregation": "simple"}),
    "answer": ("answer", "question-answering", ("where does anna live?", TEXT), {}),
    "classify": ("classify", "image-classification", png((0, 255, 0)), {"top_k": 2}),
}


@pytest.fixture
def address(server: ServerProcess) -> str:
    """Address of the server with the toy translator."""
    return server.address


def with_target(kind: type[Any], address: str, wanted: RequestSpec, do: Callable[[Any], Awaitable[Result]]) -> Result:
    async def run() -> Result:
        target: Target = kind(Settings(address=address), wanted)
        try:
            await target.open()
            return await do(target)
        finally:
            await target.close()

    return asyncio.run(run())


async def answers(target: Target, *samples: Any) -> tuple[Any, list[str]]:
    outcome = await target.send(target.prepare([Sample(data) for data in samples]))
    assert outcome.ok, outcome.message
    return outcome, target.read(outcome.response)


def test_both_protocols_translate_alike(address: str) -> None:
    both_answer(address, "translate", "toy", SOURCES[0], {"beam_size": 2})


@pytest.mark.full
@pytest.mark.parametrize("case", CASES)
def test_both_protocols_answer_alike(case: str, every_model: str) -> None:
    both_answer(every_model, *CASES[case])


def both_answer(address: str, task: str, model: str, data: Any, options: dict[str, Any]) -> None:
    wanted = RequestSpec(task=task, model=model, options=options)
    outcome, texts = with_target(OipTarget, address, wanted, lambda target: answers(target, data, data))
    native, expected = with_target(NativeTarget, address, wanted, lambda target: answers(target, data, data))
    assert texts == expected
    assert len(texts) == 2
    assert texts[0]
    assert outcome.tokens == native.tokens


def test_streams_come_in_pieces(address: str) -> None:
    wanted = RequestSpec(task="translate", model="toy", stream=True)
    outcome, texts = with_target(OipTarget, address, wanted, lambda target: answers(target, SOURCES[0]))
    native, expected = with_target(NativeTarget, address, wanted, lambda target: answers(target, SOURCES[0]))
    assert texts == expected == [TARGETS[0]]
    assert len(outcome.token_times) > 0  # how many pieces there are is the server's choice
    assert outcome.tokens == native.tokens > 1
    assert outcome.sent < outcome.token_times[0] <= outcome.received


def test_what_a_model_cannot_do_is_said(address: str) -> None:
    async def nothing(target: OipTarget) -> None:
        return None

    with pytest.raises(
        TargetError, match="the model toy does translation; over the Open Inference Protocol it does not support"
    ):
        with_target(OipTarget, address, RequestSpec(task="fill", model="toy"), nothing)
    with pytest.raises(TargetError, match="it does not support score"):
        with_target(OipTarget, address, RequestSpec(task="score", model="toy"), nothing)
