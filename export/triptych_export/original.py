"""Comparison of a loaded checkpoint with the original model of transformers, where that is installed.

The exporter compares graphs with our modules in PyTorch; this compares those modules with the classes that the checkpoint was
saved by, on a few inputs, before anything is traced.
"""

import importlib
import io
import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from triptych_export.errors import ParityError
from triptych_export.generation_source import GenerationSource
from triptych_export.huggingface.adapters import MergedFolder
from triptych_export.huggingface.architectures.registry import Loaded
from triptych_export.huggingface.checkpoint.chat_inputs import Scored, read_scored_tokens, score_rows
from triptych_export.huggingface.folder import Folder, one_line
from triptych_export.onnx_files.checks import read_model
from triptych_export.onnx_files.decoder import ENCODED, LOGITS, SOURCE_MASK, STATES, decoder_inputs
from triptych_export.onnx_files.layout import OnnxFile
from triptych_export.onnx_files.trial import Arrays, try_run
from triptych_export.onnx_files.weights import weight_graphs
from triptych_export.parity.comparison import spread
from triptych_export.parity.generation import draw_prompts
from triptych_export.parity.image import generate_images
from triptych_export.parity.sentences import draw_sentences
from triptych_export.parity.text import RowForm, answer_in_torch, embed, random_rows
from triptych_export.translation_source import TranslationSource
from triptych_training.checkpoints.encoder import ImageCheckpoint, TextCheckpoint
from triptych_training.models.bert import BertForEmbedding, BertForPretraining, BertForSequenceClassification, BertModel
from triptych_training.models.image_gpt import ImageGpt
from triptych_training.models.vit import CosineClassifier

WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
INPUTS, TARGET_TOKENS, SEED = 8, 16, 21
TOLERANCE = 1e-3  # relative to the output's largest value if above 1; measured on small models: at most 7e-5
Compared = tuple[str, Tensor, Tensor]  # name, transformers' values, ours


def compare_with_original(folder: Folder, loaded: Loaded, allowed: bool = False) -> str:
    """Compare logits, or states of models without any, with those of transformers; returns a line for the model card.

    If `allowed`, a difference is reported there instead of failing.

    Raises:
        ParityError: an output differs by more than the tolerance.
    """
    if not any(map(folder.has, WEIGHTS)) and (graphs := weight_graphs(folder.path)):
        return _compare(folder, "the ONNX files", _onnx_outputs(graphs, loaded), allowed)
    try:
        transformers = importlib.import_module("transformers")
    except ImportError:
        return "not compared, transformers is not installed"
    library = f"{'peft with ' if isinstance(folder, MergedFolder) else ''}transformers {transformers.__version__}"
    try:
        theirs = _open(transformers, folder, loaded)
    except Exception as error:  # whatever the library raises for a checkpoint that it cannot load
        return f"not compared, {library} cannot load the checkpoint: {one_line(error)[:200]}"
    return _compare(folder, library, _outputs(theirs, loaded, read_scored_tokens(folder)), allowed)


def _compare(folder: Folder, library: str, outputs: Iterable[Compared], allowed: bool) -> str:
    count, largest = 0, 0.0
    with torch.inference_mode():
        for name, wanted, found in outputs:
            if wanted.isnan().any():
                raise ParityError(f"{folder.path}: {name} of {library} have NaN: the weights are damaged, save them again")
            fault = f"{found.shape} instead of {wanted.shape}" if wanted.shape != found.shape else ""
            if not fault:
                difference, limit = float((wanted - found).abs().max()), TOLERANCE * max(1.0, float(wanted.abs().max()))
                fault = "" if difference <= limit else f"by {difference:.3g}, the limit is {limit:.3g}"
                count, largest = count + 1, max(largest, difference)
            if fault and allowed:
                return f"{name} differ from {library}: {fault}"
            if fault:
                raise ParityError(
                    f"{folder.path}: {name} differ from those of {library}: {fault}. "
                    "To export all the same: --allow-different; the card records it"
                )
    return f"{count} outputs as in {library}, largest difference {largest:.2g}"


