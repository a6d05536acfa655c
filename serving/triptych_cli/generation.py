"""`triptych generate`, `complete-image`, `generate-image`, `reconstruct-image` and `interpolate-images`."""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, TextIO

import click

from triptych.decoding import DecodingOptions
from triptych_cli.common import options
from triptych_cli.common.connection import connect, input_errors, model_arguments
from triptych_cli.common.decoding import GENERATED_FLAGS, NEEDS_JSON, TextLines, generation_options, take_decoding
from triptych_cli.common.engine import open_engine
from triptych_cli.common.errors import needs, one_line
from triptych_cli.common.lines import (
    check_pipe,
    decode,
    json_row,
    open_writer,
    read_binary,
    read_text,
    score_number,
    standard_input,
)
from triptych_embedded.request import InputError, ModelChoice

TEXT_GENERATION, IMAGE_GENERATION = "text-generation", "image-generation"
IMAGE_SAMPLING = "unconditional-image-generation"
STDIN = "-"
NOT_OF_IMAGES = (*NEEDS_JSON, "suppress_sequences", "min_length")
SERVER_SECONDS = 3_600.0  # deadline of one generation

Message = Mapping[str, str]
Prompt = str | Sequence[Message]
# Returns an iterator over pieces of the first choice, and over the result at the end; of the engine or of the client.
Generate = Callable[..., Iterator[Any]]


def _variables(_context: click.Context, _parameter: click.Parameter, given: Sequence[str]) -> dict[str, bool | float | str]:
    """Parse names and values: true, false, a number, or else a text."""
    found: dict[str, bool | float | str] = {}
    for each in given or ():
        name, sign, text = each.partition("=")
        if not (name and sign):
            raise click.BadParameter(f"{each!r} is not a name, = and a value")
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        found[name] = value if isinstance(value, bool | int | float) else text
    return found


@click.command(name="generate")
@click.argument("text", required=False)
@options.model_choice
@generation_options
@options.optional("--max-tokens", type=click.IntRange(min=1), help="Generated tokens at most.  [default: the model's]")
@options.optional(
    "-n", "--n", type=click.IntRange(min=1), help="Choices: samples, or hypotheses of a beam search; needs --json."
)
@options.optional("--stop", type=TextLines(), multiple=True, metavar="TEXT", help="Text that ends the generation; repeatable.")
@click.option("--echo", is_flag=True, help="Begin with the prompt.")
@click.option("--chat", is_flag=True, help="Answer TEXT as a message of a chat; without TEXT, each line of the input.")
@options.optional("--system", default="", metavar="TEXT", help="System message at the start of a chat.")
@options.optional(
    "--template-variable",
    "template_variables",
    type=TextLines(),
    multiple=True,
    callback=_variables,
    metavar="NAME=VALUE",
    help="Variable of the model's chat template, such as enable_thinking=false; repeatable.",
)
@options.optional("--json-schema", callback=options.text_of, metavar="FILE", help="Write JSON by this schema.")
@options.optional("--regex", default="", metavar="REGEX", help="Write a text that matches this regular expression.")
@click.option("--stream", is_flag=True, help="Show text while it is generated.")
@options.as_json
def generate(text: str | None, chat: bool, system: str, stream: bool, as_json: bool, **values: Any) -> None:
    """Continue TEXT, or without TEXT or with - that of a pipe, without its last newline.

    Without --server (or TRIPTYCH_SERVER) the engine runs in this process, on the embedded model.
    """
    choice = options.take_choice(values)
    if stream and as_json:
        raise click.UsageError("--stream shows text, not --json")
    if (values["n"] or 1) > 1 and not as_json:
        raise click.UsageError("--n needs --json")
    if system and not chat:
        raise click.UsageError("--system is for --chat")
    text = None if text == STDIN else text
    if text is None and not chat:
        check_pipe("nothing to read: give TEXT or a pipe")
        text = read_text(STDIN).removesuffix("\n")
    if values["template_variables"] and not chat:
        raise click.UsageError("--template-variable is for --chat")
    arguments = {"options": take_decoding(values), **values}
    with _open(choice) as run, open_writer() as output:
        if not chat:
            _show(run(text, **arguments), output, stream, as_json)
            return
        messages: list[Message] = [{"role": "system", "content": system}] if system else []
        for line in _read_chat() if text is None else [text]:
            messages.append({"role": "user", "content": line.rstrip("\r\n")})
            answer = _show(run(messages, **arguments), output, stream or (text is None and not as_json), as_json)
            messages.append({"role": "assistant", "content": answer})


