"""Cross-entropy over a batch of sentences, label-smoothed (Szegedy et al. 2016)."""

from torch import Tensor, nn
from torch.nn import functional

from triptych_training.transformer import Transformer


class SequenceLoss(nn.Module):
    """The sum over all target tokens, in nats; padding costs neither loss nor projection."""

    def __init__(self, model: Transformer, smoothing: float) -> None:
        super().__init__()
        self.model = model
        self.smoothing = smoothing

    def forward(self, source: Tensor, inputs: Tensor, labels: Tensor) -> Tensor:
        """`[B, S]`, `[B, T]`, `[B, T]` -> scalar."""
        real = labels != self.model.config.pad_id
        logits = self.model.projection(self.model.hidden(source, inputs)[real])  # [tokens, V]
        return functional.cross_entropy(logits.float(), labels[real], label_smoothing=self.smoothing, reduction="sum")
