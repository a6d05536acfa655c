"""`triptych export`: export a checkpoint as a bundle."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import click

from triptych.signals import handled_signals
from triptych_cli.common.errors import SIGNALLED, needs, one_line
from triptych_cli.common.options import refuse_given, text_of


@click.command(name="export")
@click.argument("checkpoint")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="Model repository to write into.")
@click.option("--name", default="", help="Name of the model.  [default: SOURCE-TARGET, the architecture or the task]")
@click.option("--version", type=click.IntRange(min=1), default=None, help="Version to write.  [default: the next free number]")
@click.option(
    "--precision",
    "precisions",
    type=click.Choice(["fp32", "int8", "int8-caches", "int8-shortlist", "int8-weights", "int4", "int4-int8-caches", "fp16"]),
    multiple=True,
    help="Precisions to include; the first is the default, or the next if that is fp16, which is for CUDA. Repeatable.  "
    "[default: int8, fp32; translation and text generation also int8-caches, with --shortlist int8-shortlist; "
    "embeddings: int8-weights, fp32; recurrent models, ELMo, tables of vectors and autoencoders have fp32 only]",
)
@click.option(
    "--shortlist",
    multiple=True,
    metavar="PAIRS",
    help="Sentence pairs, best those of the training, to learn which target tokens a source may need, and which heads of "
    "attention give the alignment. Repeatable.",
)
@click.option(
    "--source-language",
    default="",
    help="The only source language to offer, of a checkpoint with many; or the language of one that names none.",
)
@click.option("--target-language", default="", help="The same for translations.")
@click.option(
    "--base-model",
    default="",
    metavar="FOLDER_OR_NAME",
    help="Base model of a PEFT adapter.  [default: the one that its adapter_config.json names]",
)
@click.option("--revision", default="", help="Commit, tag or branch of a model on the hub.  [default: the newest commit]")
@click.option(
    "--valid",
    multiple=True,
    help="Sentence pairs, texts, images or inputs (.npz) for the parity check.  [default: the checkpoint's own]",
)
@click.option(
    "--labels",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Labels of a zero-shot image classifier (CLIP), one a line.",
)
@click.option(
    "--hypothesis-template",
    "templates",
    multiple=True,
    metavar="TEXT",
    help="Prompt of each label, which replaces {}; several are averaged. Repeatable.  [default: This is a photo of {}.]",
)
@click.option(
    "--lower-capitals",
    is_flag=True,
    help="Give a translation model sentences in capitals in lower case, and write their translations in capitals.",
)
@click.option(
    "--translation-languages",
    default="",
    metavar="CODES",
    callback=lambda _context, _option, value: tuple(filter(None, value.split(","))),
    help="Make a translation model of a decoder-only one that chats, for these languages, such as en,de,pt-BR=Portuguese.",
)
@click.option(
    "--translation-prompt",
    default="",
    metavar="TEXT",
    help="What it is asked, with {source}, {target} or {target_code}, {text}; with special tokens, without the chat template.",
)
@click.option(
    "--ignore-config",
    multiple=True,
    metavar="KEY",
    help="Ignore an unsupported member of a Hugging Face config.json or similar file; the model card records it. Repeatable.",
)
@click.option(
    "--config-from",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder with config.json and tokenizer or image processor, for an ONNX file that has none beside it.",
)
@click.option(
    "--allow-inexact",
    is_flag=True,
    help="Ship precisions that agree too little with PyTorch, or that too few samples tested; the model card records it.",
)
@click.option(
    "--allow-different",
    is_flag=True,
    help="Export a Hugging Face checkpoint even if it computes something else than in transformers; the model card records it.",
)
@click.option(
    "--allow-untrained",
    is_flag=True,
    help="Export a translation model even if it gives too few different texts for a meaningful comparison.",
)
@click.option("--notes", callback=text_of, metavar="FILE", help="Markdown for the model card: data, licence, use.")
@click.option(
    "--for",
    "target",
    type=click.Choice(["server", "web"]),
    default="server",
    show_default=True,
    help="web: CHECKPOINT is a bundle, and OUT becomes a page that runs it in the browser.",
)
def command(
    checkpoint: str,
    out: Path,
    version: int | None,
    precisions: tuple[str, ...],
    target: str,
    **values: Any,
) -> None:
    """Export CHECKPOINT as a bundle into the repository OUT.

    CHECKPOINT is a folder that `triptych train` wrote; or one of Hugging Face's libraries, with config.json, weights and
    tokenizer, or a model's name on their hub: encoder-decoders (MarianMT, NLLB, T5 and others), encoders (BERT, XLM-R,
    ModernBERT, sentence-transformers and others), image classifiers (ViT, Swin, DINOv2, timm's and others), decoders (Llama,
    Qwen3, Gemma 3 and others), Model2Vec, or a PEFT adapter (LoRA) of one of these. An unknown type is an error that lists all.
    The fp32 graphs must give the same results as PyTorch, or nothing is written.

    CHECKPOINT may also be a translation model of CTranslate2 or Argos Translate, a GGUF file, a file of word vectors (word2vec,
    GloVe), an ONNX file, or a folder with model.onnx or onnx/model*.onnx: an encoder if config.json and a tokenizer or image
    processor are there, else a model of plain tensors, whose graphs are kept as they are; or a bundle of an older release, of
    which a copy with attention graphs is written.
    """
    needs("triptych_export.exporter", "export")
    from triptych_export.errors import ExportError
    from triptych_export.exporter import ExportOptions, export
    from triptych_serving.errors import ServingError
    from triptych_training.errors import TrainingError

    if target == "web":
        refuse_given({*values, "version", "precisions"}, "is not for --for web, which takes a finished bundle")
        from triptych_export.web_page import export_web

        with one_line(ExportError, ServingError):
            export_web(Path(checkpoint), out)
        click.echo(f"run npm install in {out}, then: python -m http.server --bind localhost --directory {out}", err=True)
        click.echo(out)
        return
    options = ExportOptions(out, version=version or 0, precisions=precisions or None, **values)
    with _ended_by_signals(), one_line(ExportError, TrainingError, ServingError):
        folder = export(checkpoint, options, lambda line: click.echo(line, err=True))
    click.echo(folder)


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Raise an exception at SIGINT and SIGTERM, so that scratch folders are removed before the process ends."""
    came: list[int] = []

    def end(number: int) -> NoReturn:
        came.append(number)
        raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(SIGNALLED + number)

    with handled_signals(end):  # one that timeout(1) sends twice must not interrupt the removal
        try:
            yield
        except Exception:
            if came:  # torch has replaced the exception by one of its own
                end(came[0])
            raise
