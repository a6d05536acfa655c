"""The gate: what a precision must show before it becomes part of a bundle.

fp32 is compared with PyTorch number by number, without an exception (`comparison`, `translation`). Every other precision is
judged here by its figures in the parity report; figures that it has to have and does not have are faults too.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from triptych_export.bundle_files import FP32, SHORT_PRECISION
from triptych_export.errors import ParityError
from triptych_serving.bundle.manifest import FP16, INT4, INT4_INT8_CACHES, INT8, INT8_CACHES, INT8_WEIGHTS

Report = dict[str, Any]

MIN_SAMPLES, MIN_DISTINCT, MIN_DECISIONS = 32, 16, 32
SAMPLES = ("samples", "sentences")  # names of their number, of encoders and of translation models


@dataclass(frozen=True)
class Floor:
    """Least agreement of a precision with PyTorch."""

    # Percent of the decisions (labels, masked or next tokens, nearest neighbours) that are PyTorch's or nearly so.
    agreement: float
    cosine: float  # mean cosine with PyTorch's vectors
    channel_error: float  # largest error of a vector's channel, in percent of its standard deviation
    bleu_loss: float  # BLEU points below fp32


QUANTIZED = Floor(agreement=90, cosine=0.97, channel_error=75, bleu_loss=2)
FOUR_BITS = replace(QUANTIZED, agreement=80)
FLOORS: Mapping[str, Floor] = {
    FP16: Floor(agreement=95, cosine=0.999, channel_error=15, bleu_loss=1),
    INT8: QUANTIZED,
    INT8_CACHES: QUANTIZED,
    SHORT_PRECISION: QUANTIZED,
    INT4: FOUR_BITS,
    INT4_INT8_CACHES: FOUR_BITS,
    INT8_WEIGHTS: Floor(agreement=95, cosine=0.998, channel_error=25, bleu_loss=1),
}
AGREEMENTS = ("near_agreement_percent", "next_token_agreement_percent", "forced_token_agreement_percent")
OVERRIDE = "shipped_despite"


def check_gate(parity: Report, metrics: Mapping[str, Any], shipped: Sequence[str], allowed: bool) -> Report:
    """Check the precisions to be shipped by their figures in `parity` and their BLEU in `metrics`, if references are known.

    Returns `parity`, in which faults are recorded if they are `allowed`; they become part of the model card.

    Raises:
        ParityError: lists the faults of all precisions.
    """
    faults = {precision: "; ".join(_faults(precision, parity, metrics)) for precision in shipped}
    faults = {precision: text for precision, text in faults.items() if text}
    if faults and not allowed:
        raise ParityError(
            f"{'. '.join(f'{precision}: {text}' for precision, text in faults.items())}. Pass more or other samples with "
            f"--valid, choose other precisions with --precision, or ship them anyway with --allow-inexact; the card records it"
        )
    return {name: {**report, OVERRIDE: faults[name]} if name in faults else report for name, report in parity.items()}


def _faults(precision: str, parity: Report, metrics: Mapping[str, Any]) -> Iterator[str]:
    figures: Report = parity[precision]
    if figures.get("kept"):  # a graph as it came, of which nothing is known but that it is the same
        return
    reference: Report = parity.get(FP32, figures)  # an ONNX file that was imported is its own reference
    samples = next((reference[name] for name in SAMPLES if name in reference), 0)
    yield from _below("samples", samples, MIN_SAMPLES)
    yield from _below("different outputs", reference.get("distinct_outputs", 0), MIN_DISTINCT)
    if precision == FP32:
        return
    floor = FLOORS.get(precision, QUANTIZED)
    yield from _below("decisions", figures.get("decisions", 0), MIN_DECISIONS)
    if count := figures.get("samples_not_finite"):
        yield f"{count} samples have values that are not finite"
    for name, value in figures.items():
        text = name.replace("_", " ")
        if name in AGREEMENTS:
            yield from _below(text, value, floor.agreement)
        elif name.endswith("_cosine"):
            yield from _below(text, value, floor.cosine)
        elif name.endswith("_channel_error_percent"):
            yield from _above(text, value, floor.channel_error)
    bleu = f"bleu_{precision.replace('-', '_')}"
    if bleu in metrics:
        yield from _above("BLEU points below fp32", round(metrics["bleu_fp32"] - metrics[bleu], 2), floor.bleu_loss)


def _below(name: str, value: float, least: float) -> Iterator[str]:
    if not value >= least:  # "not" finds NaN too
        yield f"{name}: {value:,}, at least {least:g} required"


def _above(name: str, value: float, most: float) -> Iterator[str]:
    if not value <= most:
        yield f"{name}: {value:,}, at most {most:g} allowed"
