"""What came back, beside what should have."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from triptych_bench.inputs.quality import QualityError, quality_of
from triptych_bench.load.feed import Batch
from triptych_bench.load.quiet import Interrupt, StoppedError
from triptych_bench.results import Run
from triptych_bench.scenarios.bench import Bench
from triptych_bench.target import Outcome, Sample, Target
from triptych_bench.tasks import TASKS

TOGETHER = 8  # requests that are sent for the sake of quality alone


@dataclass(frozen=True)
class Inputs:
    """What is sent."""

    samples: Sequence[Sample]  # each once
    batches: Sequence[Batch]  # all of them in order; the last ones may have some of the first again

    @property
    def judged(self) -> bool:
        """It is known of any what should come back."""
        return any(sample.reference is not None for sample in self.samples)


async def judged(
    task: str, target: Target, bench: Bench, inputs: Inputs, runs: Sequence[Run], interrupt: Interrupt | None
) -> list[Run]:
    """Each run with the quality of its own answers.

    Inputs that had no turn in the first run are asked afterwards, so that it is over all of them.

    Args:
        task: of the inputs.
        target: open.
        bench: has measured the runs.
        inputs: of all runs.
        runs: to be judged.
        interrupt: may end the asking. None: the server is there no more, nothing is asked.

    Raises:
        QualityError: it cannot be said.
        TargetError: an answer cannot be read.
    """
    found = []
    for run in runs:
        _, log = bench.log_of(run)
        if run is runs[0] and interrupt is not None:
            await _complete(target, inputs.batches, log.answers, interrupt)
        pairs = _pairs(target, inputs, log.answers)
        quality = quality_of(TASKS[task].metric, [output for output, _ in pairs], [right for _, right in pairs])
        found.append(replace(run, quality=quality))
    return found


async def _complete(target: Target, batches: Sequence[Batch], answers: dict[int, object], interrupt: Interrupt) -> None:
    """Some at a time, and no more after Ctrl-C."""
    missing = [number for number in range(len(batches)) if number not in answers]
    for start in range(0, len(missing), TOGETHER):
        some = missing[start : start + TOGETHER]
        try:
            outcomes = await interrupt.unless(_together(target, [batches[number] for number in some]))
        except StoppedError:
            return
        answers.update({number: outcome.answer for number, outcome in zip(some, outcomes, strict=True) if outcome.ok})


async def _together(target: Target, batches: Sequence[Batch]) -> list[Outcome]:
    return await asyncio.gather(*(target.send(batch.request) for batch in batches))


def _pairs(target: Target, inputs: Inputs, answers: dict[int, object]) -> list[tuple[str, str]]:
    """Outputs with their references, each input once.

    Raises:
        QualityError: an answer is not of as many inputs as were asked.
        TargetError: an answer cannot be read.
    """
    pairs, size = [], len(inputs.batches[0].samples)
    for number, answer in sorted(answers.items()):
        outputs = target.read(answer)
        if len(outputs) != size:
            raise QualityError(f"no quality: an answer to {size} inputs has {len(outputs)} that can be read")
        for sample, output in zip(inputs.samples[number * size : (number + 1) * size], outputs, strict=False):
            if sample.reference is not None:
                pairs.append((output, sample.reference))
    return pairs
