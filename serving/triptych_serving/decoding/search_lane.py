"""Everything that needs log-probabilities: beams, samples, penalties, scores and alignments, mixed freely in one batch.

A row of the batch is one hypothesis, which keeps its slot as long as it lives. Where a beam has several children, one stays and
the others take slots of beams that died, which share most of their past already: only what differs is copied. So no step
reorders whole caches, and any beam size runs in the same graph.
"""

from collections.abc import Sequence

from triptych_serving.bundle.manifest import SpecialTokens
from triptych_serving.decoding.greedy_lane import by_length, shortlists
from triptych_serving.decoding.hypotheses import Continuation, HypothesisGroup, SearchStep
from triptych_serving.decoding.logits_processor import LogitEdits, LogitsProcessor, Vocabulary
from triptych_serving.decoding.sampler import Sampler
from triptych_serving.decoding.search_slots import SearchSlots
from triptych_serving.scheduling.decode_scheduler import Job
from triptych_serving.scheduling.request import Row

MIN_CANDIDATES = 8
MAX_CANDIDATES = 256  # who wants more reads all log-probabilities


class SearchLane:
    """Used by one thread.

    Args:
        slots: over the search graph.
        tokens: ids of the special tokens.
        vocabulary: what tokens look like, for texts that must not occur.
    """

    def __init__(self, slots: SearchSlots, tokens: SpecialTokens, vocabulary: Vocabulary) -> None:
        self._slots = slots
        self._tokens = tokens
        self._end = tokens.end
        self._vocabulary = vocabulary
        self._groups: list[HypothesisGroup] = []
        self._owners: list[HypothesisGroup] = []  # of each slot in use
        self._vacant: list[int] = []  # slots whose hypotheses are done

    @property
    def jobs(self) -> Sequence[Job]:
        return [group.job for group in self._groups]

    @property
    def news(self) -> Sequence[Job]:
        return self.jobs

    @property
    def free(self) -> int:
        return self._slots.count - sum(group.width for group in self._groups)

    @property
    def bytes(self) -> int:
        return self._slots.bytes

    def warm_up(self) -> None:
        self._slots.used = 1
        self._slots.forced[:] = 0
        self._slots.search(MIN_CANDIDATES, ())
        self._slots.used = 0

    def join(self, jobs: Sequence[Job]) -> None:
        if self._slots.columns is not None:
            self._slots.columns.admit(shortlists(jobs), shortlists(self.jobs))
        for similar in by_length(jobs, self._slots.caches.padding):
            slots = self._slots.encode([job.row.source for job in similar])
            for job, slot in zip(similar, slots, strict=True):
                group = HypothesisGroup(job, slot, self._constraints(job.row))
                self._slots.so_far[slot] = 0.0
                self._groups.append(group)
                self._owners.append(group)

    def leave(self, jobs: Sequence[Job]) -> None:
        gone = set(map(id, jobs))
        for group in self._groups:
            if id(group.job) in gone:
                self._vacant += group.slots
        self._groups = [group for group in self._groups if id(group.job) not in gone]
        if self._groups:
            self._vacate()
        else:  # a step that failed half-way may have left slots that no group knows of
            self._slots.used = 0
            self._owners.clear()
            self._vacant.clear()

    def step(self) -> list[Job]:
        self._force()
        self._slots.search(self._candidates(), self._edits())
        for group in self._groups:
            if group.attends:
                self._slots.attend(group.slots, group.length)
        self._choose()
        self._slots.positions[: self._slots.used] += 1
        return self._end_groups()

    def _constraints(self, row: Row) -> LogitsProcessor | None:
        return LogitsProcessor(row.search, self._tokens, self._vocabulary, row.frame.forced) if row.search.constrained else None

    def _force(self) -> None:
        forced, columns = self._slots.forced, self._slots.columns
        forced[: self._slots.used] = 0
        for group in self._groups:
            if (token := group.forced) is not None:
                forced[group.slots[0]] = token if columns is None else columns.place(token)

    def _candidates(self) -> int:
        wanted = max((group.candidates for group in self._groups if group.candidates <= MAX_CANDIDATES), default=0)
        power = 1 << max(0, wanted - 1).bit_length()  # few different numbers: each has buffers of its own
        return min(self._slots.vocabulary_size, max(MIN_CANDIDATES, power))

    def _edits(self) -> Sequence[LogitEdits | None]:
        """By slot; nothing where no row has any."""
        constrained = [group for group in self._groups if group.constraints is not None and group.forced is None]
        if not constrained:
            return ()
        edits: list[LogitEdits | None] = [None] * self._slots.used
        for group in constrained:
            assert group.constraints is not None
            for slot in group.slots:
                edits[slot] = group.constraints.edits(self._slots.history[slot, : group.length])
        return edits

    def _choose(self) -> None:
        """Give every group its next tokens."""
        totals, tokens = self._slots.continuations()
        going: list[Continuation] = []
        for group in self._groups:
            if group.forced is not None:
                choice = self._follow_prefix(group, group.forced)
            elif group.search.samples:
                choice = self._sample(group)
            else:
                choice = group.extend(totals, tokens, self._end)
            for continuation in choice.ended:
                self._finish(group, continuation)
            for continuation in choice.going if group.is_cut else ():
                self._finish(group, continuation)
            going += self._place(group, choice)
        self._slots.append(going)
        for group in self._groups:
            if group.job.call.streams and group.slots and not group.is_done:
                group.settle(self._slots.history[group.slots, : group.length])

    def _follow_prefix(self, group: HypothesisGroup, token: int) -> SearchStep:
        """The prefix says what comes next; it counts in no score, as in CTranslate2."""
        [slot] = group.slots
        self._slots.caches.fetch(self._slots.forced_log_probabilities)
        group.prefix_log_probability += float(self._slots.forced_log_probabilities[slot, 0])
        continuation = Continuation(slot, token, 0.0)
        return SearchStep([continuation] if group.at_limit else [], [continuation])

    def _sample(self, group: HypothesisGroup) -> SearchStep:
        """One token more for every sample; all begin with the same distribution."""
        choice, samplers = SearchStep(), []
        slots = group.slots * len(group.samplers) if group.fresh else group.slots
        for sampler, slot in zip(group.samplers, slots, strict=True):
            continuation = self._draw(group, sampler, slot)
            if continuation.token == self._end or group.at_limit:
                choice.ended.append(continuation)
            else:
                choice.going.append(continuation)
                samplers.append(sampler)
        group.samplers = samplers
        return choice

    def _draw(self, group: HypothesisGroup, sampler: Sampler, slot: int) -> Continuation:
        search, slots = group.search, self._slots
        if 0 < group.candidates <= MAX_CANDIDATES:
            log_probabilities, tokens = slots.best["top_log_probabilities"][slot], slots.best["top_tokens"][slot]
        else:
            slots.caches.fetch(slots.log_probabilities)
            log_probabilities, tokens = slots.log_probabilities[slot], None
        place = sampler.choose(log_probabilities, search.temperature, search.sampling_topk, search.sampling_topp)
        token = place if tokens is None else int(tokens[place])
        return Continuation(slot, token, float(slots.so_far[slot] + log_probabilities[place]))

    def _finish(self, group: HypothesisGroup, last: Continuation) -> None:
        """A hypothesis with its last token."""
        ended = last.token == self._end
        tokens = self._slots.history[last.slot, : group.length].tolist() + ([] if ended else [last.token])
        attention = self._slots.attended[last.slot, : group.length + 1, : len(group.row.source)]
        group.finish(tokens, ended, last.log_probability, attention.copy() if group.attends else attention)

    def _place(self, group: HypothesisGroup, choice: SearchStep) -> list[Continuation]:
        """Give the hypotheses that go on slots of their own, with the caches that they need in them."""
        going = choice.going
        group.fresh = group.fresh and group.forced is not None
        group.length += 1
        if group.is_done:
            return []
        kept = {continuation.slot for continuation in going}
        spare = [slot for slot in group.slots if slot not in kept]
        placed: list[Continuation] = []
        taken: set[int] = set()
        for continuation in going:
            source = continuation.slot
            slot = self._copy(group, source, spare) if source in taken else source
            taken.add(slot)
            placed.append(Continuation(slot, continuation.token, continuation.log_probability))
        self._vacant += spare
        group.slots = [continuation.slot for continuation in placed]
        return placed

    def _copy(self, group: HypothesisGroup, source: int, spare: list[int]) -> int:
        """The slot of one hypothesis more that continues the one in `source`."""
        if not spare:
            self._owners.append(group)
            return self._slots.duplicate(source)
        target = spare.pop()
        self._slots.fork(source, target, group.attends)
        return target

    def _end_groups(self) -> list[Job]:
        """Give back the slots of hypotheses and groups that are done; returns the latter."""
        done = [group for group in self._groups if group.is_done]
        for group in done:
            group.close()
            self._vacant += group.slots
        if done:
            self._groups = [group for group in self._groups if not group.is_done]
        self._vacate()
        return [group.job for group in done]

    def _vacate(self) -> None:
        for slot in sorted(self._vacant, reverse=True):
            last = self._slots.vacate(slot)
            owner = self._owners.pop()
            if slot != last:
                self._owners[slot] = owner
                owner.slots[owner.slots.index(last)] = slot
        self._vacant.clear()
