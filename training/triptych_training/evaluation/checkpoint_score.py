"""BLEU of a checkpoint in PyTorch, before any export."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from triptych_text.translation_scores import TranslationScores, score_translations
from triptych_training.checkpoints.translation import load_checkpoint
from triptych_training.data.corpus import read_pairs
from triptych_training.data.languages import one_language, undirected_files
from triptych_training.decoding.batch_beam import SearchOptions, search
from triptych_training.errors import CorpusError
from triptych_training.evaluation.bleu import Score, literature_score


def score_checkpoint(
    folder: Path, paths: Sequence[str], options: SearchOptions, target_language: str
) -> tuple[list[str], TranslationScores, Score | None]:
    """Translate the source side of sentence pairs in float32, on the GPU if there is one, and score the result.

    `max_length` of the options is reduced to the model's positions; `target_language` is required if the model has several.

    Returns:
        The translations in the order of the pairs, their scores, and that of the literature (None for languages without rules).

    Raises:
        TrainingError: checkpoint or pairs cannot be used.
    """
    target_language = one_language(paths, "target", target_language)
    checkpoint, pairs = load_checkpoint(folder), read_pairs(undirected_files(paths))
    checkpoint.check_source(one_language(paths, "source", ""))
    prefix, limit = checkpoint.prefix(target_language), checkpoint.model.config.max_positions
    ids = [[*prefix, *encoding.ids] for encoding in checkpoint.tokenizer.encode_batch([source for source, _ in pairs])]
    if (longest := max(map(len, ids))) > limit:
        raise CorpusError(f"{', '.join(paths)}: a source has {longest} tokens; the model takes at most {limit}")
    model = checkpoint.model.to("cuda" if torch.cuda.is_available() else "cpu")
    found = search(model, ids, replace(options, max_length=min(options.max_length, limit - 1)))
    outputs = checkpoint.tokenizer.decode_batch([hypotheses[0].tokens for hypotheses in found])
    references, language = [target for _, target in pairs], target_language or checkpoint.target_language
    scores = score_translations(outputs, references, language)
    return outputs, scores, literature_score(outputs, references, language)
