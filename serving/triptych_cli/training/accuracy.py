"""Measure the accuracy of encoder models with the engine that serves them."""

from collections.abc import Sequence
from typing import Any

import click
import numpy as np
import torch

from triptych.decoding import DecodingOptions
from triptych_cli.common.engine import open_engine
from triptych_embedded.models import backend_errors
from triptych_embedded.request import BackendError, InputError, ModelChoice
from triptych_serving.bundle.manifest import FILL_MASK, IMAGE_CLASSIFICATION, IMAGE_SAMPLING, TEXT_GENERATION
from triptych_serving.bundle.manifest.image import LATENTS, LOG_SCALES, LOG_VARIANCES, PIXELS
from triptych_serving.encoding.text_runner import LOG_PROBABILITIES, SCORES, TOKENS, TextRow
from triptych_serving.images.decode import decode_image
from triptych_serving.models.generation.options import GenerationRequest
from triptych_serving.models.text.text_model import TextModel
from triptych_serving.scheduling.engine import Engine, run_rows
from triptych_serving.scheduling.request import Item
from triptych_training.data.documents import encode_documents, read_documents, read_texts
from triptych_training.data.images import LabelledImage, describe_others, hold_out, read_folders
from triptych_training.data.pretraining_rows import SPECIAL_PAIR, Masker, cut_chunks, make_rows, whole_segments
from triptych_training.data.tokenizer import load_tokenizer
from triptych_training.data.wordpiece import ordinary_ids
from triptych_training.evaluation.metrics import bound_metrics, masked_metrics, next_token_metrics, ranked_metrics
from triptych_training.models.vae import Gaussian, Logistic, log_evidence, log_weights
from triptych_training.tasks.pretraining import VALID_SHARE, draw_valid

CALL_TEXTS = 64  # prompts per call
CALL_IMAGES = 64  # whole files, which are in memory together
CALL_ROWS = 512  # rows per call of the engine
ROW_TOKENS, DOCUMENT_TOKENS = 128, 256  # usual lengths, of models that read as many
EVIDENCE_SEED = 1  # of the samples


def masked_accuracy(paths: Sequence[str], choice: ModelChoice, sequence_length: int | None) -> dict[str, Any]:
    """Return top-1 and top-5 accuracy and perplexity of masked tokens, the same ones as in the validation of a training.

    Raises:
        TrainingError: a text file cannot be used.
        BackendError: the model cannot be used.
    """
    with open_engine(choice, FILL_MASK) as (registry, selector):
        model = registry.find_text(selector, FILL_MASK)
        limit = model.manifest.limits.max_tokens
        sequence_length = min(ROW_TOKENS, limit) if sequence_length is None else sequence_length
        if not SPECIAL_PAIR < sequence_length <= limit:
            raise BackendError(
                f"sequence-length: {sequence_length} is outside {SPECIAL_PAIR + 1} to {limit}, the model's limit"
            )
        first, fifth, surprise, rows = 0, 0, 0.0, _masked_rows(paths, model, sequence_length)
        for start in range(0, len(rows), CALL_ROWS):
            items = [Item(row, len(row.ids)) for row in rows[start : start + CALL_ROWS]]
            run_rows(model.engine, items)
            for item in items:
                hits = item.result[TOKENS] == item.payload.targets[:, None]
                first, fifth = first + int(hits[:, 0].sum()), fifth + int(hits.sum())
                surprise -= float(np.trace(item.result[LOG_PROBABILITIES]))
        if not rows:
            raise BackendError(f"texts: {', '.join(paths)} have no tokens; name other files")
        found = masked_metrics(surprise, first, fifth, sum(len(row.places) for row in rows))
        figures = {
            "top1": round(found["top1"], 4),
            "top5": round(found["top5"], 4),
            "perplexity": round(found["perplexity"], 2),
        }
        sizes = {"masked_tokens": found["masks"], "vocabulary": model.tokenizer.vocabulary}
        return {"model": model.name, "precision": model.precision, **figures, **sizes}


def _masked_rows(paths: Sequence[str], model: TextModel, sequence_length: int) -> list[TextRow]:
    tokens, tokenizer = model.manifest.tokens, load_tokenizer(model.tokenizer.path)
    documents = encode_documents(tokenizer, read_documents(paths))
    masker = Masker(VALID_SHARE, tokens.mask, ordinary_ids(tokenizer))
    rows = []
    for index, span in enumerate(whole_segments(cut_chunks(documents, sequence_length - SPECIAL_PAIR)).spans):
        row = make_rows(documents, span[None], tokens.cls or 0, tokens.sep or 0, pad_id=0)
        ids, segments, text = row.ids[0], row.segments[0], np.flatnonzero(row.text[0])
        labels = ids.copy()
        places = masker.mask(ids, text, draw_valid(index))
        wanted = (SCORES, TOKENS, LOG_PROBABILITIES)
        rows.append(TextRow(ids.astype(np.int32), segments.astype(np.int32), wanted, places, 5, labels[places]))
    return rows


