"""Which request comes next."""

from triptych_bench.load.feed import Feed

from ..fakes import batches


def test_every_batch_has_its_turn_before_one_comes_again() -> None:
    feed = Feed(batches(7), seed=3)
    rounds = [[feed.take() for _ in range(7)] for _ in range(20)]
    assert all(sorted(one) == list(range(7)) for one in rounds)
    assert len({tuple(one) for one in rounds}) > 1


def test_the_seed_gives_the_order() -> None:
    def order(seed: int) -> list[int]:
        feed = Feed(batches(20), seed)
        return [feed.take() for _ in range(60)]

    assert order(1) == order(1)
    assert order(1) != order(2)
