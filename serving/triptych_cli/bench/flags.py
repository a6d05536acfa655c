"""Flags of `triptych bench`."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from triptych_cli.common import options
from triptych_cli.common.decoding import generation_options, measured_options
from triptych_cli.common.options import FloatRange, option, optional, several

SCENARIOS = ("closed-loop", "single-stream", "multi-stream", "server", "offline")
PROTOCOLS = ("triptych", "oip")
MOST_VALUES = 1_000  # in a list
MOST_CALLERS = 10_000
MOST_RATE = 1_000_000
UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
DURATION = re.compile(r"(\d+(?:\.\d+)?) ?(us|ms|s)")
SHAPE = re.compile(r"([^:\s]+):(\d+(?:,\d+)*)")


def duration(value: str) -> float:
    """Parse a time with a unit, such as 200ms, into seconds."""
    match = DURATION.fullmatch(value.strip())
    if match is None or not float(match[1]):
        raise click.BadParameter(f"{value!r} is not a time with a unit, such as 200ms or 1.5s")
    return float(match[1]) * UNITS[match[2]]


def counts(value: str) -> Sequence[int]:
    """Parse a list, 1,2,4, or a range as in perf_analyzer, START:END or START:END:STEP, including the end."""
    try:
        given = _range(value) if ":" in value else tuple(int(part) for part in value.split(","))
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is neither a list such as 1,2,4 nor a range such as 1:16:2") from error
    numbers = given[: MOST_VALUES + 1]  # `len` of a longer range may overflow
    if not 1 <= len(numbers) <= MOST_VALUES or not all(1 <= number <= MOST_CALLERS for number in numbers):
        raise click.BadParameter(f"{value!r}: it takes up to {MOST_VALUES} numbers from 1 to {MOST_CALLERS:,}")
    return numbers


def _range(value: str) -> Sequence[int]:
    start, end, *step = map(int, value.split(":"))
    if len(step) > 1:
        raise ValueError("more than three numbers")
    return range(start, end + 1, *step)


def rates(value: str) -> tuple[float, ...]:
    """Parse rates in requests per second, 50 or 50,100,200."""
    try:
        found = tuple(float(part) for part in value.split(","))
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is not a list of rates such as 50,100") from error
    if not all(0 < rate <= MOST_RATE for rate in found):
        raise click.BadParameter(f"{value!r}: rates are above 0 and at most {MOST_RATE:,}")
    return found


def shape(value: str) -> tuple[str, tuple[int, ...]]:
    """Parse the name and shape of a tensor, such as pixel_values:3,224,224."""
    match = SHAPE.fullmatch(value)
    if match is None:
        raise click.BadParameter(f"{value!r} is not a name with a shape, such as pixel_values:3,224,224")
    return match[1], tuple(int(size) for size in match[2].split(","))


_path = click.Path(path_type=Path)
_seconds = FloatRange(min=0.01, max=86_400)
server_flags = several(
    options.models,
    options.model,
    options.model_version,
    optional("--server", default="", metavar="HOST:PORT", help="Server to measure.  [default: start one]"),
    options.connection,
    options.running,
    option("--protocol", type=click.Choice(PROTOCOLS), default="triptych", help="oip: Open Inference, always used by infer."),
    optional(
        "--serve-flags",
        default="",
        metavar="FLAGS",
        help='For the server that is started without --server, such as "--slots 64 --workers 1".',
    ),
    optional("--pid", type=click.IntRange(min=1), help="Process whose CPU and memory to watch.  [default: the started server]"),
    optional(
        "--metrics-url",
        default="",
        metavar="URL",
        help="Read CPU, memory and counters from this Prometheus page, http://host:8002/metrics.",
    ),
)
load_flags = several(
    option("--scenario", type=click.Choice(SCENARIOS), default="closed-loop", help="How requests arrive."),
    optional(
        "--concurrency",
        type=counts,
        metavar="N,...",
        help="closed-loop: concurrent requests, 1,2,4 or 1:16:2.  [default: 1,2,4,8]",
    ),
    optional(
        "--rate", type=rates, metavar="RATE,...", help="server: requests per second, 50,100.  [default: search the highest]"
    ),
    optional("--latency-limit", type=duration, metavar="TIME", help="Limit of p99 in a search, and of goodput, such as 200ms."),
    optional(
        "--batch-size",
        type=click.IntRange(1, 65_536),
        help="Inputs per request.  [default: 1; multi-stream 8; offline 64, or 16 images]",
    ),
    option("--measure-secs", type=_seconds, default=5.0, help="Length of a window; three in a row must agree."),
    option("--warm-up-secs", type=FloatRange(0, 86_400), default=2.0, help="Time under load before a run counts."),
    option("--max-windows", type=click.IntRange(3, 10_000), default=10, help="Windows of a closed loop that does not settle."),
    option("--stability-percent", type=FloatRange(0.1, 100), default=10.0, help="How closely windows must agree."),
    option("--resolution-percent", type=FloatRange(0.1, 50), default=3.0, help="Precision when searching the highest rate."),
    optional("--timeout-secs", type=_seconds, help="Time limit of a request.  [default: 60; offline 3600]"),
    option("--random-seed", type=click.IntRange(0, 2**31 - 1), default=1, help="Seed of arrivals and the order of inputs."),
)
report_flags = several(
    optional("--json", "json_file", type=_path, help="Write the report for `triptych bench compare`; - is standard output."),
    optional("--csv", "csv_file", type=_path, help="Write a table with the columns of perf_analyzer; - as well."),
    optional("--html", "html_file", type=_path, help="Write one self-contained page with plots; - as well."),
    option("--quiet/--no-quiet", default=False, help="Print neither progress nor the table."),
)
input_flag = optional("--input", "-i", "source", type=_path, help="File with one input per line.  [default: bundled ones]")
folder_flag = optional("--input", "-i", "source", type=_path, help="Image, or folder of images.  [default: generated images]")
references_flag = optional(
    "--references", type=_path, help="File with the expected result of each line.  [default: the last column of a .tsv input]"
)
top_k = optional("--top-k", type=click.IntRange(min=1), help="Results for each input.  [default: the server's]")

# Flags of single tasks.
TASK_FLAGS: Mapping[str, Callable[[Any], Any]] = {
    "translate": several(
        input_flag,
        references_flag,
        options.languages,
        measured_options,
        option("--stream/--no-stream", default=False, help="Stream, and also measure times between tokens."),
    ),
    "generate": several(
        input_flag,
        generation_options,
        optional("--max-tokens", type=click.IntRange(min=1), help="Generated tokens at most.  [default: the model's]"),
        option("--stream/--no-stream", default=True, help="Stream, and also measure times between tokens."),
    ),
    "score": several(input_flag, options.languages),
    "fill": several(
        input_flag,
        references_flag,
        top_k,
        optional("--targets", default="", metavar="WORD,...", help="Rank only these words."),
        option("--mask-token", default="[MASK]", help="Replaces one word of each text that has no mask."),
    ),
    "embed": several(
        input_flag,
        options.pooling,
        optional("--normalize/--no-normalize", help="Scale vectors to length 1.  [default: as the model was trained]"),
    ),
    "classify-text": several(input_flag, references_flag, top_k),
    "classify-tokens": several(input_flag, options.aggregation),
    "answer": several(
        input_flag,
        references_flag,
        top_k,
        optional("--max-answer-length", type=click.IntRange(min=1), help="Longest answer, in tokens.  [default: the server's]"),
    ),
    "classify": several(folder_flag, top_k),
    "infer": several(
        optional("--input", "-i", "source", type=_path, help="JSON file as for perf_analyzer.  [default: random tensors]"),
        optional(
            "--shape",
            "shapes",
            type=shape,
            multiple=True,
            metavar="NAME:SIZES",
            help="Shape of an input with open sizes, without the batch: pixel_values:3,224,224; repeatable.",
        ),
    ),
}
