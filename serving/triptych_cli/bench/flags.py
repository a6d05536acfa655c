"""Flags of `triptych bench`."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from triptych_cli.common import options
from triptych_cli.common.decoding import decoding_options
from triptych_cli.common.languages import language_options

SCENARIOS = ("closed-loop", "single-stream", "multi-stream", "server", "offline")
PROTOCOLS = ("triptych", "oip")
MOST_VALUES = 1_000  # of a list
MOST_CALLERS = 10_000
MOST_RATE = 1_000_000
UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
DURATION = re.compile(r"(\d+(?:\.\d+)?) ?(us|ms|s)")
SHAPE = re.compile(r"([^:\s]+):(\d+(?:,\d+)*)")


def duration(value: str) -> float:
    """A time with its unit, such as 200ms, in seconds."""
    match = DURATION.fullmatch(value.strip())
    if match is None or not float(match[1]):
        raise click.BadParameter(f"{value!r} is no time with a unit, such as 200ms or 1.5s")
    return float(match[1]) * UNITS[match[2]]


def counts(value: str) -> Sequence[int]:
    """Numbers, 1,2,4, or a range as perf_analyzer has it, START:END or START:END:STEP, the end included."""
    try:
        numbers = _range(value) if ":" in value else tuple(int(part) for part in value.split(","))
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is neither a list such as 1,2,4 nor a range such as 1:16:2") from error
    if not 1 <= len(numbers) <= MOST_VALUES or not all(1 <= number <= MOST_CALLERS for number in numbers):
        raise click.BadParameter(f"{value!r}: it takes up to {MOST_VALUES} numbers from 1 to {MOST_CALLERS:,}")
    return numbers


def _range(value: str) -> Sequence[int]:
    """Of two or three numbers."""
    start, end, *step = map(int, value.split(":"))
    if len(step) > 1:
        raise ValueError("more than three numbers")
    return range(start, end + 1, *step)


def rates(value: str) -> tuple[float, ...]:
    """Requests a second, 50 or 50,100,200."""
    try:
        found = tuple(float(part) for part in value.split(","))
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is no list of rates such as 50,100") from error
    if not all(0 < rate <= MOST_RATE for rate in found):
        raise click.BadParameter(f"{value!r}: rates are above 0 and at most {MOST_RATE:,}")
    return found


def shape(value: str) -> tuple[str, tuple[int, ...]]:
    """A tensor's name and shape, such as pixel_values:3,224,224."""
    match = SHAPE.fullmatch(value)
    if match is None:
        raise click.BadParameter(f"{value!r} is no name with a shape, such as pixel_values:3,224,224")
    return match[1], tuple(int(size) for size in match[2].split(","))


def _none(name: str, *more: str, **settings: Any) -> Callable[[options.Function], options.Function]:
    """No default of click's own; the help says what there is instead."""
    return options.option(name, *more, default=None, show_default=False, **settings)


