"""Batched beam search with a key/value cache, on a GPU or CPU, for translating large corpora in PyTorch.

Results equal those of the tests' slow reference, with patience 1 and no constraints. The only data read back from the device
is, every few steps, which sentences are finished; those leave the batch.

Shapes: `B` sentences, `K` beams per sentence, `T` tokens so far, `F` requested hypotheses.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from triptych_training.checks import at_least
from triptych_training.data.batches import Ids, by_length, pad
from triptych_training.models.attention import KeyValues
from triptych_training.models.rnn import TranslationModel

MAX_BEAMS = 256  # each has keys and values of its own
MAX_PENALTY = 10  # more may overflow
CHECK_STEPS = 4  # steps between two checks for finished sentences
SHRINK_BELOW = 0.75  # drop finished sentences from the batch if at most this share is still running


@dataclass(frozen=True)
class SearchOptions:
    """Beam size, limits and length penalty of a search.

    Raises:
        ValueError: a number is out of range, or `hypotheses` is above `beam_size`.
    """

    beam_size: int = 4
    hypotheses: int = 1  # per sentence, best first
    length_penalty: float = 1.0  # alpha: rank by log-probability / length^alpha; length includes EOS
    max_length: int = 256  # tokens, EOS included
    batch_tokens: int = 16_000  # sentences x beams x longest source of one batch

    def __post_init__(self) -> None:
        at_least(1, self, "beam_size", "hypotheses", "max_length", "batch_tokens")
        if self.beam_size > MAX_BEAMS:
            raise ValueError(f"beam_size: {self.beam_size} is above {MAX_BEAMS}")
        if not abs(self.length_penalty) <= MAX_PENALTY:
            raise ValueError(f"length_penalty: {self.length_penalty} is outside -{MAX_PENALTY} to {MAX_PENALTY}")
        if self.hypotheses > self.beam_size:
            raise ValueError(f"hypotheses: {self.hypotheses} is above beam_size {self.beam_size}")


@dataclass(frozen=True)
class BeamHypothesis:
    """Translation found by the search: ids without EOS; `ended` is False if `max_length` cut it off."""

    tokens: Ids
    score: float
    ended: bool


@torch.inference_mode()
def search(model: TranslationModel, sources: Sequence[Ids], options: SearchOptions) -> list[list[BeamHypothesis]]:
    """Find the best translations of each source (ids, EOS last), in the order of the sources.

    Does not change the model's mode: call `eval()` first.
    """
    results: list[list[BeamHypothesis]] = [[] for _ in sources]
    for batch in by_length(sources, max(1, options.batch_tokens // options.beam_size)):
        found = _Batch(model, [sources[i] for i in batch], options).run()
        for index, hypotheses in zip(batch, found, strict=True):
            results[index] = hypotheses
    return results


class _Batch:
    """State of the sentences that are searched together."""

    def __init__(self, model: TranslationModel, sources: Sequence[Ids], options: SearchOptions) -> None:
        self.model, self.options = model, options
        self.count, beams = len(sources), options.beam_size
        device = model.projection.weight.device
        source = pad(sources, model.config.pad_id).to(device)
        mask = model.source_mask(source)
        memory = model.decoder.project_memory(model.encoder(source, mask))
        self.mask = mask.repeat_interleave(beams, 0)
        self.memory = [(k.repeat_interleave(beams, 0), v.repeat_interleave(beams, 0)) for k, v in memory]
        self.past: list[KeyValues] | None = None
        self.tokens = torch.full((self.count * beams, 1), model.config.bos_id, device=device)
        # All beams of a sentence start equal: only the first may be extended.
        self.totals = torch.full((self.count, beams), -torch.inf, device=device)
        self.totals[:, 0] = 0
        self.history = torch.empty((self.count, beams, 0), dtype=torch.long, device=device)
        self.finished = _Finished(self.count, options, device)
        self.numbers = torch.arange(self.count, device=device)  # each row's sentence in the original batch
        self.done = torch.zeros(self.count, dtype=torch.bool, device=device)
        self.best_ended = self.done.clone()

    def run(self) -> list[list[BeamHypothesis]]:
        for length in range(1, self.options.max_length + 1):
            self._advance(length)
            if length % CHECK_STEPS == 0 and not self._shrink():
                break
        return self.finished.hypotheses()

    def _advance(self, length: int) -> None:
        """Extend every beam by one token."""
        beams, last = self.options.beam_size, length == self.options.max_length
        hidden, self.past = self.model.decoder.step(self.tokens, length - 1, self.memory, self.mask, self.past)
        steps = self.model.projection(hidden[:, 0]).float().log_softmax(-1)  # [B*K, V]
        totals = (self.totals.view(-1, 1) + steps).view(len(self.numbers), -1)
        values, flat = totals.topk(min(2 * beams, totals.shape[1]))  # [B, 2K]
        parents, tokens = flat // steps.shape[1], flat % steps.shape[1]
        ended = tokens == self.model.config.eos_id
        self._finish(length, values[:, :beams], parents[:, :beams], tokens[:, :beams], ended[:, :beams], last)
        kept = ended.long().argsort(dim=1, stable=True)[:, :beams]
        self._follow(values.gather(1, kept), parents.gather(1, kept), tokens.gather(1, kept))

    def _finish(self, length: int, values: Tensor, parents: Tensor, tokens: Tensor, ended: Tensor, last: bool) -> None:
        """Store those of the best candidates `[B, K]` that end here."""
        ends = (ended | last) & ~self.done[:, None] & values.isfinite()
        texts = torch.cat((self._ancestors(parents), tokens[..., None]), 2)
        scores = values / length**self.options.length_penalty
        counts = self.finished.add(self.numbers, texts, scores, ended, ends)
        self.best_ended |= ended[:, 0]
        if self.options.length_penalty == 0:  # no running hypothesis can overtake one that ended as the best of its step
            self.done |= self.best_ended & (counts >= self.options.hypotheses)
        else:
            self.done |= counts >= self.options.beam_size

    def _follow(self, totals: Tensor, parents: Tensor, tokens: Tensor) -> None:
        """Continue with these beams `[B, K]`."""
        self.history = torch.cat((self._ancestors(parents), tokens[..., None]), 2)
        self.totals, self.tokens = totals, tokens.reshape(-1, 1)
        if self.options.beam_size > 1:
            first = torch.arange(len(parents), device=parents.device)[:, None] * self.options.beam_size
            self._select_past((first + parents).flatten())

    def _ancestors(self, parents: Tensor) -> Tensor:
        """Return the token history `[B, K, T]` of these beams."""
        return self.history.gather(1, parents[..., None].expand(-1, -1, self.history.shape[2]))

    def _select_past(self, rows: Tensor) -> None:
        if self.past is not None:
            self.past = [(key[rows], value[rows]) for key, value in self.past]

    def _shrink(self) -> bool:
        """Drop finished sentences from the batch; return False if none is left."""
        running = (~self.done).nonzero()[:, 0]
        if len(running) > SHRINK_BELOW * len(self.done):
            return True
        beams = torch.arange(self.options.beam_size, device=running.device)
        rows = (running[:, None] * self.options.beam_size + beams).flatten()
        self._select_past(rows)
        self.memory = [(key[rows], value[rows]) for key, value in self.memory]
        self.mask, self.tokens = self.mask[rows], self.tokens[rows]
        self.totals, self.history, self.numbers = self.totals[running], self.history[running], self.numbers[running]
        self.done, self.best_ended = self.done[running], self.best_ended[running]
        return len(running) > 0


class _Finished:
    """Best finished hypotheses so far, `[B, F]`, best first."""

    def __init__(self, sentences: int, options: SearchOptions, device: torch.device) -> None:
        shape = sentences, options.hypotheses
        self.counts = torch.zeros(sentences, dtype=torch.long, device=device)  # finished, kept or not
        self.scores = torch.full(shape, -torch.inf, device=device)
        self.ended = torch.zeros(shape, dtype=torch.bool, device=device)
        self.lengths = torch.zeros(shape, dtype=torch.long, device=device)
        self.texts = torch.zeros((*shape, options.max_length), dtype=torch.long, device=device)

    def add(self, numbers: Tensor, texts: Tensor, scores: Tensor, ended: Tensor, ends: Tensor) -> Tensor:
        """Add those of `texts` `[b, K, T]` where `ends`, for the sentences `numbers`; return the sentences' counts."""
        length, room = texts.shape[2], self.texts.shape[2]
        scores = torch.cat((self.scores[numbers], scores.masked_fill(~ends, -torch.inf)), 1)
        best = scores.argsort(dim=1, descending=True, stable=True)[:, : self.scores.shape[1]]
        lengths = torch.cat((self.lengths[numbers], length - ended.long()), 1)
        texts = torch.cat((self.texts[numbers], functional.pad(texts, (0, room - length))), 1)
        self.scores[numbers] = scores.gather(1, best)
        self.ended[numbers] = torch.cat((self.ended[numbers], ended), 1).gather(1, best)
        self.lengths[numbers] = lengths.gather(1, best)
        self.texts[numbers] = texts.gather(1, best[..., None].expand(-1, -1, room))
        self.counts[numbers] += ends.sum(1)
        return self.counts[numbers]

    def hypotheses(self) -> list[list[BeamHypothesis]]:
        """Return every sentence's hypotheses."""
        scores, ended, lengths, texts = (t.tolist() for t in (self.scores, self.ended, self.lengths, self.texts))
        return [
            [
                BeamHypothesis(text[:length], score, end)
                for score, end, length, text in zip(*columns, strict=True)
                if score > -math.inf
            ]
            for columns in zip(scores, ended, lengths, texts, strict=True)
        ]