def _read_chat() -> Iterator[str]:
    """Yield the lines of standard input. Raises click.ClickException: one is not UTF-8."""
    for number, raw in enumerate(standard_input(), start=1):
        yield decode(raw, f"standard input:{number}")


@contextmanager
def _open(choice: ModelChoice) -> Iterator[Generate]:
    """Connect to a server if the command is for one, else load a model in this process."""
    if options.asks_server():
        with connect(choice.server, timeout_seconds=SERVER_SECONDS) as client:

            def ask_server(prompt: Prompt, **arguments: Any) -> Iterator[Any]:
                with one_line(ValueError), client.generate_stream(prompt, **model_arguments(choice), **arguments) as pieces:
                    yield from pieces
                    yield pieces.generation

            yield ask_server
        return
    with open_engine(choice, TEXT_GENERATION) as (registry, selector):
        from triptych_serving.models.generation.chat import ChatMessage
        from triptych_serving.models.generation.options import GenerationRequest

        def ask_engine(prompt: Prompt, options: DecodingOptions, **arguments: Any) -> Iterator[Any]:
            given: dict[str, Any] = (
                {"prompts": [prompt]}
                if isinstance(prompt, str)
                else {"messages": [ChatMessage(each["role"], each["content"]) for each in prompt]}
            )
            yield from registry.find_generator(selector).stream(GenerationRequest(options=options, **given, **arguments))

        yield ask_engine


def _show(pieces: Iterator[Any], output: TextIO, stream: bool, as_json: bool) -> str:
    """Print a result, with `stream` in pieces; return the text of the first choice."""
    result = None
    with closing(pieces):  # type: ignore[type-var]
        for piece in pieces:
            if not isinstance(piece, str):
                result = piece
            elif stream:
                output.write(piece)
                output.flush()
    assert result is not None, "a stream ends with its result"
    if as_json:
        output.write(json_row(choices=[_values(each) for each in result.choices], prompt_token_count=result.prompt_token_count))
    elif not stream:
        output.write(result.choices[0].text)
    output.write("\n")
    output.flush()
    return str(result.choices[0].text)


def _values(choice: Any) -> dict[str, object]:
    values = {name: getattr(choice, name) for name in ("text", "finish_reason", "stop_sequence", "token_count")}
    return values if choice.score is None else {**values, "score": score_number(choice.score)}


@click.command(name="complete-image")
@click.argument("image")
@options.picture_file("-o", "--output", required=True, help="PNG file to write; with -n 2, NAME-1.png and NAME-2.png.")
@options.model_choice
@options.optional(
    "--rows",
    type=click.IntRange(min=0),
    help="Rows of pixels of IMAGE, scaled to the model's width, to keep.  [default: all, or half of the model's height]",
)
@options.optional("-n", "--n", type=click.IntRange(min=1), help="Completions: samples, or hypotheses of a beam search.")
@options.several(*(flag for name, flag in GENERATED_FLAGS.items() if name not in NOT_OF_IMAGES))
def complete_image(image: str, output: Path, n: int | None, rows: int | None, **values: Any) -> None:
    """Keep the upper part of IMAGE, a JPEG, PNG or WebP file, and generate the rest; - is standard input.

    Without --server (or TRIPTYCH_SERVER) the engine runs in this process.
    """
    choice = options.take_choice(values)
    found = _ask("complete_image", choice, image, task=IMAGE_GENERATION, n=n, rows=rows, options=take_decoding(values))
    for number, content in enumerate(found, 1):
        target = output if len(found) == 1 else output.with_stem(f"{output.stem}-{number}")
        options.write_file(target, content)


_grid = options.picture_file("-o", "--output", required=True, help="PNG file to write; several images in a grid.")


