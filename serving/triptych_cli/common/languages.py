"""Languages on the command line."""

from collections.abc import Sequence

from triptych_cli.common import options
from triptych_cli.common.options import Function

SHOWN = 4  # languages of a longer list


def language_options(function: Function) -> Function:
    """--source-language and --target-language, of every verb that translates."""
    for side, example in (("target", "de"), ("source", "en")):
        text = f"Such as {example} or a code of the model's own.  [default: the model's only one]"
        function = options.option(f"--{side}-language", default="", help=text, show_default=False)(function)
    return function


def pair_text(sources: Sequence[str], targets: Sequence[str]) -> str:
    """A model's languages, such as "en to de"; of many only the first."""
    if not sources and not targets:
        return ""
    if len(sources) > SHOWN and tuple(sources) == tuple(targets):
        return f"among {_side(sources)}"
    return f"{_side(sources)} to {_side(targets)}"


def _side(codes: Sequence[str]) -> str:
    if len(codes) <= SHOWN:
        return "/".join(codes)
    return f"{len(codes)} languages: {', '.join(codes[:SHOWN])}, ..."
