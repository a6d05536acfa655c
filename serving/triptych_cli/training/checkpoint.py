"""`triptych checkpoint`: pack, join and score checkpoints."""

import json
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from triptych_cli.common import options
from triptych_cli.common.errors import needs, one_line
from triptych_cli.common.lines import check_stdout, open_writer

if TYPE_CHECKING:
    from triptych_text.translation_scores import TranslationScores
    from triptych_training.evaluation.bleu import Score


@click.group(name="checkpoint", cls=options.Group)
def command() -> None:
    """Pack checkpoints into small files, join them again, score them."""


@command.command(name="pack")
@click.argument("checkpoint", type=click.Path(path_type=Path, file_okay=False))
@click.argument("out", type=click.Path(path_type=Path))
@click.option(
    "--precision", type=click.Choice(["fp16", "bf16", "fp32"]), default="fp16", show_default=True, help="Precision of matrices."
)
@click.option("--piece-mib", default=15.0, show_default=True, help="Largest file to write.")
def pack(checkpoint: Path, out: Path, precision: str, piece_mib: float) -> None:
    """Write CHECKPOINT as OUT.01, OUT.02, ... and their list OUT.json, and print the names."""
    needs("triptych_training.checkpoints.packing", "train")
    from triptych_training.checkpoints.packing import pack_checkpoint
    from triptych_training.errors import TrainingError

    with one_line(TrainingError):
        for path in pack_checkpoint(checkpoint, out, precision, piece_mib):
            click.echo(path)


@command.command(name="join")
@click.argument("pack", metavar="OUT.json", type=click.Path(path_type=Path, dir_okay=False))
@click.argument("checkpoint", type=click.Path(path_type=Path, file_okay=False))
def join(pack: Path, checkpoint: Path) -> None:
    """Join the pieces that OUT.json lists into the folder CHECKPOINT."""
    needs("triptych_training.checkpoints.packing", "train")
    from triptych_training.checkpoints.packing import join_checkpoint
    from triptych_training.errors import TrainingError

    with one_line(TrainingError):
        click.echo(join_checkpoint(pack, checkpoint))


@command.command(name="score")
@click.argument("checkpoint", type=click.Path(path_type=Path, file_okay=False))
@click.argument("pairs", nargs=-1, required=True)
@click.option("--target-language", default="", help="Target language of a model with several.")
@click.option("--beam-size", default=4, show_default=True)
@click.option("--length-penalty", default=1.0, show_default=True)
@click.option("--out", type=options.NEW_FILE, help="Write the translations to this file, one per line.")
@options.as_json
def score(
    checkpoint: Path,
    pairs: tuple[str, ...],
    target_language: str,
    beam_size: int,
    length_penalty: float,
    out: Path | None,
    as_json: bool,
) -> None:
    """Translate the source side of PAIRS in PyTorch, before any export, and print BLEU in both conventions and chrF."""
    needs("triptych_training.evaluation.checkpoint_score", "train")
    from triptych_training.decoding.batch_beam import SearchOptions
    from triptych_training.errors import TrainingError
    from triptych_training.evaluation.checkpoint_score import score_checkpoint

    check_stdout()
    # The file is opened before the work, and replaced after it: it may be one of PAIRS.
    opened = open_writer(None if out in options.STDOUT else out) if out else nullcontext()
    with one_line(TrainingError, ValueError), opened as output:
        search = SearchOptions(beam_size, 1, length_penalty)
        texts, scores, literature = score_checkpoint(checkpoint, pairs, search, target_language)
        if output is not None:
            output.writelines(f"{' '.join(text.split())}\n" for text in texts)
    show_scores(scores, literature, as_json)


def show_scores(scores: "TranslationScores", literature: "Score | None", as_json: bool, seconds: float | None = None) -> None:
    """Print BLEU and chrF, and optionally BLEU of the literature."""
    if as_json:
        result: dict[str, object] = {"bleu": round(scores.bleu, 2), "signature": scores.signature}
        result |= {"sentences": scores.sentences, "chrf": round(scores.chrf, 2), "chrf_signature": scores.chrf_signature}
        if literature is not None:
            result |= {"literature": round(literature.bleu, 2), "literature_signature": literature.signature}
        click.echo(json.dumps(result if seconds is None else {**result, "seconds": round(seconds, 2)}))
        return
    time = "" if seconds is None else f" in {seconds:.1f} s"
    click.echo(f"BLEU {scores.bleu:.2f}  ({scores.sentences:,} sentences{time}; {scores.signature})")
    if literature is not None:
        click.echo(f"BLEU {literature.bleu:.2f}  ({literature.signature})")
    click.echo(f"chrF {scores.chrf:.2f}  ({scores.chrf_signature})")
