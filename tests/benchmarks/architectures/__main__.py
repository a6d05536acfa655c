"""Architectures side by side: the same data, CPU time and number of parameters; a table and a page of plots.

    python -m tests.benchmarks.architectures WORK --train PAIRS --valid PAIRS --minutes 10
    python -m tests.benchmarks.architectures WORK --images FOLDER --image-counts 500,5000,45000 --image-minutes 1

Translation: an RNN without attention, one with attention (Bahdanau et al. 2015) and a Transformer. Pictures, in folders by
class: ResNet, ViT, Swin and PVT, by the number of training images. Everything runs on one thread; times are CPU times, so that
other processes hardly matter. Results are kept in WORK, for one set of options: the same command continues, and processes with
`--only` share the models. WORK/comparison.md and WORK/comparison.png show the models that the command named.
"""

import os
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported

import click
import torch

from .images import ARCHITECTURES, ImageOptions, compare_images
from .page import write_page
from .tables import write_tables
from .translation import SHAPES, TranslationOptions, compare_translation

SENTENCE = "A man in a blue shirt is standing on a ladder and cleaning a window."


@click.command()
@click.argument("work", type=click.Path(path_type=Path))
@click.option("--train", multiple=True, help="Sentence pairs, as for `triptych train translation`. Repeatable.")
@click.option("--valid", multiple=True, help="Sentence pairs to translate. Repeatable.")
@click.option("--languages", nargs=2, default=("en", "de"), show_default=True)
@click.option("--minutes", default=10.0, show_default=True, help="CPU time for each translation model.")
@click.option("--parameters", default=1_500_000, show_default=True, help="Of each translation model, about.")
@click.option("--vocabulary", default=4_000, show_default=True)
@click.option("--batch-tokens", default=1_500, show_default=True)
@click.option("--learning-rate", default=4e-3, show_default=True, help="Of Muon.")
@click.option("--sentence", default=SENTENCE, help="Whose alignment is drawn.")
@click.option("--images", type=click.Path(path_type=Path), default=None, help="Folder of <class>/<image> files.")
@click.option("--image-counts", default="500,5000,45000", show_default=True, help="Training images.")
@click.option("--image-test", default=2_000, show_default=True, help="Held-out images.")
@click.option("--image-minutes", default=1.0, show_default=True, help="CPU time for each model of images.")
@click.option("--image-parameters", default=250_000, show_default=True, help="Of each model of images, about.")
@click.option("--only", type=click.Choice([*SHAPES, *ARCHITECTURES]), multiple=True, help="Train only this one. Repeatable.")
def main(work: Path, only: tuple[str, ...], images: Path | None, **given: Any) -> None:
    torch.set_num_threads(1)
    translated, pictures = [], []
    if given["train"]:
        names = [name for name in SHAPES if not only or name in only]
        chosen = {name: given[name] for name in TranslationOptions.__dataclass_fields__}
        translated = compare_translation(TranslationOptions(**chosen), work / "translation", names, click.echo)
    if images:
        names = [name for name in ARCHITECTURES if not only or name in only]
        counts = tuple(int(count) for count in given["image_counts"].split(","))
        options = ImageOptions(images, counts, given["image_test"], given["image_minutes"], given["image_parameters"])
        pictures = compare_images(options, work / "images", names, click.echo)
    click.echo(write_tables(work / "comparison.md", translated, pictures))
    write_page(work / "comparison.png", translated, pictures)


if __name__ == "__main__":
    main()
