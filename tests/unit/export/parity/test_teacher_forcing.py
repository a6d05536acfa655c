"""Counting tokens that follow PyTorch's own."""

import pytest

from triptych_export.errors import ParityError
from triptych_export.parity.teacher_forcing import check_agreement, forced_agreement
from triptych_export.parity.translation import Sample

END = 2


def test_ends_count_and_what_follows_a_different_token_still_may_agree() -> None:
    sample = Sample([[9], [9]], [[5, 6, 7], [8]], max_length=9)
    report = forced_agreement([[5, 0, 7, END], [8, END]], sample, END)
    assert report == {"forced_tokens": 6, "forced_token_agreement_percent": 83.333}


def test_prefixes_do_not_count() -> None:
    sample = Sample([[9]], [[5, 6]], max_length=9, prefixes=[(5,)])
    assert forced_agreement([[0, 6, END]], sample, END) == {"forced_tokens": 2, "forced_token_agreement_percent": 100.0}


def test_an_answer_that_was_cut_has_no_end() -> None:
    sample = Sample([[9]], [[5, 6]], max_length=2)
    assert forced_agreement([[5, 6, 4]], sample, END) == {"forced_tokens": 2, "forced_token_agreement_percent": 100.0}


@pytest.mark.parametrize("report", [(100, 95.0), (0, 0.0)])
def test_nearly_all_tokens_must_be_pytorch_s_where_there_are_any(report: tuple[int, float]) -> None:
    check_agreement(dict(zip(("forced_tokens", "forced_token_agreement_percent"), report, strict=True)))


def test_too_few_of_pytorch_s_tokens_are_refused() -> None:
    message = r"fp16: 94\.999 % of 1,200 teacher-forced tokens agree with PyTorch, at least 95 % are required"
    with pytest.raises(ParityError, match=message):
        check_agreement({"forced_tokens": 1200, "forced_token_agreement_percent": 94.999})