def _open(transformers: Any, folder: Folder, loaded: Loaded) -> Any:
    """Load the class that config.json names, or the bare encoder of sentence encoders; of an adapter, with its base model."""
    if isinstance(folder, MergedFolder):
        return folder.load_unmerged()
    usual = "AutoModelForImageClassification" if isinstance(loaded, ImageCheckpoint) else "AutoModelForCausalLM"
    name = "AutoModelForSeq2SeqLM" if isinstance(loaded, TranslationSource) else folder.architecture or usual
    if isinstance(loaded, TextCheckpoint) and isinstance(loaded.model, BertForEmbedding):
        name = "AutoModel"
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    # Not float() of the loaded model: positions that are computed while a half-precision checkpoint is loaded would be rounded.
    options: dict[str, Any] = {"dtype": torch.float32, "local_files_only": True}
    if folder.path.is_file():  # GGUF, of whose metadata transformers leaves out some, such as the positions of Gemma 3
        config = transformers.AutoConfig.for_model(**folder.config.whole)
        options |= {"config": config, "gguf_file": folder.path.name}
        with redirect_stderr(io.StringIO()):  # a bar of progress that cannot be turned off
            return getattr(transformers, name).from_pretrained(folder.path.parent, **options).eval()
    return getattr(transformers, name).from_pretrained(folder.path, **options).eval()


def _outputs(theirs: Any, loaded: Loaded, scored: Scored | None) -> Iterator[Compared]:
    if isinstance(loaded, TranslationSource):
        return _translation(theirs, loaded)
    if isinstance(loaded, GenerationSource):
        return (("logits", theirs(ids).logits, loaded.model(ids)) for ids in map(_row, draw_prompts(loaded, INPUTS)))
    if isinstance(loaded, TextCheckpoint):
        return _text(theirs, loaded, scored)
    return _images(theirs, loaded.model, loaded.model.config.image)


def _row(ids: Sequence[int]) -> Tensor:
    return torch.tensor([ids])


def _translation(theirs: Any, source: TranslationSource) -> Iterator[Compared]:
    """Compare the logits of random targets."""
    for ids, target in zip(*_sentences(source), strict=True):
        inputs, targets = torch.tensor([ids]), torch.tensor([target])
        yield "logits", theirs(input_ids=inputs, decoder_input_ids=targets).logits, source.model(inputs, targets)


def _onnx_outputs(graphs: Sequence[Path], loaded: Loaded) -> Iterator[Compared]:
    """Compare the logits of generative models with those of Optimum's files: a decoder's, and an encoder's."""
    if isinstance(loaded, GenerationSource):
        prompts = draw_prompts(loaded, INPUTS)
        for wanted, prompt in zip(_logits(graphs[0], prompts, [{}] * len(prompts)), prompts, strict=True):
            yield "logits", wanted, loaded.model(_row(prompt))
    if isinstance(loaded, TranslationSource):
        sources, targets = _sentences(loaded)
        encoder = OnnxFile(graphs[1], read_model(graphs[1]))
        encoded = try_run(encoder.path, [decoder_inputs(encoder.model, source) for source in sources], encoder.bytes)
        pairs = zip(encoded, sources, strict=True)
        memories = [{STATES: each[ENCODED], SOURCE_MASK: np.ones((1, len(ids)), np.int64)} for each, ids in pairs]
        for wanted, ids, target in zip(_logits(graphs[0], targets, memories), sources, targets, strict=True):
            yield "logits", wanted, loaded.model(_row(ids), _row(target))


def _logits(path: Path, targets: Sequence[Sequence[int]], more: Sequence[Arrays]) -> list[Tensor]:
    """Compute the logits `[1, targets, V]` of each target with a decoder's file; `more` are further inputs of each."""
    file = OnnxFile(path, read_model(path))
    feeds = [decoder_inputs(file.model, target, own) for target, own in zip(targets, more, strict=True)]
    return [torch.from_numpy(outputs[LOGITS][:1]) for outputs in try_run(file.path, feeds, file.bytes)]