_path = click.Path(path_type=Path)
_seconds = click.FloatRange(min=0.01, max=86_400)
server_flags = options.several(
    options.models,
    options.model,
    options.option("--model-version", default="", help="Of the model.  [default: the server's]", show_default=False),
    options.option(
        "--server",
        default="",
        metavar="HOST:PORT",
        help="Measure this one.  [default: one that is started here]",
        show_default=False,
    ),
    options.connection,
    options.running,
    options.option("--protocol", type=click.Choice(PROTOCOLS), default="triptych", help="Triptych's own, or Open Inference."),
    options.option(
        "--serve-flags",
        default="",
        metavar="FLAGS",
        show_default=False,
        help='For the server that is started without --server, such as "--slots 64 --workers 1".',
    ),
    _none("--pid", type=click.IntRange(min=1), help="Watch CPU and memory of this process.  [default: of the started server]"),
    options.option(
        "--metrics-url",
        default="",
        metavar="URL",
        show_default=False,
        help="Read CPU, memory and counters from this Prometheus page, http://host:8002/metrics.",
    ),
)
load_flags = options.several(
    options.option("--scenario", type=click.Choice(SCENARIOS), default="closed-loop", help="How requests come."),
    _none(
        "--concurrency",
        type=counts,
        metavar="N,...",
        help="Requests at once, of closed-loop: 1,2,4 or 1:16:2.  [default: 1,2,4,8]",
    ),
    _none(
        "--rate",
        type=rates,
        metavar="RATE,...",
        help="Requests a second, of server: 50 or 50,100.  [default: search the highest]",
    ),
    _none("--latency-limit", type=duration, metavar="TIME", help="Such as 200ms: of p99 in a search, and of goodput."),
    _none(
        "--batch-size",
        type=click.IntRange(1, 65_536),
        help="Inputs of a request.  [default: 1; multi-stream 8; offline 64, images 16]",
    ),
    options.option("--measure-secs", type=_seconds, default=5.0, help="Of a window; three in a row must agree."),
    options.option("--warm-up-secs", type=click.FloatRange(0, 86_400), default=2.0, help="Under load, before a run counts."),
    options.option("--max-windows", type=click.IntRange(3, 10_000), default=10, help="Of a closed loop that does not settle."),
    options.option("--stability-percent", type=click.FloatRange(0.1, 100), default=10.0, help="How well windows must agree."),
    options.option(
        "--resolution-percent", type=click.FloatRange(0.1, 50), default=3.0, help="How exactly the highest rate is searched."
    ),
    _none("--timeout-secs", type=_seconds, help="A request may take so long.  [default: 60; offline 3600]"),
    options.option("--random-seed", type=click.IntRange(0, 2**31 - 1), default=1, help="Of arrivals and of the inputs' order."),
)
report_flags = options.several(
    _none("--json", "json_file", type=_path, help="Write the report here, for `triptych bench compare`; - is standard output."),
    _none("--csv", "csv_file", type=_path, help="Write a table with perf_analyzer's columns here."),
    _none("--html", "html_file", type=_path, help="Write one self-contained page with plots here."),
    options.option("--quiet/--no-quiet", default=False, help="Neither progress nor the table."),
)
input_flag = _none("--input", "-i", "source", type=_path, help="File with an input a line.  [default: bundled ones]")
folder_flag = _none("--input", "-i", "source", type=_path, help="Image, or folder with images.  [default: made-up images]")
references_flag = _none(
    "--references",
    type=_path,
    help="File with what should come back for each line.  [default: behind the tabs of a .tsv input]",
)
top_k = _none("--top-k", type=click.IntRange(min=1), help="Answers to each input.  [default: the server's]")
nothing = options.several()

# Those that a task has beside the others.
OF_TASK: Mapping[str, Callable[[Any], Any]] = {
    "translate": options.several(
        input_flag,
        references_flag,
        language_options,
        decoding_options,
        options.option("--stream/--no-stream", default=False, help="Streamed: with time to first token and between tokens."),
    ),
    "score": options.several(input_flag, language_options),
    "fill": options.several(
        input_flag,
        references_flag,
        top_k,
        options.option("--targets", default="", metavar="WORD,...", help="Rank these words alone.", show_default=False),
        options.option("--mask-token", default="[MASK]", help="Stands for one word of each text that has none."),
    ),
    "embed": options.several(
        input_flag,
        _none("--pooling", type=click.Choice(["mean", "cls"]), help="[default: as the model was trained]"),
        _none("--normalize/--no-normalize", help="Scale vectors to length 1.  [default: as the model was trained]"),
    ),
    "classify-text": options.several(input_flag, references_flag, top_k),
    "classify-tokens": options.several(
        input_flag,
        options.option("--aggregation", type=click.Choice(["simple", "none"]), default="simple", help="Of tokens to entities."),
    ),
    "answer": options.several(
        input_flag,
        references_flag,
        top_k,
        _none("--max-answer-length", type=click.IntRange(min=1), help="Tokens.  [default: the server's]"),
    ),
    "classify": options.several(folder_flag, top_k),
    "infer": options.several(
        _none("--input", "-i", "source", type=_path, help="JSON file as perf_analyzer reads it.  [default: random tensors]"),
        options.option(
            "--shape",
            "shapes",
            type=shape,
            multiple=True,
            metavar="NAME:SIZES",
            show_default=False,
            help="Of an input that leaves sizes open, without the batch's: pixel_values:3,224,224; may be repeated.",
        ),
    ),
}
