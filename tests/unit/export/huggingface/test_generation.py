"""generation_config.json as members of a manifest."""

import re
from pathlib import Path
from typing import Any

import pytest

from triptych_export.errors import SourceError
from triptych_export.huggingface.checkpoint.generation import GenerationSettings, read_decoder_generation, read_generation
from triptych_export.huggingface.folder import Folder
from triptych_serving.bundle.fields import JsonFields
from triptych_serving.bundle.manifest.translation import Generation, parse_generation

from ....fixtures.json_files import write_json

LIMIT = 64
IDS = {"pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 3}


def read(
    folder: Path, own: dict[str, Any] | None, config: dict[str, Any] | None = None, **options: dict[str, Any]
) -> GenerationSettings:
    """`own`: generation_config.json, None for none."""
    write_json(folder / "config.json", IDS if config is None else config)
    if own is not None:
        write_json(folder / "generation_config.json", own)
    return read_generation(Folder(folder), LIMIT, options.get("defaults", {}), options.get("wanted"))


def test_where_nothing_is_said_a_text_may_be_as_long_as_the_model_can_make_it(tmp_path: Path) -> None:
    settings = read(tmp_path, {})
    assert (settings.pad, settings.start, settings.ends, settings.first_token, settings.unsupported) == (1, 3, (2,), None, "")
    assert settings.members == {"rules": "transformers", "max_length": LIMIT - 1}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"num_beams": 5}, {"beam_size": 5}),
        ({"num_beams": 5, "num_return_sequences": 3}, {"beam_size": 5, "num_hypotheses": 3}),
        ({"length_penalty": 2}, {"length_penalty": 2.0}),
        ({"length_penalty": 1.0, "num_beams": 1, "repetition_penalty": 1.0, "no_repeat_ngram_size": 0}, {}),
        ({"repetition_penalty": 1.2, "no_repeat_ngram_size": 3}, {"repetition_penalty": 1.2, "no_repeat_ngram_size": 3}),
        ({"early_stopping": True}, {"early_stopping": "full"}),
        ({"early_stopping": False}, {}),
        ({"early_stopping": "never"}, {"early_stopping": "never"}),
        ({"max_length": 20}, {"max_length": 19}),
        ({"max_length": 500}, {"max_length": LIMIT - 1}),
        ({"max_new_tokens": 20, "max_length": 7}, {"max_length": 20}),
        ({"min_length": 6}, {"min_length": 5}),
        ({"min_length": 1}, {}),
        ({"min_length": 6, "min_new_tokens": 9}, {"min_length": 9}),
        ({"forced_eos_token_id": 2, "max_length": 20}, {"forced_end": True, "max_length": 18}),
        ({"forced_eos_token_id": [2], "max_length": 20}, {"forced_end": True, "max_length": 18}),
        ({"bad_words_ids": [[1], [2], [7, 8], [1]]}, {"suppressed_tokens": [[1], [7, 8]]}),
        ({"suppress_tokens": [5, 6], "bad_words_ids": [[5]]}, {"suppressed_tokens": [[5], [6]]}),
        ({"renormalize_logits": True}, {"renormalize": True}),
        ({"num_beams": None, "max_length": None, "bad_words_ids": None, "early_stopping": None}, {}),
    ],
    ids=str,
)
def test_members_keep_their_meaning(given: dict[str, Any], expected: dict[str, Any], tmp_path: Path) -> None:
    settings = read(tmp_path, given)
    assert settings.members == {"rules": "transformers", "max_length": LIMIT - 1, **expected}
    assert settings.unsupported == ""


def test_serving_reads_all_of_them(tmp_path: Path) -> None:
    given = {"num_beams": 4, "num_return_sequences": 2, "length_penalty": -0.5, "repetition_penalty": 1.5, "min_length": 3}
    given |= {"no_repeat_ngram_size": 2, "early_stopping": True, "bad_words_ids": [[7]], "forced_eos_token_id": 2}
    faults: list[str] = []
    generation = parse_generation(JsonFields({**read(tmp_path, given).members}, "generation", faults), Generation)
    assert not faults
    assert (generation.beam_size, generation.num_hypotheses, generation.max_length) == (4, 2, LIMIT - 2)
    assert (generation.suppressed_tokens, generation.forced_end) == (((7,),), True)


def test_the_first_token(tmp_path: Path) -> None:
    assert read(tmp_path, {"forced_bos_token_id": 9}).first_token == 9
    old = {**IDS, "bos_token_id": 0, "force_bos_token_to_be_generated": True}
    assert read(tmp_path, {"max_length": 9}, old).first_token == 0


def test_old_checkpoints_have_it_in_the_other_file(tmp_path: Path) -> None:
    config = {**IDS, "num_beams": 6, "max_length": 30}
    settings = read(tmp_path, None, config, defaults={"forced_eos_token_id": 2, "pad_token_id": 8})
    assert settings.members == {"rules": "transformers", "max_length": 28, "beam_size": 6, "forced_end": True}
    assert settings.pad == 1
    # With a file of its own nothing but special ids is read from config.json.
    assert read(tmp_path, {"num_beams": 3}, config).members == {
        "rules": "transformers",
        "max_length": LIMIT - 1,
        "beam_size": 3,
    }


