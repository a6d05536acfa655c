"""Attention weights in CUDA graphs."""

import torch
from torch.nn import functional

from triptych_export.graphs.cuda_translation import attention_weights


def test_attention_weights_are_limited_to_the_source_length() -> None:
    torch.manual_seed(2)
    query, key = torch.randn(3, 1, 8), torch.randn(3, 1, 5, 8)
    lengths = torch.tensor([5, 1, 3])
    found = attention_weights(query, key, lengths, 2)
    assert found.shape == (3, 2, 1, 5)
    for row, length in enumerate(lengths.tolist()):
        for head in range(2):
            part = slice(4 * head, 4 * head + 4)
            scores = key[row, 0, :length, part] @ query[row, 0, part]
            torch.testing.assert_close(found[row, head, 0, :length], functional.softmax(scores, 0))
        assert not found[row, :, 0, length:].any()


def test_attention_weights_are_float32() -> None:
    half = attention_weights(torch.ones(1, 1, 8).half(), torch.ones(1, 1, 3, 8).half(), torch.tensor([2]), 1)
    assert half.dtype == torch.float32
    assert half[0, 0, 0].tolist() == [0.5, 0.5, 0.0]
