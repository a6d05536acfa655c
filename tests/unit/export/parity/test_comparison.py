"""Comparison behind every encoder's parity report."""

import numpy as np
import pytest

from triptych_export.errors import ParityError
from triptych_export.parity.comparison import Outputs, check_answers, compare_answers, decisions, with_neighbours

NAN = float("nan")


def answer(**values: object) -> Outputs:
    return {name: np.array(value, np.float32) for name, value in values.items()}


def check(expected: Outputs, got: Outputs) -> dict[str, object]:
    return check_answers([expected], lambda _size: [got])


def test_equal_outputs_pass_and_are_counted() -> None:
    same = answer(mean=[1, 2], log_probabilities=[[-1, -2, -3], [-3, -2, -1]], next_sentence=[0.25, 0.75])
    assert check(same, same) == {
        "samples": 1,
        "distinct_outputs": 1,
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
            "mean, 1 at once, value 1: differs from PyTorch by 0.01, the limit is 0.002",
        ),
        (answer(cls=[3000, 1, 1]), answer(cls=[3000, 1, 1.01]), "cls, 1 at once, value 2: .* by 0.01, the limit is 0.001"),
        (answer(start=[40, 1]), answer(start=[40.02, 1.02]), "start, 1 at once, value 1: .* the limit is 0.001"),
        (answer(probabilities=[0.5, 0.5]), answer(probabilities=[0.5003, 0.4997]), "the limit is 0.0001"),
        (answer(cls=[1]), answer(cls=[NAN]), "differs from PyTorch by nan"),
        (answer(start=[1, 2, 3]), answer(start=[1, 2]), r"PyTorch gives shape \[3\], the bundle \[2\]"),
    ],
    ids=["hidden", "beside an outlier", "beside a large logit", "probability", "not a number", "shape"],
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
    expected = [answer(probabilities=[0.7, 0.3], mean=[1, 0]), answer(probabilities=[0.49, 0.51], mean=[0, 2])]
    got = [answer(probabilities=[0.4, 0.6], mean=[2, 0]), answer(probabilities=[0.6, 0.4], mean=[0, 3])]
    assert compare_answers(expected, got) == {
        "decisions": 2,
        "top_1_agreement_percent": 0.0,
        "near_agreement_percent": 50.0,
        "mean_probability_difference": pytest.approx(0.205),
        "mean_cosine": 1.0,
        "mean_worst_channel_error_percent": pytest.approx(100 * 2**-0.5 / 0.75, abs=0.01),
    }
    assert compare_answers([answer(start=[1, 2])], [answer(start=[NAN, 2])])["samples_not_finite"] == 1


def test_one_label_is_judged_by_the_order_of_the_samples() -> None:
    def answers(*logits: float) -> list[Outputs]:
        return [answer(probabilities=[1 / (1 + np.exp(-logit))], logits=[logit]) for logit in logits]

    report = compare_answers(answers(-3, 0, 1, 4), answers(-3, 1, 0, 5))
    assert report["order_agreement_percent"] == pytest.approx(100 * 5 / 6, abs=0.01)
    assert not {"top_1_agreement_percent", "near_agreement_percent"} & report.keys()


def test_an_outlier_does_not_hide_wrong_channels() -> None:
    values = np.random.default_rng(0).normal(size=(40, 64))
    values[:, 0] += 3000
    expected = [answer(mean=row) for row in values]
    turned = [answer(mean=[row[0], *-row[1:]]) for row in values]
    report = compare_answers(expected, turned)
    assert report["mean_cosine"] > 0.9999
    assert report["mean_worst_channel_error_percent"] > 200


def test_a_channel_that_hardly_varies_does_not_hide_good_ones() -> None:
    values, noise = np.random.default_rng(0).normal(size=(2, 40, 64))
    found = [answer(mean=row) for row in values + noise * [9, *[0.05] * 63]]
    assert compare_answers([answer(mean=row) for row in values], found)["mean_worst_channel_error_percent"] > 75
    report = compare_answers([answer(mean=row) for row in values], found, median=True)
    assert report["mean_median_channel_error_percent"] == pytest.approx(5, abs=1)


def test_vectors_decide_by_their_nearest_neighbour() -> None:
    expected = with_neighbours([answer(cls=each) for each in ([1, 0], [0.9, 0.1], [0, 1], [0.2, 1])], "cls")
    assert [int(each["neighbours"].argmax()) for each in expected] == [1, 0, 3, 2]
    got = with_neighbours([answer(cls=each) for each in ([1, 0], [0.9, 0.1], [0, 1], [0.9, 0.2])], "cls")
    report = compare_answers(expected, got)
    assert (report["decisions"], report["nearest_neighbour_agreement_percent"]) == (4, 50.0)
    with pytest.raises(ParityError, match="sample 0, neighbours"):
        check_answers(
            expected, lambda _size: [{**theirs, "cls": ours["cls"]} for ours, theirs in zip(expected, got, strict=True)]
        )
