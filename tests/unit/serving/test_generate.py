"""The reference searches give the same results as `generate()` of transformers."""

from functools import partial
from typing import Any

import pytest

from .generate import Generate, beam_search, greedy
from .toy_graphs import END, VOCABULARY, table

pytestmark = pytest.mark.full
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

START = END
PAD = 0
SOURCE = (7, 5)
CONSTRAINTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "forced": {"forced": (6,)},
    "forced end": {"forced_end": True, "max_tokens": 6},
    "both": {"forced": (6,), "forced_end": True, "max_tokens": 5},
    "bans": {"bad_words": ((5,), (7, 8), (9, 4, 11), (3, END))},
    "shortest": {"min_length": 9},
    "repetition": {"repetition_penalty": 1.7},
    "no pair twice": {"no_repeat_ngram_size": 2},
    "no token twice": {"no_repeat_ngram_size": 1},
}


class Table(transformers.PreTrainedModel, transformers.GenerationMixin):  # type: ignore[misc,name-defined]
    """A decoder alone; its prompt is the start token."""

    config_class = transformers.PretrainedConfig
    main_input_name = "input_ids"

    def __init__(self, source: tuple[int, ...]) -> None:
        super().__init__(transformers.PretrainedConfig(vocab_size=VOCABULARY, is_encoder_decoder=False))
        self.source = source
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self, input_ids: Any, **_: Any) -> Any:
        rows = [torch.tensor(table(self.source, tuple(ids[1:])), dtype=torch.float32) for ids in input_ids.tolist()]
        return transformers.modeling_outputs.CausalLMOutput(logits=torch.stack(rows)[:, None])

    def prepare_inputs_for_generation(self, input_ids: Any, **_: Any) -> dict[str, Any]:
        return {"input_ids": input_ids}


def generate(options: Generate, seed: int, **more: Any) -> Any:
    optional: dict[str, Any] = {
        "forced_bos_token_id": options.forced[0] if options.forced else None,
        "forced_eos_token_id": END if options.forced_end else None,
        "bad_words_ids": [list(run) for run in options.bad_words] or None,
    }
    config = transformers.GenerationConfig(
        max_length=options.max_length,
        min_length=options.min_length,
        num_beams=options.num_beams,
        num_return_sequences=options.num_beams,
        length_penalty=options.length_penalty,
        early_stopping=options.early_stopping,
        repetition_penalty=options.repetition_penalty,
        no_repeat_ngram_size=options.no_repeat_ngram_size,
        do_sample=False,
        use_cache=False,
        eos_token_id=END,
        pad_token_id=PAD,
        return_dict_in_generate=True,
        output_scores=True,
        **{name: value for name, value in optional.items() if value is not None},
    )
    with torch.no_grad():
        return Table((*SOURCE, seed)).generate(torch.tensor([[START]]), generation_config=config)


def tokens_of(sequence: Any) -> tuple[int, ...]:
    ids = sequence.tolist()[1:]
    return tuple(ids[: ids.index(END)] if END in ids else ids)


@pytest.mark.parametrize("name", CONSTRAINTS)
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 2.0, -0.5])
@pytest.mark.parametrize("stopping", [False, True, "never"])
def test_beams(stopping: bool | str, alpha: float, name: str) -> None:
    asked: dict[str, Any] = {"max_tokens": 12, **CONSTRAINTS[name]}
    options = Generate(START, END, num_beams=4, length_penalty=alpha, early_stopping=stopping, **asked)
    for seed in range(6):
        theirs = generate(options, seed)
        ours = beam_search(partial(table, (*SOURCE, seed)), options)
        assert [tokens_of(sequence) for sequence in theirs.sequences] == [one.tokens for one in ours]
        assert theirs.sequences_scores.tolist() == pytest.approx([one.score for one in ours], abs=1e-4)


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_greedy_search(name: str) -> None:
    asked: dict[str, Any] = {"max_tokens": 12, **CONSTRAINTS[name]}
    options = Generate(START, END, **asked)
    for seed in range(10):
        [sequence] = generate(options, seed).sequences
        ours = greedy(partial(table, (*SOURCE, seed)), options)
        assert tokens_of(sequence) == tuple(token for token in ours if token != END)
