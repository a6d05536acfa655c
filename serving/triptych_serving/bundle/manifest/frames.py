"""Frames around the texts of a translation model, by language: tokens that name a language, or instructions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from triptych_serving.bundle.fields import JsonFields

Ids = tuple[int, ...]

SHORTEST = 2  # tokens of a text, including its end


@dataclass(frozen=True)
class SourceFrame:
    """Ids around a text's own; `after` follows its end of sentence."""

    before: Ids = ()
    after: Ids = ()


@dataclass(frozen=True)
class TargetFrame:
    """Text and ids that tell the model its target language."""

    text: str = ""  # put before the source text, before tokenizing ("translate English to German: ")
    before: Ids = ()  # ids before the source, in front of the source's own
    forced: Ids = ()  # the first tokens of every translation


@dataclass(frozen=True)
class Framing:
    """The complete frame of one language pair."""

    text: str = ""
    before: Ids = ()
    after: Ids = ()
    forced: Ids = ()

    @property
    def size(self) -> int:
        """Number of ids around a source, without those of the text."""
        return len(self.before) + len(self.after)


BARE = Framing()


@dataclass(frozen=True)
class Frames:
    """Frames by language code; other codes have no frame.

    sources               code -> before, after: ids around the text's own
    targets               code -> text (before the source text), before (ids in front of the source's own `before`), forced
                          (first ids of every translation)
    """

    sources: Mapping[str, SourceFrame] = field(default_factory=dict)
    targets: Mapping[str, TargetFrame] = field(default_factory=dict)

    def of(self, source: str, target: str) -> Framing:
        """Return the framing of a pair of the model's codes."""
        if not self.sources and not self.targets:
            return BARE
        near, far = self.sources.get(source, SourceFrame()), self.targets.get(target, TargetFrame())
        return Framing(far.text, far.before + near.before, near.after, far.forced)


def parse_frames(fields: JsonFields) -> Frames:
    """Read the optional member `frames`; errors are added to the fields' faults."""
    frames = fields.object("frames", optional=True)
    return Frames(
        {
            code: SourceFrame(frame.ids("before"), frame.ids("after"))
            for code, frame in frames.objects("sources", optional=True).items()
        },
        {
            code: TargetFrame(frame.get("text", str, ""), frame.ids("before"), frame.ids("forced"))
            for code, frame in frames.objects("targets", optional=True).items()
        },
    )


def check_frames(frames: Frames, sources: Sequence[str], targets: Sequence[str], faults: list[str]) -> None:
    """Report frames of languages that the model does not have."""
    for kind, given, codes in (("sources", frames.sources, sources), ("targets", frames.targets, targets)):
        known = set(codes)
        faults.extend(f"frames.{kind}.{code}: {code!r} is none of {kind[:-1]}_languages" for code in given if code not in known)


def check_room(frames: Frames, end: int, max_source: int, max_length: int, faults: list[str]) -> None:
    """Report frames that leave no room for a text or its translation, and forced tokens that end the sentence."""
    around = max((len(frame.before) + len(frame.after) for frame in frames.sources.values()), default=0)
    in_front = max((len(frame.before) for frame in frames.targets.values()), default=0)
    if around + in_front and around + in_front + SHORTEST > max_source:
        faults.append(f"frames: {around + in_front} ids around a source leave no room in limits.max_source_tokens {max_source}")
    for code, frame in frames.targets.items():
        if frame.forced and len(frame.forced) >= max_length:
            faults.append(
                f"frames.targets.{code}.forced: {len(frame.forced)} ids leave no room in generation.max_length {max_length}"
            )
        if end in frame.forced:
            faults.append(f"frames.targets.{code}.forced: {end} is the end of the sentence")
