"""How translations are decoded, as the command line says it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import click
from click.types import StringParamType

from triptych_cli.common import options
from triptych_cli.common.options import Function

AUTO, OFF = "auto", "off"


@dataclass(frozen=True)
class Decoding:
    """Options with the names of the wire; None or empty leaves the choice to the model."""

    beam_size: int | None = None
    patience: float | None = None
    num_hypotheses: int | None = None
    length_penalty: float | None = None
    coverage_penalty: float | None = None
    repetition_penalty: float | None = None
    no_repeat_ngram_size: int | None = None
    suppress_sequences: tuple[str, ...] = ()
    min_length: int | None = None
    max_length: int | None = None
    target_prefix: str = ""  # of every text
    sampling_temperature: float | None = None
    sampling_topk: int | None = None
    sampling_topp: float | None = None
    seed: int | None = None
    return_scores: bool = False
    return_alignment: bool = False
    split_sentences: str | None = None

    def values(self, texts: int) -> dict[str, Any]:
        """Members of either DecodingOptions, for so many texts; `split_sentences` is left to who knows its type."""
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "split_sentences"}
        prefixes = (self.target_prefix,) * texts if self.target_prefix else ()
        return {**values, "target_prefix": prefixes}


class Lines(StringParamType):
    """Text; an environment variable has one on each line."""

    envvar_list_splitter = "\n"


def _number(name: str, kind: Any, help_text: str) -> Callable[[Function], Function]:
    """The server checks the ranges, which may be its own."""
    return options.option(name, type=kind, default=None, help=f"{help_text}  [default: the model's]", show_default=False)


_NATURAL = click.IntRange(0, 2**32 - 1)  # what the wire can carry
beam_size = _number("--beam-size", _NATURAL, "Hypotheses kept at each step; 1 is greedy search.")
length_penalty = _number("--length-penalty", float, "Rank by log-probability / length^this.")
# Those that say how one translation is found.
search_options = options.several(
    beam_size,
    _number("--patience", float, "End the search with beam size x this finished hypotheses."),
    length_penalty,
    _number("--coverage-penalty", float, "Weight of the penalty for what was not translated; 0 is off."),
    _number("--repetition-penalty", float, "Divides the scores of tokens that were there already; 1 is off."),
    _number("--no-repeat-ngram-size", _NATURAL, "No run of so many tokens occurs twice; 0 is off."),
    options.option(
        "--suppress",
        "suppress_sequences",
        type=Lines(),
        multiple=True,
        metavar="TEXT",
        help="Text that must not occur; may be given several times. The variable has one on each line.",
        show_default=False,
    ),
    _number("--min-length", _NATURAL, "Fewest tokens of a sentence's translation."),
    _number("--max-length", click.IntRange(1, 2**32 - 1), "Most tokens of a sentence's translation."),
    options.option(
        "--target-prefix", default="", metavar="TEXT", help="Every translation starts with this.", show_default=False
    ),
    options.option(
        "--sampling-temperature",
        type=float,
        default=None,
        help="Divides the logits while sampling.  [default: 1]",
        show_default=False,
    ),
    options.option(
        "--sampling-topk",
        type=_NATURAL,
        default=None,
        help="Draw from the k likeliest tokens; 0: from all.  [default: no sampling]",
        show_default=False,
    ),
    options.option(
        "--sampling-topp",
        type=float,
        default=None,
        help="Draw from the likeliest tokens that together have this probability.  [default: no sampling]",
        show_default=False,
    ),
    options.option(
        "--seed",
        type=click.IntRange(0, 2**64 - 1),
        default=None,
        help="Of samples.  [default: a random one]",
        show_default=False,
    ),
)
# Every option of Decoding.
decoding_options = options.several(
    search_options,
    _number("--num-hypotheses", _NATURAL, "Translations of each text; needs --json."),
    options.option("--return-scores", is_flag=True, help="Give each translation its score; needs --json.", show_default=False),
    options.option(
        "--return-alignment",
        is_flag=True,
        help="Give each translation its attention over the source tokens; needs --json.",
        show_default=False,
    ),
    options.option(
        "--split-sentences",
        type=click.Choice([AUTO, OFF]),
        default=None,
        help="Translate the sentences of a text apart, or not.  [default: the model's]",
        show_default=False,
    ),
)


def take_decoding(asked: dict[str, Any]) -> Decoding:
    """Those of the command line's values; the others stay."""
    return Decoding(**{field.name: asked.pop(field.name) for field in fields(Decoding) if field.name in asked})


def check_json(decoding: Decoding, as_json: bool) -> None:
    """Refuse what only JSON can show.

    Raises:
        click.UsageError: names it.
    """
    wanted: Mapping[str, bool] = {
        "--num-hypotheses": (decoding.num_hypotheses or 1) > 1,
        "--return-scores": decoding.return_scores,
        "--return-alignment": decoding.return_alignment,
    }
    for name, is_wanted in wanted.items():
        if is_wanted and not as_json:
            raise click.UsageError(f"{name} needs --json")
