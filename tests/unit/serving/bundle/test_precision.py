"""Which devices a precision is for."""

from triptych_serving.bundle.manifest import FP16, runs_on


def test_fp16_is_for_both_and_others_are_for_the_cpu() -> None:
    assert runs_on(FP16) == {"cpu", "cuda"}
    assert {runs_on(precision) for precision in ("fp32", "int8", "int8-shortlist", "int8-stable")} == {frozenset({"cpu"})}
