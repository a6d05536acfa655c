"""Training of translation models: sentence pairs in, an encoder-decoder out."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from lightning_fabric import Fabric
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

from triptych_text.translation_scores import score_translations
from triptych_training.checkpoints.translation import Checkpoint, save_checkpoint
from triptych_training.data.batches import Example, Indices, decoder_inputs, example_sizes, pad, plan_batches
from triptych_training.data.corpus import Pair, iterate_pairs
from triptych_training.data.languages import DirectedFile, Direction, ModelLanguages, find_languages, language_token
from triptych_training.data.pair_arrays import PairArrays, open_pairs, write_pairs
from triptych_training.data.tokenizer import SPECIAL_TOKENS, load_tokenizer, train_tokenizer
from triptych_training.decoding.greedy import greedy
from triptych_training.errors import RecipeError
from triptych_training.evaluation.metrics import merge, share, total
from triptych_training.loop.fabric import make_fabric
from triptych_training.loop.recipe import TranslationRecipe
from triptych_training.loop.run_folder import RunFolder
from triptych_training.loop.trainer import Trainer
from triptych_training.models.rnn import RnnConfig, TranslationConfig, TranslationModel, make_translation_model

ENCODED_AT_ONCE = 5_000  # pairs; an encoding takes a hundred times the memory of its ids
SAMPLE_PAIRS = 500  # validation pairs stored with the final checkpoint


@dataclass(frozen=True)
class EncodedPair:
    """Sentence pair as text and as ids."""

    direction: Direction
    pair: Pair
    example: Example


@dataclass(frozen=True)
class Corpus:
    """Encoded sentence pairs for training and validation."""

    train: PairArrays
    valid: Sequence[EncodedPair]
    languages: ModelLanguages


def train_translation(recipe: TranslationRecipe, shape: TranslationConfig, out: Path, resume: bool = False) -> Path:
    """Train a translation model in the run folder `out`, or resume its training there; returns the final checkpoint folder.

    The `vocabulary_size` of `shape` is replaced by the tokenizer's.

    Raises:
        TrainingError: data, options or checkpoints cannot be used.
    """
    fabric = make_fabric(recipe)
    folder = RunFolder(out, recipe, "rnn" if isinstance(shape, RnnConfig) else "transformer", shape, resume)
    tokenizer, corpus = _prepare(fabric, recipe, shape, folder)
    shape = replace(shape, vocabulary_size=tokenizer.get_vocab_size())
    return Trainer(fabric, recipe, folder, TranslationTask(recipe, shape, tokenizer, corpus)).run()


def sequence_loss(
    model: TranslationModel, smoothing: float, source: Tensor, inputs: Tensor, labels: Tensor, positions: Tensor
) -> Tensor:
    """Label-smoothed cross-entropy (Szegedy et al. 2016), summed over the target tokens, in nats.

    `source` is `[B, S]`, `inputs` and `labels` are `[B, T]`. Only `positions` `[tokens]`, the flattened ones of labels that are
    not padding, are projected to the vocabulary.
    """
    logits = model.projection(model.hidden(source, inputs).flatten(0, 1)[positions])  # [tokens, V]
    return functional.cross_entropy(logits.float(), labels.flatten()[positions], label_smoothing=smoothing, reduction="sum")


def sequence_batch(source: Tensor, labels: Tensor, config: TranslationConfig) -> tuple[Tensor, ...]:
    """Return the tensors for `sequence_loss` of padded sources and targets."""
    positions = (labels != config.pad_id).flatten().nonzero()[:, 0]
    return source, decoder_inputs(labels, config.pad_id, config.bos_id), labels, positions


class TranslationTask:
    """Teacher forcing on sentence pairs; a unit is a target token."""

    unit = "tokens"
    headline = "bleu"
    labels: Sequence[str] = ()

    def __init__(self, recipe: TranslationRecipe, shape: TranslationConfig, tokenizer: Tokenizer, corpus: Corpus) -> None:
        self.recipe, self.tokenizer, self.corpus = recipe, tokenizer, corpus
        self.model = make_translation_model(shape)

    def describe(self) -> str:
        return f"{len(self.corpus.train):,} pairs, vocabulary of {self.model.config.vocabulary_size:,}"

    def plan(self, epoch: int) -> list[Indices]:
        return plan_batches(self.corpus.train.sizes, self.recipe.batch_tokens, f"{self.recipe.seed}/{epoch}")

    def weight(self, indices: Indices) -> int:
        return int(self.corpus.train.lengths[indices, 1].sum())

    def batch(self, indices: Indices, seed: int) -> tuple[Tensor, ...]:
        config, train = self.model.config, self.corpus.train
        return sequence_batch(train.side(0, indices, config.pad_id), train.side(1, indices, config.pad_id), config)

    def loss(self, *batch: Tensor) -> Tensor:
        return sequence_loss(self.model, self.recipe.label_smoothing, *batch)

    def validate(self) -> Mapping[str, float]:
        """Measure loss (nats per token), BLEU and chrF; of several directions also each one's, the first being their means."""
        directions = dict.fromkeys(each.direction for each in self.corpus.valid)
        found = {direction: self._measure(self._valid(direction)) for direction in directions}
        counts = {name: sum(each[name] for each in found.values()) for name in ("tokens", "pairs")}
        loss = sum(each["loss"] * each["tokens"] for each in found.values()) / counts["tokens"]
        means = {name: sum(each[name] for each in found.values()) / len(found) for name in ("bleu", "chrf")}
        several = found.items() if len(self.recipe.directions) > 1 else ()
        return {"loss": loss, **means, **counts, **{f"bleu_{'_'.join(pair)}": each["bleu"] for pair, each in several}}

    def _valid(self, direction: Direction) -> list[EncodedPair]:
        return [each for each in self.corpus.valid if each.direction == direction]

    def _measure(self, valid: Sequence[EncodedPair]) -> dict[str, float]:
        """Compute the loss, and the scores of greedy translations."""
        examples, config, loss, tokens = [each.example for each in valid], self.model.config, 0.0, 0
        device = self.model.projection.weight.device
        for indices in share(plan_batches(example_sizes(examples), self.recipe.batch_tokens, "0/0")):
            source = pad([examples[i].source for i in indices], config.pad_id)
            labels = pad([examples[i].target for i in indices], config.pad_id)
            batch = (tensor.to(device) for tensor in sequence_batch(source, labels, config))
            loss += float(sequence_loss(self.model, 0.0, *batch))
            tokens += sum(len(examples[i].target) for i in indices)
        mine = share(range(len(valid)))
        outputs = greedy(self.model, [examples[i].source for i in mine], min(config.max_positions - 1, 256))
        texts = merge(dict(zip(mine, self.tokenizer.decode_batch(outputs), strict=True)))
        scores = score_translations(texts, [each.pair[1] for each in valid], valid[0].direction[1])
        loss, count = total(loss, tokens)
        return {"loss": loss / count, "bleu": scores.bleu, "chrf": scores.chrf, "tokens": int(count), "pairs": len(valid)}

    def save(self, folder: Path, provenance: Mapping[str, Any], final: bool) -> None:
        first = self.recipe.directions[0]
        samples = [each.pair for each in self._valid(first)][:SAMPLE_PAIRS] if final else ()
        provenance = {**provenance, "training_pairs": len(self.corpus.train)}
        languages = self.corpus.languages
        save_checkpoint(Checkpoint(self.model, self.tokenizer, *first, provenance, samples, languages), folder)


