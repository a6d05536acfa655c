"""Zero-shot image classifiers: CLIP's text encoder turns prompts for labels into the weights of a classifier.

Several templates per label are an ensemble as in Radford et al. 2021: the mean of their vectors, normalised again.
"""

import importlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from triptych_export.errors import SourceError
from triptych_export.huggingface.folder import Folder, one_line

CLIP_MODEL = "CLIPModel"
TEMPLATE = "This is a photo of {}."  # of transformers' pipeline zero-shot-image-classification
MOST_LABELS, MOST_CHARACTERS, MOST_TEMPLATES = 10_000, 200, 100
BATCH = 64


@dataclass(frozen=True)
class Prompts:
    """Labels, and the templates that make a prompt of each."""

    labels: Sequence[str]
    templates: Sequence[str]

    def describe(self) -> str:
        """Say in one line how labels became weights, for manifest and card."""
        return f"{len(self.labels)} labels, from the prompts {', '.join(map(repr, self.templates))}"


def read_prompts(path: Path | None, templates: Sequence[str] = ()) -> Prompts:
    """Read a file of labels, one a line.

    Raises:
        SourceError: there is no file, it is not UTF-8, or labels or templates are empty, repeated, too long or too many.
    """
    if path is None:
        raise SourceError(
            f"labels: missing; a {CLIP_MODEL} compares images with texts: add --labels FILE, with one label a line"
        )
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8-sig").rstrip().split("\n")]
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"labels: {path} cannot be read as UTF-8: {error}") from error
    if not 2 <= len(lines) <= MOST_LABELS:
        raise SourceError(f"labels: {path} has {len(lines)} lines, expected 2 to {MOST_LABELS}, one for each label")
    places = Counter(lines)
    for number, line in enumerate(lines, 1):
        if not line:
            raise SourceError(f"labels: {path}, line {number} is empty; remove it")
        if places[line] > 1:
            raise SourceError(f"labels: {path}, line {number}: {line!r:.80} is there {places[line]} times; keep one")
        if len(line) > MOST_CHARACTERS:
            raise SourceError(f"labels: {path}, line {number} has {len(line)} characters, the limit is {MOST_CHARACTERS}")
    chosen = tuple(templates) or (TEMPLATE,)
    if wrong := [template for template in chosen if template.count("{}") != 1]:
        raise SourceError(f"hypothesis_template: {wrong[0]!r:.80}, expected a text with one {{}}, the place of the label")
    if len(chosen) > MOST_TEMPLATES:
        raise SourceError(f"hypothesis_template: {len(chosen)} templates, the limit is {MOST_TEMPLATES}")
    return Prompts(lines, chosen)


def label_vectors(folder: Folder, prompts: Prompts) -> Tensor:
    """Compute the labels' vectors of length 1, `[labels, projection]`, with the checkpoint's classes of transformers.

    Raises:
        SourceError: transformers is not installed or cannot load the checkpoint, or a prompt is too long for it.
    """
    try:
        transformers = importlib.import_module("transformers")
        transformers.utils.logging.disable_progress_bar()
        model = getattr(transformers, CLIP_MODEL).from_pretrained(folder.path, local_files_only=True).float().eval()
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder.path, local_files_only=True)
    except Exception as error:  # whatever the library raises for a checkpoint that it cannot load
        fault = one_line(error)[:200]
        raise SourceError(
            f"{folder.path}: labels need the text encoder and tokenizer in transformers, which failed: {fault}"
        ) from error
    limit, total = model.config.text_config.max_position_embeddings, torch.zeros(())
    with torch.inference_mode():
        for template in prompts.templates:
            texts = [template.replace("{}", label) for label in prompts.labels]
            rows = tokenizer(texts)["input_ids"]
            longest, text = max((len(row), text) for row, text in zip(rows, texts, strict=True))
            if longest > limit:
                raise SourceError(f"labels: the prompt {text!r:.80} has {longest} tokens, the limit is {limit}; shorten it")
            batches = [{"input_ids": rows[at : at + BATCH]} for at in range(0, len(rows), BATCH)]
            parts = [tokenizer.pad(batch, return_tensors="pt") for batch in batches]
            features = [model.get_text_features(part["input_ids"], part["attention_mask"]).pooler_output for part in parts]
            total = total + functional.normalize(torch.cat(features), dim=-1)
    return functional.normalize(total, dim=-1).clone()
