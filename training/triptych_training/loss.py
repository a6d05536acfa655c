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

    def forward(self, source: Tensor, inputs: Tensor, labels: Tensor, places: Tensor | None = None) -> Tensor:
        """`[B, S]`, `[B, T]`, `[B, T]` -> scalar.

        `places` `[tokens]` are those of the labels that are not padding, counted row by row. Where they are not given they are
        looked for, for which a GPU has to be waited for.
        """
        labels = labels.flatten()
        if places is None:
            places = (labels != self.model.config.pad_id).nonzero()[:, 0]
        logits = self.model.projection(self.model.hidden(source, inputs).flatten(0, 1)[places])  # [tokens, V]
        return functional.cross_entropy(logits.float(), labels[places], label_smoothing=self.smoothing, reduction="sum")
