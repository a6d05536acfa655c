"""Reference beam search in plain PyTorch, which the server's must equal; slow, because every step decodes whole prefixes.

The rules are those of CTranslate2 (`BeamSearch` in its `decoding.cc`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from triptych_training.data.batches import Ids
from triptych_training.models.attention import CrossAttention, KeyValues, split_heads
from triptych_training.models.transformer import DecoderLayer, Transformer


@dataclass(frozen=True)
class BeamOptions:
    """Size, limits, penalties and constraints of a search.

    Raises:
        ValueError: `num_hypotheses` is above the number of hypotheses that the search finishes.
    """

    beam_size: int = 4
    num_hypotheses: int = 1
    patience: float = 1.0  # the search ends with beam_size x patience finished hypotheses (Kasai et al. 2022)
    length_penalty: float = 1.0  # alpha: rank by log-probability / length^alpha; length includes prefix and EOS
    coverage_penalty: float = 0.0  # beta of Wu et al. 2016, equation 14, on the last layer's attention
    repetition_penalty: float = 1.0  # Keskar et al. 2019
    no_repeat_ngram_size: int = 0
    min_length: int = 0  # tokens, prefix included, EOS not
    max_length: int = 256  # tokens, prefix included, EOS not

    def __post_init__(self) -> None:
        if self.num_hypotheses > self.enough:
            raise ValueError(f"num_hypotheses: {self.num_hypotheses} is above beam_size x patience, {self.enough}")

    @property
    def enough(self) -> int:
        """Number of finished hypotheses that ends the search; halves are rounded up."""
        return math.floor(self.beam_size * self.patience + 0.5) if self.beam_size > 1 else 1

    @property
    def exits_early(self) -> bool:
        """No running hypothesis can overtake one that ended as the best of its step."""
        return self.length_penalty == 0 and self.coverage_penalty == 0


@dataclass(frozen=True)
class Candidate:
    """Running or finished translation."""

    tokens: tuple[int, ...] = ()  # prefix included, EOS not
    log_probabilities: tuple[float, ...] = ()  # of each token, prefix included, and of EOS if it ended
    attention: tuple[Tensor, ...] = ()  # for each of those `[S]`: mean over the last layer's heads
    forced: int = 0  # tokens of the prefix
    ended: bool = False  # by EOS, not by `max_length`
    score: float = 0.0  # set when finished

    @property
    def log_probability(self) -> float:
        """Log-probability of the whole translation."""
        return sum(self.log_probabilities)

    @property
    def rank(self) -> float:
        """Log-probability without the prefix, which is given and therefore not compared."""
        return sum(self.log_probabilities[self.forced :])

    def extend(self, token: int, log_probability: float, attention: Tensor, ends: bool) -> "Candidate":
        """Return the candidate extended by one token, or ended."""
        tokens = self.tokens if ends else (*self.tokens, token)
        log_probabilities, attention_rows = (*self.log_probabilities, log_probability), (*self.attention, attention)
        return Candidate(tokens, log_probabilities, attention_rows, self.forced, ends)


def beam_search(
    model: Transformer, sources: Sequence[Ids], options: BeamOptions, prefixes: Sequence[Ids] | None = None
) -> list[list[Candidate]]:
    """Find the best translations of each source (ids, EOS last), best first; sources are searched one by one.

    `prefixes` gives the ids with which each source's translations begin; constraints do not apply to them. Does not change the
    model's mode: call `eval()` first.
    """
    prefixes = prefixes or [[] for _ in sources]
    return [_Search(model, source, options).run(prefix) for source, prefix in zip(sources, prefixes, strict=True)]


class _Search:
    """Search of one sentence."""

    def __init__(self, model: Transformer, source: Ids, options: BeamOptions) -> None:
        self.model, self.options, self.end = model, options, model.config.eos_id
        with torch.inference_mode():
            self.memory = model.encoder(torch.tensor([source], device=model.projection.weight.device), None)
        self.finished: list[Candidate] = []

    @torch.inference_mode()
    def run(self, prefix: Ids) -> list[Candidate]:
        running = self._force(prefix[: self.options.max_length])
        if len(prefix) >= self.options.max_length:
            self._finish(running[0])
            return self.finished
        best_ended = False
        for length in range(len(prefix) + 1, self.options.max_length + 1):
            best = self._expand(running)
            leaders, others = best[: self.options.beam_size], best[self.options.beam_size :]
            best_ended = best_ended or leaders[0].ended
            for candidate in leaders:
                if candidate.ended or length == self.options.max_length:
                    self._finish(candidate)
            if self._is_enough(best_ended):
                break
            running = [candidate for candidate in leaders + others if not candidate.ended][: self.options.beam_size]
        return sorted(self.finished, key=lambda candidate: -candidate.score)[: self.options.num_hypotheses]

    def _force(self, prefix: Ids) -> list[Candidate]:
        forced = Candidate()
        for token in prefix:
            logits, attention = self._next([forced])
            forced = forced.extend(token, float(logits[0].log_softmax(-1)[token]), attention[0], ends=False)
        return [replace(forced, forced=len(prefix))]

    def _expand(self, running: list[Candidate]) -> list[Candidate]:
        """Return the best continuations by one token, twice as many as beams, best first."""
        logits, attention = self._next(running)
        rows = [self._constrain(row, candidate.tokens) for row, candidate in zip(logits, running, strict=True)]
        step = torch.stack(rows).log_softmax(-1)
        totals = step + torch.tensor([[candidate.rank] for candidate in running], device=step.device)
        best = totals.flatten().topk(min(2 * self.options.beam_size, totals.numel())).indices.tolist()
        pairs = [divmod(index, totals.shape[1]) for index in best]
        return [running[i].extend(token, float(step[i, token]), attention[i], token == self.end) for i, token in pairs]

    def _next(self, running: list[Candidate]) -> tuple[Tensor, Tensor]:
        """Return the logits `[B, V]` after each candidate and the attention `[B, S]` of that position."""
        start = self.model.config.bos_id
        target = torch.tensor([[start, *candidate.tokens] for candidate in running], device=self.memory.device)
        memory = self.memory.expand(len(running), -1, -1)
        with _RecordAttention(self.model) as recorded:
            hidden = self.model.decoder(target, memory, None)
        return self.model.projection(hidden[:, -1]), recorded.weights[:, -1]

    def _constrain(self, logits: Tensor, tokens: tuple[int, ...]) -> Tensor:
        logits = logits.clone()
        for token in set(tokens):
            value, penalty = logits[token], self.options.repetition_penalty
            logits[token] = value * penalty if value < 0 else value / penalty
        logits[repeats(tokens, self.options.no_repeat_ngram_size)] = -torch.inf
        if len(tokens) < self.options.min_length:
            logits[self.end] = -torch.inf
        return logits

    def _finish(self, candidate: Candidate) -> None:
        length = len(candidate.log_probabilities)
        score = candidate.rank / length**self.options.length_penalty
        self.finished.append(replace(candidate, score=score + self.options.coverage_penalty * coverage(candidate.attention)))

    def _is_enough(self, best_ended: bool) -> bool:
        if self.options.exits_early:
            return best_ended and len(self.finished) >= self.options.num_hypotheses
        return len(self.finished) >= self.options.enough


def repeats(tokens: Sequence[int], size: int) -> list[int]:
    """Return the tokens that would repeat an n-gram of `size` tokens; none for size 0."""
    if size == 0 or len(tokens) < size:
        return []
    ngrams = [tuple(tokens[i : i + size]) for i in range(len(tokens) - size + 1)]
    last = tuple(tokens[len(tokens) - size + 1 :])
    return [ngram[-1] for ngram in ngrams if ngram[:-1] == last]


def coverage(attention: Sequence[Tensor]) -> float:
    """Sum log(min(attention, 1)) over the source tokens, without those that got no attention; at most 0."""
    total = torch.stack(list(attention)).sum(0).clamp(max=1.0)
    return float(total[total > 0].log().sum())


class _RecordAttention:
    """Context manager that records the last layer's cross-attention weights `[B, T, S]`, mean over heads."""

    def __init__(self, model: Transformer) -> None:
        layer = model.decoder.layers[-1]
        assert isinstance(layer, DecoderLayer)
        self._module = layer.cross_attention

    def __enter__(self) -> "_RecordAttention":
        self._hook = self._module.register_forward_pre_hook(self._record)
        return self

    def __exit__(self, *_: object) -> None:
        self._hook.remove()

    def _record(self, module: CrossAttention, inputs: tuple[Tensor, KeyValues, Tensor | None]) -> None:
        x, (key, _), _ = inputs
        query = split_heads(module.query(x), module.heads)
        scores = query @ key.transpose(2, 3) / math.sqrt(query.shape[-1])
        self.weights = scores.softmax(-1).mean(1)
