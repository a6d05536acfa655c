"""`triptych complete-image`: generate the lower part of an image."""

import sys
from pathlib import Path
from typing import Any

import click

from triptych.decoding import DecodingOptions
from triptych_cli.common import options
from triptych_cli.common.connection import connect
from triptych_cli.common.decoding import FLAGS, NEEDS_JSON, NOT_GENERATED, take_decoding
from triptych_cli.common.errors import needs
from triptych_cli.generation.generate import SERVER_SECONDS
from triptych_embedded.request import ModelChoice

CAPABILITY = "image-generation"
STDIN = "-"
NOT_OF_IMAGES = (*NOT_GENERATED, *NEEDS_JSON, "suppress_sequences", "min_length")


@click.command(name="complete-image")
@click.argument("image")
@click.option(
    "-o", "--output", type=options.NEW_FILE, required=True, help="PNG file to write; with -n 2, NAME-1.png and NAME-2.png."
)
@options.model_choice
@options.optional(
    "--rows",
    type=click.IntRange(min=0),
    help="Rows of pixels of IMAGE, scaled to the model's width, to keep.  [default: all, or half of the model's height]",
)
@options.optional("-n", "--n", type=click.IntRange(min=1), help="Completions: samples, or hypotheses of a beam search.")
@options.several(*(flag for name, flag in FLAGS.items() if name not in NOT_OF_IMAGES))
def command(image: str, output: Path, n: int | None, rows: int | None, **values: Any) -> None:
    """Keep the upper part of IMAGE, a JPEG, PNG or WebP file, and generate the rest; - is standard input.

    Without --server (or TRIPTYCH_SERVER) the engine runs in this process.
    """
    choice = options.take_choice(values)
    try:
        data = sys.stdin.buffer.read() if image == STDIN else Path(image).read_bytes()
    except OSError as error:
        raise click.ClickException(f"{image}: cannot be read: {error.strerror}") from error
    found = _complete(choice, data, n, rows, take_decoding(values))
    for number, content in enumerate(found, 1):
        target = output if len(found) == 1 else output.with_stem(f"{output.stem}-{number}")
        target.write_bytes(content)


def _complete(choice: ModelChoice, data: bytes, n: int | None, rows: int | None, decoding: DecodingOptions) -> list[bytes]:
    """Return the completions, PNG files, from a server if the command is for one, else of a model in this process."""
    if options.asks_server():
        with connect(choice.server, timeout_seconds=SERVER_SECONDS) as client:
            completion = client.complete_image(data, model=choice.model or None, n=n, rows=rows, options=decoding)
            return [each.image for each in completion.images]
    needs("triptych_serving.repository.registry", "serve")
    from triptych_embedded.models import backend_errors, open_registry
    from triptych_serving.models.generation.options import GenerationRequest
    from triptych_serving.repository.registry import ModelSelector

    with open_registry(choice, CAPABILITY) as registry, backend_errors():
        generator = registry.find_generator(ModelSelector(choice.model), CAPABILITY)
        [generation] = generator.generate(GenerationRequest(images=[data], rows=rows, n=n, options=decoding))
        return [each.image for each in generation.choices]
