"""The flags of the decoding options, generated from their description in `triptych.decoding`."""

import math
from collections.abc import Callable, Mapping
from dataclasses import Field, fields
from typing import Any

import click
from click.types import StringParamType

from triptych.decoding import Bounds, DecodingOptions, SplitSentences
from triptych_cli.common.options import Function, is_given, optional, several

LARGEST = 2**32 - 1  # that the wire carries, unless an option has a limit of its own
# What the command line says differently: one prefix for all texts, other defaults, and words that suit generated texts too.
HELP = {
    "suppress_sequences": "Text that must not occur in the result; repeatable. The variable has one per line.",
    "min_length": "Minimum number of tokens in the translation of a sentence, or in a generated text.",
    "target_prefix": "Start every translation with this text.",
    "sampling_temperature": "Divides the logits before sampling.",
    "num_hypotheses": "Translations returned for each text, best first; needs --json.",
    "return_scores": "Return the score of each translation; needs --json.",
    "return_alignment": "Return the attention of each translation over the source tokens; needs --json.",
}
DEFAULTS = {
    "sampling_temperature": "1",
    "seed": "random",
    **dict.fromkeys(("sampling_topk", "sampling_topp", "sampling_minp"), "no sampling"),
    **dict.fromkeys(("presence_penalty", "frequency_penalty"), "0"),
}
# Of generated texts and images: a model may sample by default.
GENERATED_DEFAULTS = {
    **{name: DEFAULTS[name] for name in ("seed", "presence_penalty", "frequency_penalty")},
    "sampling_temperature": "the model's, 1 with --sampling-topk, --sampling-topp or --sampling-minp",
}
NOT_GENERATED = ("coverage_penalty", "target_prefix", "split_sentences", "max_length")  # not for models that continue texts
NEEDS_JSON = ("num_hypotheses", "return_scores", "return_alignment")


class TextLines(StringParamType):
    """Texts; an environment variable has one per line."""

    envvar_list_splitter = "\n"


def _flag(
    option: "Field[Any]", defaults: Mapping[str, str] = DEFAULTS, shows_results: bool = True
) -> Callable[[Function], Function]:
    name, kind = f"--{option.name.replace('_', '-')}", option.metadata["kind"]
    text: str = HELP.get(option.name, option.metadata["help"])
    text = text if shows_results else text.replace("; needs --json", "")
    if kind is bool:
        return optional(name, is_flag=True, default=False, help=text)
    if option.name == "suppress_sequences":
        return optional("--suppress", option.name, type=TextLines(), multiple=True, metavar="TEXT", help=text)
    if kind is str:
        return optional(name, default="", metavar="TEXT", help=text)
    default = defaults.get(option.name, "the model's")
    return optional(name, type=_type(kind, option.metadata["bounds"]), help=f"{text}  [default: {default}]")


def _type(kind: type, bounds: Bounds | None) -> Any:
    """Integers are checked here; the ranges of other numbers by the engine or the server, which may have its own."""
    if kind is SplitSentences:
        return click.Choice([choice.value for choice in SplitSentences])
    if kind is not int:
        return kind
    assert bounds is not None, "every integer has bounds"
    return click.IntRange(int(bounds.minimum), LARGEST if math.isinf(bounds.maximum) else int(bounds.maximum))


FLAGS = {option.name: _flag(option) for option in fields(DecodingOptions)}
GENERATED_FLAGS = {
    option.name: _flag(option, GENERATED_DEFAULTS) for option in fields(DecodingOptions) if option.name not in NOT_GENERATED
}
beam_size, length_penalty = FLAGS["beam_size"], FLAGS["length_penalty"]
decoding_options = several(*FLAGS.values())
measured_options = several(*(_flag(option, shows_results=False) for option in fields(DecodingOptions)))
# The options of document jobs: these split texts themselves and need one translation of each sentence.
search_options = several(*(flag for name, flag in FLAGS.items() if name not in (*NEEDS_JSON, "split_sentences")))
generation_options = several(*(flag for name, flag in GENERATED_FLAGS.items() if name not in NEEDS_JSON))


def take_decoding(values: dict[str, Any]) -> DecodingOptions:
    """Remove the decoding options from the values of a command and return them."""
    chosen = {name: values.pop(name) for name in FLAGS if name in values}
    for name in ("return_scores", "return_alignment"):
        chosen[name] = chosen.get(name) or None
    if split := chosen.get("split_sentences"):
        chosen["split_sentences"] = SplitSentences(split)
    prefix = chosen.pop("target_prefix", "")
    return DecodingOptions(**chosen, target_prefix=(prefix,) if prefix else ())


def check_json(decoding: DecodingOptions, as_json: bool) -> None:
    """Reject options whose results only JSON can show. Raises click.UsageError: names the option."""
    for name in NEEDS_JSON:
        if int(getattr(decoding, name) or 0) > (name == "num_hypotheses") and not as_json:
            shown = f"--{name.replace('_', '-')}" if is_given(name) else f"TRIPTYCH_{name.upper()}"
            raise click.UsageError(f"{shown} needs --json")
