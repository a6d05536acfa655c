"""A translation model's defaults of decoding."""

from dataclasses import dataclass, fields

from triptych_serving.fields import Fields
from triptych_serving.ranges import range_fault


@dataclass(frozen=True)
class Generation:
    """What counts where a request does not say; the names and meanings are the wire's. All but max_length may be left out."""

    max_length: int  # tokens, the end of the sentence not included
    beam_size: int = 1
    patience: float = 1.0
    num_hypotheses: int = 1
    length_penalty: float = 1.0
    coverage_penalty: float = 0.0
    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0
    min_length: int = 0


def parse_generation(values: Fields) -> Generation:
    """Read and check it; what is wrong goes to the fields' faults."""
    known = {"max_length": values.positive("max_length")}
    optional = [field for field in fields(Generation) if field.name not in known]
    generation = Generation(
        **known, **{field.name: values.get(field.name, type(field.default), field.default) for field in optional}
    )
    for field in optional:
        if problem := range_fault(field.name, getattr(generation, field.name)):
            values.faults.append(f"{values.path}.{field.name}: {problem}")
    _check_together(generation, values)
    return generation


def _check_together(generation: Generation, values: Fields) -> None:
    if generation.num_hypotheses > generation.beam_size:
        values.faults.append(
            f"{values.path}.num_hypotheses {generation.num_hypotheses} is above beam_size {generation.beam_size}"
        )
    if generation.min_length > max(1, generation.max_length):
        values.faults.append(f"{values.path}.min_length {generation.min_length} is above max_length {generation.max_length}")
