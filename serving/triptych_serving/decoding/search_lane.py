"""Searches that need log-probabilities: beams, samples, penalties, scores and alignments, mixed freely in one batch.

A slot holds one hypothesis, for as long as it lives. Where a beam has several continuations, one keeps the slot and the
others take slots of beams that died, which mostly share their history: only what differs is copied. So no step reorders whole
caches, and any beam size runs in the same graph.
"""

from collections.abc import Iterator, Sequence

from triptych_serving.bundle.manifest import SpecialTokens
from triptych_serving.decoding.hypotheses import Continuation, HypothesisGroup, SearchStep
from triptych_serving.decoding.lane import encode_rows
from triptych_serving.decoding.logits_processor import BAN, Ints, LogitEdits, make_processor
from triptych_serving.decoding.sampler import Sampler
from triptych_serving.decoding.slots import SearchSlots
from triptych_serving.scheduling.request import Row, TokenLogProbability
from triptych_serving.text.vocabulary import Vocabulary

MIN_CANDIDATES = 8
MAX_CANDIDATES = 256  # samples that need more read all log-probabilities


class SearchLane:
    """A lane of which each row takes as many slots as its search has hypotheses.

    Args:
        vocabulary: bytes of each token, for texts that must not occur.
    """

    def __init__(self, slots: SearchSlots, tokens: SpecialTokens, vocabulary: Vocabulary) -> None:
        self._slots = slots
        self._tokens = tokens
        self._ends = tokens.ends
        self._vocabulary = vocabulary
        self._groups: list[HypothesisGroup] = []
        self._owners: list[HypothesisGroup] = []  # by slot in use
        self._vacant: list[int] = []  # slots whose hypotheses are done

    @property
    def rows(self) -> Sequence[Row]:
        return [group.row for group in self._groups]

    @property
    def updated_rows(self) -> Sequence[Row]:
        return self.rows

    @property
    def free(self) -> int:
        return self._slots.count - sum(group.width for group in self._groups)

    @property
    def bytes(self) -> int:
        return self._slots.bytes

    def warm_up(self) -> None:
        def run(used: int) -> None:
            self._slots.used = used
            self._slots.search(MIN_CANDIDATES, ())

        self._slots.forced[:] = 0
        self._slots.cache.warm_up(run)
        self._slots.used = 0

    def join(self, rows: Sequence[Row]) -> None:
        running = [(group.row, group.slots[0]) for group in self._groups]
        for row, slot in encode_rows(rows, running, self._slots):
            processor = row.processor or make_processor(row, self._tokens, self._vocabulary)
            group = HypothesisGroup(row, slot, processor, len(self._ends))
            self._slots.so_far[slot] = 0.0
            self._groups.append(group)
            self._owners.append(group)

    def leave(self, rows: Sequence[Row]) -> None:
        gone = set(map(id, rows))
        for group in self._groups:
            if id(group.row) in gone:
                self._vacant += group.slots
        self._groups = [group for group in self._groups if id(group.row) not in gone]
        self._vacate()

    def reset(self) -> None:
        self._groups, self._owners, self._vacant = [], [], []
        self._slots.used = 0

    def step(self) -> list[Row]:
        self._force()
        self._run()
        for group in self._groups:
            if group.attends:
                self._slots.attend(group.slots, group.length)
        done = self._choose()
        self._slots.advance(self._slots.used)
        return self._end_groups(done)

    @property
    def _stepping(self) -> Sequence[HypothesisGroup]:
        """Groups that take part in steps."""
        return self._groups

    def _run(self) -> None:
        self._slots.search(self._candidates(), self._edits())

    def _force(self) -> None:
        forced, subset = self._slots.forced_view, self._slots.subset
        for slot in range(self._slots.used):
            forced[slot] = 0
        for group in self._groups:
            if (token := group.forced) is not None:
                forced[group.slots[0]] = token if subset is None else subset.column(token)

    def _candidates(self) -> int:
        groups = (group for group in self._groups if not group.search.samples or group.candidates <= MAX_CANDIDATES)
        wanted = max((group.candidates for group in groups), default=0)
        wanted = max((wanted, *(group.search.top_log_probabilities or 0 for group in self._groups)))
        power = 1 << max(0, wanted - 1).bit_length()  # few different numbers: each has buffers of its own
        return min(self._slots.vocabulary_size, max(MIN_CANDIDATES, power))

    def _edits(self) -> Sequence[LogitEdits | None]:
        """Return edits by slot; empty if no row has any."""
        processed = [(group, group.processor) for group in self._groups if group.processor is not None and group.forced is None]
        if not processed:
            return ()
        edits: list[LogitEdits | None] = [None] * self._slots.used
        for group, processor in processed:
            own = group.slots[:1] if processor.is_fixed else group.slots
            for slot in own:
                edits[slot] = processor.edits(self._slots.history[slot, : group.length])
            for slot in group.slots[len(own) :]:
                edits[slot] = edits[own[0]]
        return edits

    def _choose(self) -> list[HypothesisGroup]:
        """Give every group its next tokens; return those that are done."""
        going: list[Continuation] = []
        done: list[HypothesisGroup] = []
        for group, step in self._extend():
            if group.search.top_log_probabilities is not None:
                self._add_log_probability(group, step)
            if group.row.is_stopped is not None:
                self._stop(group, step)
            for continuation in step.ended:
                self._finish(group, continuation)
            for continuation in step.going if group.is_cut else ():
                self._finish(group, continuation)
            group.fresh = group.fresh and group.forced is not None
            group.length += 1
            if group.is_done:
                done.append(group)
            else:
                going += self._assign_slots(group, step.going)
        self._slots.append(going)
        for group in self._stepping:
            if group.row.call.streams and group not in done and group.slots:
                group.settle(self._slots.history[group.slots, : group.length])
        return done

    def _extend(self) -> Iterator[tuple[HypothesisGroup, SearchStep]]:
        """Yield groups with the outcome of the step, except beam searches that were extended already (see BeamStep)."""
        beams: list[HypothesisGroup] = []
        for group in self._stepping:
            if group.forced is not None:
                yield group, self._follow_prefix(group, group.forced)
            elif group.search.samples:
                yield group, self._sample(group)
            else:
                beams.append(group)
        for group, best in self._slots.rank(beams):
            yield group, group.extend(best, self._ends)

    def _follow_prefix(self, group: HypothesisGroup, token: int) -> SearchStep:
        """Take the prefix's next token; it counts in no score, as in CTranslate2."""
        [slot] = group.slots
        if group.length >= group.row.prompt:
            self._slots.cache.fetch(self._slots.forced_log_probabilities)
            group.prefix_log_probability += float(self._slots.forced_log_probabilities[slot, 0])
        continuation = Continuation(slot, token, 0.0)
        return SearchStep([continuation] if group.at_limit else [], [continuation])

    def _sample(self, group: HypothesisGroup) -> SearchStep:
        """Draw a token for every sample; all begin with the same distribution."""
        step, samplers = SearchStep(), []
        slots = group.slots * len(group.samplers) if group.fresh else group.slots
        for sampler, slot in zip(group.samplers, slots, strict=True):
            continuation = self._draw(group, sampler, slot)
            if continuation.token in self._ends or group.at_limit:
                step.ended.append(continuation)
            else:
                step.going.append(continuation)
                samplers.append(sampler)
        group.samplers = samplers
        return step

    def _draw(self, group: HypothesisGroup, sampler: Sampler, slot: int) -> Continuation:
        search, slots = group.search, self._slots
        if group.row.grammar is not None:
            slots.cache.fetch(slots.log_probabilities)
            tokens = self._allowed(group, slot)
            log_probabilities = slots.log_probabilities[slot, tokens]
        elif 0 < group.candidates <= MAX_CANDIDATES:
            log_probabilities, tokens = slots.best["top_log_probabilities"][slot], slots.best["top_tokens"][slot]
        else:
            slots.cache.fetch(slots.log_probabilities)
            log_probabilities, tokens = slots.log_probabilities[slot], None
        limits = search.sampling_topk, search.sampling_topp, search.sampling_minp
        index = sampler.choose(log_probabilities, search.temperature, *limits)
        token = index if tokens is None else int(tokens[index])
        return Continuation(slot, token, float(slots.so_far[slot] + log_probabilities[index]))

    def _allowed(self, group: HypothesisGroup, slot: int) -> Ints:
        """Return the tokens that the row's grammar allows next, without banned ones; the ends if there are no others."""
        slots = self._slots
        tokens: Ints = group.row.grammar.next_tokens(slots.history[slot, group.row.prompt : group.length])
        tokens = tokens[slots.log_probabilities[slot, tokens] > BAN / 2]
        return tokens if len(tokens) else slots.ends

    def _add_log_probability(self, group: HypothesisGroup, step: SearchStep) -> None:
        """Add the log-probability of the next token to a row with one hypothesis, unless the token ends the text."""
        [chosen] = step.ended or step.going
        slots, slot, forced = self._slots, chosen.slot, group.forced is not None
        if not group.row.scored if forced else chosen.token in self._ends:
            return
        own = slots.forced_log_probabilities[slot, 0] if forced else chosen.log_probability - slots.so_far[slot]
        count = group.search.top_log_probabilities
        best = slots.best["top_tokens"][slot, :count], slots.best["top_log_probabilities"][slot, :count]
        top = zip(*(array.tolist() for array in best), strict=True)
        group.row.log_probabilities.append(TokenLogProbability(chosen.token, float(own), tuple(top)))

    def _stop(self, group: HypothesisGroup, step: SearchStep) -> None:
        """End the only hypothesis of a row if its next token completes a stop sequence."""
        if not step.going or step.ended or group.forced is not None:
            return
        [last] = step.going
        tokens = [*self._slots.history[last.slot, : group.length].tolist(), last.token]
        assert group.row.is_stopped is not None
        if group.row.is_stopped(tokens):
            step.ended.append(last)
            step.going.clear()

    def _finish(self, group: HypothesisGroup, last: Continuation) -> None:
        """Note a hypothesis that is complete with its last token."""
        ended = last.token in self._ends
        tokens = self._slots.history[last.slot, : group.length].tolist() + ([] if ended else [last.token])
        steps, source = group.length + 1, group.row.size
        attention = self._slots.attended[last.slot, :steps, :source].copy() if group.attends else None
        group.finish(tokens, ended, last.log_probability, attention)

    def _assign_slots(self, group: HypothesisGroup, going: Sequence[Continuation]) -> Sequence[Continuation]:
        """Give each hypothesis that goes on a slot of its own."""
        sources = [continuation.slot for continuation in going]
        kept = set(sources)
        if len(kept) == len(group.slots) == len(sources):
            group.slots = sources
            return going
        spare = [slot for slot in group.slots if slot not in kept]
        assigned: list[Continuation] = []
        for continuation in going:
            source = continuation.slot
            if source in kept:
                kept.remove(source)
                assigned.append(continuation)
            else:  # not `_replace`, which takes twice as long
                assigned.append(Continuation(self._copy(group, source, spare), *continuation[1:]))
        self._vacant += spare
        group.slots = [continuation.slot for continuation in assigned]
        return assigned

    def _copy(self, group: HypothesisGroup, source: int, spare: list[int]) -> int:
        """Copy the hypothesis in `source` to a spare slot, or to a new one; return it."""
        if not spare:
            self._owners.append(group)
            return self._slots.duplicate(source)
        target = spare.pop()
        self._slots.replace(source, target, group.attends)
        return target

    def _end_groups(self, done: Sequence[HypothesisGroup]) -> list[Row]:
        """Free the slots of hypotheses and groups that are done; return the rows of these groups."""
        for group in done:
            group.close()
            self._vacant += group.slots
        if done:
            self._groups = [group for group in self._groups if group not in done]
        self._vacate()
        return [group.row for group in done]

    def _vacate(self) -> None:
        for slot in sorted(self._vacant, reverse=True):
            last = self._slots.vacate(slot)
            owner = self._owners.pop()
            if slot != last:
                self._owners[slot] = owner
                owner.slots[owner.slots.index(last)] = slot
        self._vacant.clear()
