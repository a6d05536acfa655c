"""Options of every verb that translates."""

from triptych_cli import options
from triptych_cli.options import Function


def language_options(function: Function) -> Function:
    """--source-language and --target-language."""
    for side, example in (("target", "de"), ("source", "en")):
        text = f"Such as {example}.  [default: the model's only one]"
        function = options.option(f"--{side}-language", default="", help=text, show_default=False)(function)
    return function
