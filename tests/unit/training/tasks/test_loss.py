"""Loss of translation models."""

import pytest
import torch
from torch.nn import functional

from triptych_training.data.batches import Example, collate
from triptych_training.tasks.translation import SequenceLoss

from ..toy import SHAPE, make_ids, make_model

EXAMPLES = [Example(source, target) for source, target in zip(make_ids(9, 4, 6), make_ids(3, 8, 5), strict=True)]


def loss_of(examples: list[Example], smoothing: float) -> torch.Tensor:
    batch = collate(examples, SHAPE.pad_id, SHAPE.bos_id)
    result: torch.Tensor = SequenceLoss(make_model(), smoothing)(batch.source, batch.inputs, batch.labels)
    return result


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_of_a_batch_is_the_sum_over_its_sentences(smoothing: float) -> None:
    alone = sum(loss_of([example], smoothing).item() for example in EXAMPLES)
    assert loss_of(EXAMPLES, smoothing).item() == pytest.approx(alone, rel=1e-5)


def test_label_smoothing_mixes_in_the_mean_over_all_tokens() -> None:
    batch = collate(EXAMPLES[:1], SHAPE.pad_id, SHAPE.bos_id)
    logs = functional.log_softmax(make_model()(batch.source, batch.inputs)[0], dim=-1)
    hard = -logs.gather(1, batch.labels[0][:, None]).sum().item()
    assert loss_of(EXAMPLES[:1], 0.0).item() == pytest.approx(hard, rel=1e-5)
    assert loss_of(EXAMPLES[:1], 0.1).item() == pytest.approx(0.9 * hard - 0.1 * logs.mean(-1).sum().item(), rel=1e-5)