def text_perplexity(paths: Sequence[str], choice: ModelChoice, sequence_length: int | None) -> dict[str, Any]:
    """Return the perplexity of documents, each read from its beginning up to `sequence_length` tokens.

    Raises:
        TrainingError: a text file cannot be used.
        BackendError: the model cannot be used.
    """
    with open_engine(choice, TEXT_GENERATION) as (registry, selector):
        model = registry.find_generator(selector)
        longest = model.context - 1 - model.tokenizer.num_special_tokens_to_add(is_pair=False)  # one token is generated
        sequence_length = min(DOCUMENT_TOKENS, longest) if sequence_length is None else sequence_length
        if not 1 < sequence_length <= longest:
            raise BackendError(f"sequence-length: {sequence_length} is outside 2 to {longest}, the model's limit")
        documents = list(read_texts(paths))
        encodings = model.tokenizer.encode_batch(documents, add_special_tokens=False)
        texts = [
            text
            for document, encoding in zip(documents, encodings, strict=True)
            if len(encoding.ids) > 1 and (text := document[: _end_of(encoding.offsets, sequence_length)])
        ]
        surprise, tokens = 0.0, 0
        for start in range(0, len(texts), CALL_TEXTS):
            request = GenerationRequest(
                prompts=texts[start : start + CALL_TEXTS],
                options=DecodingOptions(sampling_topk=1),
                max_tokens=1,
                top_logprobs=0,
                echo=True,
            )
            for result in model.generate(request):
                prompt = result.choices[0].log_probabilities[: result.prompt_token_count]
                found = [each.log_probability for each in prompt if each.log_probability is not None]  # not of the first
                surprise, tokens = surprise - sum(found), tokens + len(found)
        if not tokens:
            raise BackendError(f"texts: no document of {', '.join(paths)} has at least 2 tokens; name other files")
        perplexity = round(next_token_metrics(surprise, tokens)["perplexity"], 3)
        return {"model": model.name, "precision": model.precision, "perplexity": perplexity, "tokens": tokens}


def _end_of(offsets: Sequence[tuple[int, int]], tokens: int) -> int:
    """Return where the first tokens end in the text, without a last character that has more tokens."""
    following = offsets[tokens][0] if tokens < len(offsets) else offsets[-1][1]
    return min(offsets[:tokens][-1][1], following)


def image_accuracy(folders: Sequence[str], choice: ModelChoice, held_out: float) -> dict[str, Any]:
    """Return top-1 and top-5 accuracy on folders of images.

    Raises:
        TrainingError: a folder cannot be used.
        BackendError: the model cannot be used.
    """
    with open_engine(choice, IMAGE_CLASSIFICATION) as (registry, selector):
        model = registry.find_image(selector)
        pictures, names = _read_pictures(folders, held_out)
        if unknown := sorted(set(names) - set(model.labels)):
            raise BackendError(f"{', '.join(unknown)} are not labels of {model.name}, which has {', '.join(model.labels)}")
        first, fifth = 0, 0
        for start in range(0, len(pictures), CALL_IMAGES):
            chosen = pictures[start : start + CALL_IMAGES]
            try:
                with backend_errors():
                    results = model.classify([picture.path.read_bytes() for picture in chosen])
            except InputError as error:
                raise BackendError(f"{chosen[error.index].path}: {error}") from error
            for result, picture in zip(results, chosen, strict=True):
                ranked = [label.label for label in result.labels]
                first, fifth = first + (ranked[0] == names[picture.label]), fifth + (names[picture.label] in ranked)
        found = ranked_metrics(first, fifth, len(pictures))
        return {"model": model.name, "precision": model.precision, **{name: round(value, 4) for name, value in found.items()}}


def image_evidence(folders: Sequence[str], choice: ModelChoice, held_out: float, samples: int) -> dict[str, Any]:
    """Return an autoencoder's bound on the evidence of images, and the evidence from `samples` samples of each image's latents.

    Raises:
        TrainingError: a folder cannot be used.
        BackendError: the model cannot be used.
    """
    with open_engine(choice, IMAGE_SAMPLING) as (registry, selector):
        model = registry.find_autoencoder(selector)
        spec = model.manifest.image
        pictures, _ = _read_pictures(folders, held_out)
        torch.manual_seed(EVIDENCE_SEED)
        bound, evidence = 0.0, 0.0
        for start in range(0, len(pictures), CALL_ROWS):
            files = (picture.path for picture in pictures[start : start + CALL_ROWS])
            pixels = np.stack([decode_image(path.read_bytes(), spec, str(path)).pixels for path in files])
            q = Gaussian(*_outputs(model.encoder, model.items({PIXELS: pixels}, LATENTS, LOG_VARIANCES)))

            def decode(z: torch.Tensor) -> Logistic:
                return Logistic(*_outputs(model.decoder, model.items({LATENTS: z.numpy()}, PIXELS, LOG_SCALES)))

            weights = log_weights(torch.from_numpy(pixels), q, decode, samples)
            bound, evidence = bound + float(weights.mean(0).sum()), evidence + float(log_evidence(weights).sum())
    found: dict[str, Any] = {"model": model.name, "precision": model.precision, "images": len(pictures), "samples": samples}
    for kind, nats in (("bound", -bound), ("evidence", -evidence)):
        metrics = bound_metrics(nats, len(pictures), 3 * spec.height * spec.width)
        found |= {f"{kind}_{name}": round(metrics[name], 4) for name in ("nats", "nats_per_dimension", "bits_per_dimension")}
    return found


def _read_pictures(folders: Sequence[str], held_out: float) -> tuple[list[LabelledImage], list[str]]:
    """List the images to evaluate, all or those that a training would hold out, and the names of their classes.

    Says on standard error how many other files are ignored.
    """
    pictures, names = read_folders(folders, least=1)
    if ignored := describe_others(folders):
        click.echo(ignored, err=True)
    return (hold_out(pictures, held_out)[1] if held_out else pictures), names


def _outputs(engine: Engine[Item], items: Sequence[Item]) -> list[torch.Tensor]:
    """Run rows; return each output of all of them."""
    run_rows(engine, items)
    return [torch.from_numpy(np.concatenate([item.result[name] for item in items])) for name in items[0].payload.outputs]
