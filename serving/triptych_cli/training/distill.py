"""`triptych distill`: translate a corpus with a teacher, to train a smaller model."""

import os
from pathlib import Path
from typing import Any

import click

from triptych_cli.common.errors import needs, one_line
from triptych_cli.common.options import STDOUT


def _shard(text: str) -> tuple[int, int]:
    try:
        index, count = map(int, text.split("/"))
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is not of the form 0/4") from error
    return index, count


def _not_stdout(_context: click.Context, _parameter: click.Parameter, value: Path) -> Path:
    if value in STDOUT:
        raise click.BadParameter(f"{value}: finished parts are kept beside the output; name a file")
    return value


@click.command(name="distill")
@click.argument("teacher", type=click.Path(path_type=Path, file_okay=False))
@click.option("--pairs", multiple=True, help="Sentence pairs, as for `triptych train translation`. Repeatable.")
@click.option(
    "--text",
    "texts",
    multiple=True,
    help="Sentences without translations, one per line; the first column of a file with tabs. Repeatable.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    callback=_not_stdout,
    help="source<TAB>target file to write; .gz and .xz are compressed.",
)
@click.option(
    "--original/--no-original", default=True, show_default=True, help="Write each original pair before its translation."
)
@click.option("--target-language", default="", help="Target language of a teacher with several.")
@click.option("--beam-size", default=4, show_default=True)
@click.option("--length-penalty", default=1.0, show_default=True)
@click.option(
    "--pick",
    type=click.Choice(["best", "closest"]),
    default="best",
    show_default=True,
    help="The teacher's best translation, or the one of its beam that is closest to the target of the pair.",
)
@click.option("--max-length", default=256, show_default=True, help="Longest translation, in tokens.")
@click.option(
    "--batch-tokens", default=16_000, show_default=True, help="Size of a batch: rows x longest source; a beam is several rows."
)
@click.option(
    "--precision",
    type=click.Choice(["auto", "fp32", "bf16", "fp16"]),
    default="auto",
    show_default=True,
    help="auto: bf16 on a GPU.",
)
@click.option("--chunk", default=4096, show_default=True, help="Number of sentences to save at a time.")
@click.option(
    "--shard",
    default=None,
    metavar="I/N",
    help="Part for this process, 0/N to N-1/N.  [default: all, or one per process of torchrun]",
)
def command(
    teacher: Path,
    out: Path,
    shard: str | None,
    beam_size: int,
    length_penalty: float,
    max_length: int,
    batch_tokens: int,
    **values: Any,
) -> None:
    """Translate the sources of a corpus with TEACHER, a checkpoint of `triptych train translation`.

    Finished parts are kept beside the output: the same command continues from there.
    """
    needs("triptych_training.tasks.distillation", "train")
    import torch

    from triptych_training.decoding.batch_beam import SearchOptions
    from triptych_training.errors import TrainingError
    from triptych_training.tasks.distillation import DistillationRecipe, Shard, distill

    rank, processes = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    local = int(os.environ.get("LOCAL_RANK", "0"))
    with one_line(TrainingError, ValueError):
        part = Shard(*_shard(shard)) if shard else Shard(rank, processes)
        hypotheses = beam_size if values["pick"] == "closest" else 1
        search = SearchOptions(beam_size, hypotheses, length_penalty, max_length, batch_tokens)
        recipe = DistillationRecipe(search=search, **values)
        device = torch.device("cuda", local % torch.cuda.device_count()) if torch.cuda.is_available() else torch.device("cpu")
        report = distill(teacher, recipe, out, part, device, lambda line: click.echo(line, err=True))
    if report is not None:
        click.echo(
            f"{report.pairs:,} pairs, {report.translations:,} of them translations; left out: {report.unusable:,} that did not "
            f"end, {report.known:,} that were there already, {report.too_long:,} sources the teacher cannot take",
            err=True,
        )
        click.echo(out)
