"""Choice of alignment heads by agreement with a lexicon."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from triptych_export.families import alignment
from triptych_export.families.alignment import choose_alignment
from triptych_serving.bundle.manifest import AlignmentHeads
from triptych_training.data.lexicon import Lexicon

WORDS = 40  # source word w means w + WORDS
SIZE = 3 + 2 * WORDS
LEXICON = Lexicon(
    np.concatenate([[0, 0, 0, 0], np.arange(1, WORDS + 1), [WORDS] * WORDS]),
    np.arange(WORDS) + 3 + WORDS,
    np.zeros(0, np.int64),
)


def source() -> Any:
    """A model of 2 layers with 3 heads; texts are numbers of words."""
    config = SimpleNamespace(vocabulary_size=SIZE, decoder_layers=2, decoder_block=SimpleNamespace(heads=3), bos_id=1)
    tokenizer = SimpleNamespace(encode=lambda text: SimpleNamespace(ids=[*map(int, text.split()), 2]))
    return SimpleNamespace(model=SimpleNamespace(config=config), tokenizer=tokenizer, max_source=50, max_target=50)


def pairs() -> list[tuple[str, str]]:
    dice = np.random.default_rng(3)
    words = [dice.permutation(WORDS)[:8] + 3 for _ in range(40)]
    return [(" ".join(map(str, each)), " ".join(map(str, each[::-1] + WORDS))) for each in words]


@pytest.mark.parametrize(
    ("good", "chosen"),
    [
        ([(0, 1)], AlignmentHeads(0, (1,))),
        ([(1, 0), (1, 1), (1, 2)], AlignmentHeads(1, (0, 1, 2))),  # the last layer's mean stays where it is best
    ],
)
def test_the_heads_that_agree_most_are_chosen(
    monkeypatch: pytest.MonkeyPatch, good: list[tuple[int, int]], chosen: AlignmentHeads
) -> None:
    dice = np.random.default_rng(5)

    def weights(_: object, ids: list[int], target: list[int]) -> Any:
        found = dice.random((2, 3, len(target), len(ids)), np.float32)
        for layer, head in good:  # targets are in the opposite order
            found[layer, head, np.arange(len(target) - 1), np.arange(len(ids) - 2, -1, -1)] = 2
        return found

    monkeypatch.setattr(alignment, "cross_attention", weights)
    monkeypatch.setattr(alignment, "Transformer", SimpleNamespace)
    choice = choose_alignment(source(), LEXICON, pairs())
    assert choice is not None
    assert (choice.heads, choice.agreement) == (chosen, 1)
    assert (choice.of_last_layer == 1) == (chosen.layer == 1)
    assert choice.metrics["alignment_agreement_percent"] == 100
    assert choose_alignment(source(), LEXICON, [("4", "4")]) is None