@click.command(name="generate-image")
@_grid
@options.model_choice
@options.option("--count", type=click.IntRange(min=1), default=1, help="Number of images.")
@options.optional("--seed", type=click.IntRange(min=0), help="The same seed gives the same images.  [default: a random one]")
def generate_image(output: Path, count: int, seed: int | None, **values: Any) -> None:
    """Generate images of random latents with an autoencoder.

    Without --server (or TRIPTYCH_SERVER) the engine runs in this process.
    """
    found = _ask("generate_images", options.take_choice(values), count=count, seed=seed)
    _write_grid(output, found, columns=math.ceil(math.sqrt(count)))


@click.command(name="reconstruct-image")
@click.argument("image")
@_grid
@options.model_choice
def reconstruct_image(image: str, output: Path, **values: Any) -> None:
    """Encode IMAGE, a JPEG, PNG or WebP file, with an autoencoder and decode it again; - is standard input.

    Without --server (or TRIPTYCH_SERVER) the engine runs in this process.
    """
    _write_grid(output, _ask("reconstruct_image", options.take_choice(values), image), columns=1)


@click.command(name="interpolate-images")
@click.argument("first")
@click.argument("last")
@_grid
@options.model_choice
@options.option("--steps", type=click.IntRange(min=2), default=8, help="Number of images, both ends included.")
def interpolate_images(first: str, last: str, output: Path, steps: int, **values: Any) -> None:
    """Generate images between FIRST and LAST, JPEG, PNG or WebP files, with an autoencoder; they stand in a row.

    Without --server (or TRIPTYCH_SERVER) the engine runs in this process.
    """
    found = _ask("interpolate", options.take_choice(values), first, last, steps=steps)
    _write_grid(output, found, columns=steps)


def _ask(method: str, choice: ModelChoice, *names: str, task: str = IMAGE_SAMPLING, **fields: Any) -> list[bytes]:
    """Return images generated of those with these names, by a client's method if a server is asked, else in this process."""
    images = tuple(map(read_binary, names))
    try:
        if options.asks_server():
            with connect(choice.server, timeout_seconds=SERVER_SECONDS) as client, one_line(ValueError), input_errors("images"):
                answer = getattr(client, method)(*images, **model_arguments(choice), **fields)
                return [each.image for each in answer.images]
        return _run(choice, task, images, fields)
    except InputError as error:
        raise click.ClickException(f"{names[error.index]}: {error}") from error


def _run(choice: ModelChoice, task: str, images: tuple[bytes, ...], fields: dict[str, Any]) -> list[bytes]:
    """Run a model in this process."""
    with open_engine(choice, task) as (registry, selector):
        if task == IMAGE_GENERATION:
            from triptych_serving.models.generation.options import GenerationRequest

            [generation] = registry.find_generator(selector, task).generate(GenerationRequest(images=images, **fields))
            return [each.image for each in generation.choices]
        from triptych_serving.images.image_file import MAX_PIXELS
        from triptych_serving.models.image.autoencoder import LatentQuery

        model, query = registry.find_autoencoder(selector), LatentQuery(images, **fields)
        width, height = model.manifest.image.width, model.manifest.image.height
        if (pixels := query.rows * width * height) > MAX_PIXELS:  # of the picture, which must fit into memory
            made = f"{query.rows:,} images of {width} x {height} pixels are {pixels:,} pixels"
            raise click.ClickException(f"{query.field}: {made}, a picture has at most {MAX_PIXELS:,}; ask for fewer")
        return [each.image for each in model.run(query)]


def _write_grid(output: Path, files: Sequence[bytes], columns: int) -> None:
    """Write one image as it is, and several row by row into one."""
    if len(files) == 1:
        options.write_file(output, files[0])
        return
    needs("PIL", "serve")
    from PIL import Image

    pictures = [Image.open(BytesIO(file)) for file in files]
    width, height = pictures[0].size
    grid = Image.new("RGB", (columns * width, math.ceil(len(files) / columns) * height))
    for number, picture in enumerate(pictures):
        row, column = divmod(number, columns)
        grid.paste(picture, (column * width, row * height))
    grid.save(content := BytesIO(), "PNG")
    options.write_file(output, content.getvalue())
