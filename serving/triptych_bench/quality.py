"""The quality of the outputs, compared with references."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from triptych_bench.load.event_loop import Interrupt, StoppedError
from triptych_bench.load.loops import SampleBatch
from triptych_bench.results import Quality, Run
from triptych_bench.scenarios.runner import LoadRunner
from triptych_bench.target import RequestSpec, Sample, Target
from triptych_bench.tasks import TASKS, QualityMetric
from triptych_text.translation_scores import score_translations

CONCURRENT = 8  # requests in flight that only serve the quality


class QualityError(Exception):
    """The quality cannot be computed; the message is one line."""


@dataclass(frozen=True)
class BenchmarkInputs:
    """The inputs of a benchmark."""

    samples: Sequence[Sample]  # each once
    batches: Sequence[SampleBatch]  # all samples in order; the last batches may repeat some of the first

    @property
    def has_references(self) -> bool:
        return any(sample.reference is not None for sample in self.samples)


async def with_quality(
    requests: RequestSpec,
    target: Target,
    runner: LoadRunner,
    inputs: BenchmarkInputs,
    runs: Sequence[Run],
    interrupt: Interrupt | None,
) -> list[Run]:
    """Add to each run the quality of its own outputs.

    Inputs that the first run did not send are sent afterwards, so that its quality covers all of them.

    Args:
        interrupt: Ends the additional requests. None: the server is gone, send none.

    Raises:
        QualityError: The quality cannot be computed.
        TargetError: A response cannot be parsed.
    """
    found = []
    for run in runs:
        responses = runner.log_of(run).responses
        if run is runs[0] and interrupt is not None:
            await _send_missing(target, inputs.batches, responses, interrupt)
        pairs = _pairs(target, inputs, responses)
        outputs, references = [output for output, _ in pairs], [reference for _, reference in pairs]
        quality = quality_of(TASKS[requests.task].metric, outputs, references, requests.options.get("target_language", ""))
        found.append(replace(run, quality=quality))
    return found


async def _send_missing(
    target: Target, batches: Sequence[SampleBatch], responses: dict[int, object], interrupt: Interrupt
) -> None:
    async def send(numbers: Sequence[int]) -> None:
        outcomes = await asyncio.gather(*(target.send(batches[number].request) for number in numbers))
        responses.update({number: outcome.response for number, outcome in zip(numbers, outcomes, strict=True) if outcome.ok})

    missing = [number for number in range(len(batches)) if number not in responses]
    for start in range(0, len(missing), CONCURRENT):
        try:
            await interrupt.unless(send(missing[start : start + CONCURRENT]))
        except StoppedError:
            return


def _pairs(target: Target, inputs: BenchmarkInputs, responses: dict[int, object]) -> list[tuple[str, str]]:
    """Pair outputs with their references, each input once."""
    pairs, size = [], len(inputs.batches[0].samples)
    for number, response in sorted(responses.items()):
        outputs = target.read(response)
        if len(outputs) != size:
            raise QualityError(f"no quality: the response to {size} inputs has {len(outputs)} readable outputs")
        for sample, output in zip(inputs.samples[number * size : (number + 1) * size], outputs, strict=False):
            if sample.reference is not None:
                pairs.append((output, sample.reference))
    return pairs


def quality_of(metric: QualityMetric, outputs: Sequence[str], references: Sequence[str], language: str = "") -> Quality | None:
    """Compute the quality of outputs, one for each reference; None without references, or if the task has no metric.

    Raises:
        QualityError: sacrebleu is not installed.
    """
    if metric is QualityMetric.NONE or not references:
        return None
    if metric is QualityMetric.BLEU:
        try:
            scores = score_translations(outputs, references, language)
        except ModuleNotFoundError as error:
            raise QualityError("no BLEU: sacrebleu is not installed; run: pip install sacrebleu") from error
        return Quality(metric="BLEU", value=scores.bleu, signature=f"n:{scores.sentences}|{scores.signature}")
    right = sum(_normalized(output) == _normalized(reference) for output, reference in zip(outputs, references, strict=True))
    return Quality(metric=metric.value, value=right / len(references), signature=f"n:{len(references)}")


def _normalized(text: str) -> str:
    """Ignore case and surrounding white space, in which tokenizers and folder names differ."""
    return text.strip().casefold()
