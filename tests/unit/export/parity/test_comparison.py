"""Comparison behind every encoder's parity report."""

import numpy as np
import pytest

from triptych_export.errors import ParityError
from triptych_export.parity.comparison import Outputs, check_answers, check_half, compare_answers, decisions, report_answers

NAN = float("nan")


def answer(**values: object) -> Outputs:
    return {name: np.array(value, np.float32) for name, value in values.items()}


def check(expected: Outputs, got: Outputs) -> dict[str, object]:
    return check_answers([expected], lambda _size: [got])


def test_equal_outputs_pass_and_are_counted() -> None:
    same = answer(mean=[1, 2], log_probabilities=[[-1, -2, -3], [-3, -2, -1]], next_sentence=[0.25, 0.75])
    assert check(same, same) == {
        "samples": 1,
        "decisions": 3,
        "batches": [1, 3, 16],
        "largest_difference": {"mean": 0.0, "log_probabilities": 0.0, "next_sentence": 0.0},
        "best_choices_equal": True,
    }


def test_every_batch_size_runs_and_the_largest_difference_is_reported() -> None:
    sizes: list[int] = []

    def run(size: int) -> list[Outputs]:
        sizes.append(size)
        return [answer(mean=[1 + size * 1e-5])]

    report = check_answers([answer(mean=[1])], run)
    assert sizes == [1, 3, 16]
    assert report["largest_difference"]["mean"] == pytest.approx(16e-5, rel=0.01)


@pytest.mark.parametrize(
    ("expected", "got", "message"),
    [
        (
            answer(mean=[1, 2]),
            answer(mean=[1, 2.01]),
            "mean, 1 at once: differs from PyTorch by up to 0.01, the limit is 0.002",
        ),
        (answer(probabilities=[0.5, 0.5]), answer(probabilities=[0.5003, 0.4997]), "the limit is 0.0001"),
        (answer(cls=[1]), answer(cls=[NAN]), "differs from PyTorch by up to nan"),
        (answer(start=[1, 2, 3]), answer(start=[1, 2]), r"PyTorch gives shape \[3\], the bundle \[2\]"),
    ],
    ids=["hidden", "probability", "not a number", "shape"],
)
def test_a_difference_beyond_the_tolerance_is_reported(expected: Outputs, got: Outputs, message: str) -> None:
    with pytest.raises(ParityError, match=message):
        check(expected, got)


def test_another_best_choice_fails_unless_pytorch_scores_both_alike() -> None:
    check(answer(start=[2.0, 2.0005]), answer(start=[2.0005, 2.0]))
    with pytest.raises(ParityError, match="decision 0: PyTorch ranks 1 where the bundle has 0"):
        check(answer(probabilities=[0.49992, 0.50008, 0]), answer(probabilities=[0.50001, 0.49999, 0]))


def test_logits_become_probabilities_and_probabilities_stay() -> None:
    found = decisions(answer(start=[0, 0], probabilities=[[0.9, 0.1], [0.2, 0.8]], mean=[5, 5]))
    assert [vector.tolist() for vector in found] == [
        pytest.approx([0.9, 0.1]),
        pytest.approx([0.2, 0.8]),
        pytest.approx([0.5, 0.5]),
    ]


def test_agreement_of_a_quantized_variant() -> None:
    expected = [answer(probabilities=[0.7, 0.3], mean=[1, 0]), answer(probabilities=[0.4, 0.6], mean=[0, 2])]
    got = [answer(probabilities=[0.6, 0.4], mean=[2, 0]), answer(probabilities=[0.5, 0.5], mean=[0, 3])]
    report = compare_answers(expected, got)
    assert report == {
        "decisions": 2,
        "top_1_agreement_percent": 50.0,
        "mean_probability_difference": pytest.approx(0.1),
        "mean_cosine": 1.0,
    }
    assert compare_answers([answer(cls=[1, 1])], [answer(cls=[1, 1])]) == {"decisions": 0, "cls_cosine": 1.0}


FEW = [answer(probabilities=[0.2, 0.8], mean=[1, 0], cls=[0, 1])] * 20


@pytest.mark.parametrize(
    ("got", "message"),
    [
        (
            answer(probabilities=[NAN, NAN], mean=[1, 0], cls=[0, 1]),
            "fp16: sample 19, probabilities: not all values are finite",
        ),
        (
            answer(probabilities=[0.2, 0.8], mean=[1, 0], cls=[0, np.inf]),
            "fp16: sample 19, cls: not all values are finite",
        ),
        (answer(probabilities=[0.2, 0.8], mean=[1, 0.3], cls=[0, 1]), "fp16: mean: mean cosine with PyTorch is 0.997"),
    ],
    ids=["not a number", "infinite", "another direction"],
)
def test_one_wrong_output_in_fp16_is_rejected(got: Outputs, message: str) -> None:
    with pytest.raises(ParityError, match=message):
        check_half(FEW, [*FEW[1:], got])


def test_fp16_may_differ_in_one_choice_of_twenty_or_between_near_ties() -> None:
    other, near = answer(probabilities=[0.8, 0.2]), answer(probabilities=[0.49, 0.51])
    expected = [answer(probabilities=[0.2, 0.8])] * 18 + [near] * 2
    turned = [answer(probabilities=[0.51, 0.49])] * 2
    report = check_half(expected, [other, *expected[1:18], *turned])
    assert report == compare_answers(expected, [other, *expected[1:18], *turned])
    assert report["top_1_agreement_percent"] == 85
    with pytest.raises(ParityError, match="fp16: 18 of 20 best choices agree with PyTorch, at least 95 %"):
        check_half(expected, [other, other, *expected[2:18], *turned])


def test_only_fp16_has_floors() -> None:
    wrong = [answer(probabilities=[0.8, 0.2], mean=[0, 1], cls=[1, 0])] * 20
    given = {"fp32": FEW, "int8": wrong, "fp16": FEW}
    report = report_answers(FEW, lambda precision, _size: given[precision], ("fp16",))
    assert [report[name]["top_1_agreement_percent"] for name in ("int8", "fp16")] == [0, 100]
    with pytest.raises(ParityError, match="fp16: mean"):
        report_answers(FEW, lambda precision, _size: (given | {"fp16": wrong})[precision], ("fp16",))
