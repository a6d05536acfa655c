"""A translation model's defaults of decoding, and the rules of its searches."""

from dataclasses import dataclass, fields

from triptych_serving.bundle.fields import Fields
from triptych_serving.bundle.option_ranges import RANGES, range_fault
from triptych_serving.bundle.search_params import EarlyStopping, Rules


@dataclass(frozen=True)
class Generation:
    """What counts where a request does not say; the names and meanings are the wire's, but that the lengths count the tokens
    that the model's frames force too. All but max_length may be left out.

    No request changes the last four.
    """

    max_length: int  # tokens, the end of the sentence not included
    beam_size: int = 1
    patience: float = 1.0
    num_hypotheses: int = 1
    length_penalty: float = 1.0
    coverage_penalty: float = 0.0
    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0
    min_length: int = 0
    rules: Rules = Rules.CTRANSLATE2
    early_stopping: EarlyStopping = EarlyStopping.HEURISTIC  # by the rules of transformers alone
    forced_end: bool = False  # what reaches max_length is ended there: the end counts in its length
    suppressed_tokens: tuple[tuple[int, ...], ...] = ()  # runs of ids that must not occur; the step graph knows the single ones


def parse_generation(values: Fields) -> Generation:
    """Read and check it; what is wrong goes to the fields' faults."""
    numbers = [field for field in fields(Generation) if field.name in RANGES and field.name != "max_length"]
    generation = Generation(
        max_length=values.positive("max_length"),
        **{field.name: values.get(field.name, type(field.default), field.default) for field in numbers},
        rules=Rules(values.choice("rules", tuple(Rules), Rules.CTRANSLATE2)),
        early_stopping=EarlyStopping(values.choice("early_stopping", tuple(EarlyStopping), EarlyStopping.HEURISTIC)),
        forced_end=values.get("forced_end", bool, False),
        suppressed_tokens=values.id_lists("suppressed_tokens"),
    )
    for field in numbers:
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
    strange = "patience" if generation.rules is Rules.TRANSFORMERS else "early_stopping"
    if strange in values.values:
        values.faults.append(f"{values.path}.{strange} is not among the rules of {generation.rules}")