def test_the_decoder_starts_with_the_beginning_where_nothing_else_is_said(tmp_path: Path) -> None:
    assert read(tmp_path, {"eos_token_id": [2, 2]}, {"pad_token_id": 1, "bos_token_id": 0}).start == 0
    assert read(tmp_path, {"decoder_start_token_id": 5}).start == 5


def test_what_is_wanted_counts_where_the_file_says_nothing(tmp_path: Path) -> None:
    members = read(tmp_path, {"num_beams": 2}, wanted={"num_beams": 4, "max_length": 30}).members
    assert members == {"rules": "transformers", "max_length": 29, "beam_size": 2}


def test_what_cannot_be_carried_over_is_listed(tmp_path: Path) -> None:
    given = {
        "num_beam_groups": 4,
        "diversity_penalty": 0.5,
        "typical_p": 0.9,
        "temperature": 0.7,
        "encoder_no_repeat_ngram_size": 0,
    }
    given |= {"suppress_tokens": [2, 9], "begin_suppress_tokens": [7]}
    settings = read(tmp_path, given)
    listed = (
        "num_beam_groups = 4, diversity_penalty = 0.5, begin_suppress_tokens = [7], suppress_tokens = the end of the sentence"
    )
    assert settings.unsupported == listed
    assert settings.members["suppressed_tokens"] == [[9]]
    drawn = read(tmp_path, {"do_sample": True, "temperature": 0.7, "top_p": 1.0, "top_k": 50})
    assert drawn.unsupported == "do_sample = True, temperature = 0.7, top_k = 50"


def test_what_a_decoder_cannot_carry_over_is_listed(tmp_path: Path) -> None:
    own = {"eos_token_id": [2, 5], "suppress_tokens": [5], "min_length": 8, "forced_bos_token_id": 4, "forced_eos_token_id": 0}
    write_json(tmp_path / "config.json", IDS)
    write_json(tmp_path / "generation_config.json", own)
    listed = "suppress_tokens = the end of the sentence, min_length = 8, forced_bos_token_id = 4"
    assert read_decoder_generation(Folder(tmp_path), LIMIT).unsupported == listed


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"eos_token_id": [2, 5]}, "eos_token_id: [2, 5]; only one end token is supported"),
        ({"eos_token_id": "</s>"}, "eos_token_id: '</s>'; expected a whole number of at least 0"),
        ({"eos_token_id": []}, "eos_token_id: []; expected a whole number of at least 0"),
        ({"pad_token_id": -1}, "pad_token_id: -1; expected a whole number of at least 0"),
        ({"decoder_start_token_id": [3, 4]}, "decoder_start_token_id: [3, 4]; expected a whole number of at least 0"),
        ({"forced_eos_token_id": 9}, "forced_eos_token_id: 9; expected the end token, 2"),
        ({"forced_bos_token_id": True}, "forced_bos_token_id: True; expected a whole number of at least 0"),
        ({"max_length": 1}, "max_length: 1; expected at least 2: the start token and one more"),
        ({"max_length": "long"}, "max_length: 'long'; expected a whole number of at least 0"),
        ({"min_length": 30, "max_length": 20}, "min_length: 30; must not exceed max_length"),
        ({"num_beams": 0}, "num_beams: 0 is out of range, it must be at least 1"),
        ({"num_beams": 2.5}, "num_beams: 2.5; expected a whole number of at least 0"),
        ({"num_return_sequences": 3}, "num_return_sequences: 3; must not exceed num_beams, 1"),
        ({"length_penalty": "none"}, "length_penalty: 'none'; expected a number"),
        ({"repetition_penalty": 0.0}, "repetition_penalty: 0.0 is out of range, it must be at least 0.001 and at most 1,000"),
        ({"early_stopping": "soon"}, "early_stopping: 'soon'; expected true, false or \"never\""),
        ({"early_stopping": 3}, 'early_stopping: 3; expected true, false or "never"'),
        ({"bad_words_ids": [[]]}, "bad_words_ids: [[]]; expected lists of ids"),
        ({"bad_words_ids": [7]}, "bad_words_ids: [7]; expected lists of ids"),
        ({"suppress_tokens": "7"}, "suppress_tokens: '7'; expected a list of ids"),
    ],
    ids=str,
)
def test_a_member_out_of_range_is_named(given: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=rf"^{re.escape(str(tmp_path / 'generation_config.json'))}: {re.escape(message)}"):
        read(tmp_path, given)


@pytest.mark.parametrize("missing", IDS)
def test_special_ids_have_to_be_said(missing: str, tmp_path: Path) -> None:
    config = {name: number for name, number in IDS.items() if name != missing}
    name = "bos_token_id" if missing == "decoder_start_token_id" else missing
    with pytest.raises(SourceError, match=f"config.json: {name}: None; expected a whole number"):
        read(tmp_path, None, config)