def _prepare(
    fabric: Fabric, recipe: TranslationRecipe, shape: TranslationConfig, folder: RunFolder
) -> tuple[Tokenizer, Corpus]:
    valid_pairs = list(_read(recipe.valid_files))
    tokenizer = folder.prepare_tokenizer(fabric, lambda: _make_tokenizer(recipe))
    languages = find_languages(recipe.directions, tokenizer)
    limit = min(recipe.max_length, shape.max_positions, recipe.batch_tokens)
    digest = folder.digest(limit, recipe.directions)
    if fabric.is_global_zero and open_pairs(folder.pairs, digest) is None:
        examples = (each.example for each in _encode(tokenizer, languages, _read(recipe.train_files)))
        write_pairs(folder.pairs, examples, limit, tokenizer.get_vocab_size(), digest)
    fabric.barrier()
    train = open_pairs(folder.pairs, digest)
    if not train:
        name = (
            "max_length" if recipe.max_length == limit else "batch_tokens" if recipe.batch_tokens == limit else "max_positions"
        )
        raise RecipeError(f"{name}: no training pair has at most {limit} tokens; raise it, or split long pairs")
    encoded = _encode(tokenizer, languages, valid_pairs)
    valid = [each for each in encoded if each.example.size() <= shape.max_positions]
    if not any(each.direction == recipe.directions[0] for each in valid):
        raise RecipeError(f"max_positions: no validation pair has at most {shape.max_positions} tokens")
    if fabric.is_global_zero:
        folder.note("valid_pairs_left_out", len(valid_pairs) - len(valid), shape.max_positions)
        folder.note("pairs_left_out", train.left_out, limit)
    return tokenizer, Corpus(train, valid, languages)


def _read(files: Sequence[DirectedFile]) -> Iterator[tuple[Direction, Pair]]:
    return ((file.direction, pair) for file in files for pair in iterate_pairs([file.path]))


def _make_tokenizer(recipe: TranslationRecipe) -> Tokenizer:
    if known := recipe.known_tokenizer:
        tokenizer = load_tokenizer(Path(known))
        if recipe.tokenizer and [tokenizer.id_to_token(number) for number in range(3)] != SPECIAL_TOKENS[:3]:
            raise RecipeError(f"tokenizer: tokens 0, 1 and 2 of {known} are not {', '.join(SPECIAL_TOKENS[:3])}")
        find_languages(recipe.directions, tokenizer)  # raises an error if it lacks one
        return tokenizer
    targets = dict.fromkeys(target for _, target in recipe.directions) if len(recipe.directions) > 1 else ()
    texts = (text for _, pair in _read(recipe.train_files) for text in pair)
    return train_tokenizer(texts, recipe.vocabulary_size, [language_token(code) for code in targets])


def _encode(tokenizer: Tokenizer, languages: ModelLanguages, pairs: Iterable[tuple[Direction, Pair]]) -> Iterator[EncodedPair]:
    """Encode both sides, EOS last; a model of several directions gets the target's token before the source."""
    remaining = iter(pairs)
    while part := list(islice(remaining, ENCODED_AT_ONCE)):
        sources, targets = (tokenizer.encode_batch_fast([pair[side] for _, pair in part]) for side in (0, 1))
        for (direction, pair), source, target in zip(part, sources, targets, strict=True):
            prefix = [languages.targets[direction[1]]] if languages.targets else []
            yield EncodedPair(direction, pair, Example([*prefix, *source.ids], target.ids))
