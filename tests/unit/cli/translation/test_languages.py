"""Models with several languages on the command line."""

import json
from pathlib import Path

import pytest

from ....fixtures.framed import BEGINNING, copy_framed
from ....fixtures.toy import SOURCE, TARGET, copy_bundle
from ..conftest import Run

FROM, TO_GERMAN, TO_DUTCH = (("--source-language", "de"), ("--target-language", "deu_Latn"), ("--target-language", "nl"))


@pytest.fixture
def models(tmp_path: Path) -> Path:
    copy_framed(tmp_path)
    return tmp_path


def test_translations_and_scores_in_the_chosen_language(run: Run, models: Path) -> None:
    plain = run("translate", "--models", models, "--target-prefix", BEGINNING, *FROM, *TO_GERMAN, SOURCE)
    framed = run("translate", "--models", models, *FROM, *TO_DUTCH, SOURCE)
    assert plain.out == f"{BEGINNING} {framed.out}"
    assert run("translate", "--models", models, "--stream", *FROM, *TO_DUTCH, SOURCE).out == framed.out
    right, wrong = (
        float(run("score", "--models", models, *FROM, *languages, SOURCE, TARGET).out) for languages in (TO_GERMAN, TO_DUTCH)
    )
    assert right > -0.1 > -1 > wrong


def test_a_missing_language_is_an_error_that_lists_the_choices(run: Run, models: Path) -> None:
    error = run("translate", "--models", models, *FROM, SOURCE).error
    assert error.startswith("target_language_code: ")
    assert error.endswith("deu_Latn, nld_Latn, ita_Latn, fra_Latn")


def test_the_table_of_models_shortens_long_lists(run: Run, tmp_path: Path) -> None:
    codes = [f"{first}{second}_Latn" for first in "bcdfghj" for second in "aeiou"]
    for name, sources, targets in (("each", codes, codes), ("from", codes, ["en"]), ("text", ["und"], ["und"])):
        copy_bundle(tmp_path, name, source_languages=sources, target_languages=targets)
    rows = json.loads(run("models", "--models", tmp_path, "--json").out)
    some = "35 languages: ba_Latn, be_Latn, bi_Latn, bo_Latn, ..."
    assert {row["name"]: row["languages"] for row in rows} == {
        "each": f"among {some}",
        "from": f"{some} to en",
        "text": "und to und",
    }


def test_a_model_that_takes_texts_whole_splits_on_request(run: Run, tmp_path: Path) -> None:
    copy_bundle(tmp_path, splits=False)
    text = f"{SOURCE} {SOURCE}"
    options: list[tuple[str, ...]] = [(), ("--split-sentences", "auto"), ("--split-sentences", "off")]
    whole, split, off = (run("translate", "--models", tmp_path, *more, text).out for more in options)
    assert split == f"{TARGET} {TARGET}\n"
    assert whole == off != split
