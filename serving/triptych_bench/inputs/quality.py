"""How good what came back is."""

from collections.abc import Sequence

from triptych_bench.results import Quality
from triptych_bench.tasks import Metric


class QualityError(Exception):
    """It cannot be said; the message is one line."""


def quality_of(metric: Metric, outputs: Sequence[str], references: Sequence[str]) -> Quality | None:
    """Of all inputs that have a reference; None where there are none, or the task has no metric.

    Args:
        metric: of the task.
        outputs: what came back.
        references: what should have.

    Raises:
        QualityError: sacrebleu is not installed.
    """
    if metric is Metric.NONE or not references:
        return None
    if metric is Metric.BLEU:
        return _bleu(outputs, references)
    right = sum(_plain(output) == _plain(reference) for output, reference in zip(outputs, references, strict=True))
    return Quality(metric=metric.value, value=right / len(references), signature=f"n:{len(references)}")


def _bleu(outputs: Sequence[str], references: Sequence[str]) -> Quality:
    """As sacreBLEU has it; 0 to 100."""
    try:
        from sacrebleu.metrics.bleu import BLEU  # noqa: PLC0415 - an extra that few have
    except ModuleNotFoundError as error:
        raise QualityError(
            'no BLEU: sacrebleu is not installed; run: pip install "triptych[train]", or sacrebleu alone'
        ) from error
    metric = BLEU()
    score = metric.corpus_score(list(outputs), [list(references)])
    return Quality(metric="BLEU", value=score.score, signature=f"n:{len(references)}|{metric.get_signature()}")


def _plain(text: str) -> str:
    """Letters alone count, not their case: tokenizers and folders' names have their own ideas of it."""
    return text.strip().casefold()