def _sentences(source: TranslationSource) -> tuple[Sequence[Sequence[int]], Sequence[Sequence[int]]]:
    """Draw sources, and a random target for each."""
    config, dice = source.model.config, random.Random(SEED)
    ordinary = [token for token in range(config.vocabulary_size) if token not in (config.pad_id, config.bos_id, config.eos_id)]
    sources = draw_sentences(source, INPUTS)[0]
    return sources, [[config.bos_id, *dice.choices(ordinary, k=TARGET_TOKENS)] for _ in sources]


def _text(theirs: Any, checkpoint: TextCheckpoint, scored: Scored | None) -> Iterator[Compared]:
    """Compare logits of texts up to the longest; of masked tokens, their log-probabilities; of `scored` tokens, their score."""
    model = checkpoint.model
    has_segments = getattr(theirs.config, "type_vocab_size", 0) > 1
    rows = random_rows(checkpoint.tokenizer, RowForm.of(model), checkpoint.pairs and has_segments)
    for row in [*spread(rows[:-1], INPUTS), rows[-1]]:
        segments = {"token_type_ids": torch.tensor([row.segments])} if has_segments else {}
        inputs = torch.tensor([row.ids])
        answer = theirs(input_ids=inputs, attention_mask=torch.ones_like(inputs), **segments)
        ours = {name: torch.from_numpy(values) for name, values in answer_in_torch(model, row).items()}
        if isinstance(model, BertForPretraining):
            logits = answer[0] if model.next_sentence is None else answer.prediction_logits
            yield "log-probabilities", torch.log_softmax(logits[0, list(row.places)], -1), ours["log_probabilities"]
        if "next_sentence" in ours:
            yield "next sentence", torch.softmax(answer.seq_relationship_logits[0], -1).flip(0), ours["next_sentence"]
        elif "start" in ours:
            yield "logits", torch.cat((answer.start_logits[0], answer.end_logits[0])), torch.cat((ours["start"], ours["end"]))
        elif "logits" in ours:
            yield "logits", _labels(model, inputs, answer, scored), ours["logits"]
        elif "probabilities" in ours:
            yield "probabilities", torch.softmax(answer.logits[0], -1), ours["probabilities"]
        elif isinstance(model, BertForEmbedding):
            wanted = embed(model, answer[0][0])
            yield "vectors", torch.stack((wanted["mean"], wanted["cls"])), torch.stack((ours["mean"], ours["cls"]))


def _labels(model: BertModel, inputs: Tensor, answer: Any, scored: Scored | None) -> Tensor:
    """Return the logits of labels in transformers' answer, or what our layers make of its states."""
    if scored:
        return score_rows(scored)(answer.logits[0, -1])
    if isinstance(model, BertForSequenceClassification) and "logits" not in answer:
        return model.logits(inputs, answer[0])[0]
    logits: Tensor = answer.logits[0]
    return logits


def _images(theirs: Any, model: nn.Module, size: tuple[int, int]) -> Iterator[Compared]:
    """Compare the logits of generated images."""
    classifier = getattr(model, "classifier", None)
    for pixels in generate_images(INPUTS, *size):
        image = torch.from_numpy(pixels).permute(2, 0, 1)[None].float() / 127.5 - 1
        given = {"input_ids": model.closeness(image).argmax(-1)} if isinstance(model, ImageGpt) else {"pixel_values": image}
        if isinstance(classifier, CosineClassifier):  # its weights are of transformers' text encoder
            features = functional.normalize(theirs.get_image_features(image).pooler_output, dim=-1)
            yield "logits", functional.linear(features, classifier.weight), model(image)
        else:
            yield "logits", theirs(**given).logits, model(image)
