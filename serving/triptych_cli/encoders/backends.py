"""Where what encoder models answer comes from: an engine in this process, or a server."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, Self, TypeAlias

from triptych_cli.common.errors import needs
from triptych_cli.common.options import asks_server
from triptych_embedded.repository import embedded_repository
from triptych_embedded.request import Place

if TYPE_CHECKING:
    import triptych_client as client
    from triptych_serving.models.image.image_job import ClassifiedImage as ServedImage
    from triptych_serving.models.labels import ScoredLabel
    from triptych_serving.models.text import embedding, fill_mask, question_answering, text_classification, token_classification

# Both have the members of the wire's messages.
FilledText: TypeAlias = "client.FilledText | fill_mask.FilledText"
Embedding: TypeAlias = "client.Embedding | embedding.TextEmbedding"
ClassifiedImage: TypeAlias = "client.ClassifiedImage | ServedImage"
ClassifiedText: TypeAlias = "client.ClassifiedText | text_classification.ClassifiedText"
LabelledText: TypeAlias = "client.LabelledText | token_classification.LabelledText"
AnsweredQuestion: TypeAlias = "client.AnsweredQuestion | question_answering.AnsweredQuestion"
Labels: TypeAlias = "Sequence[client.ScoredLabel] | Sequence[ScoredLabel]"
TextOrPair: TypeAlias = str | tuple[str, str]


class Encoders(Protocol):
    """Models that read their input once. A context manager. Order is kept.

    All methods raise InputError where one of the inputs is the cause, and BackendError for anything else.
    """

    def __enter__(self) -> Self: ...

    def __exit__(self, *details: object) -> None: ...

    def fill_mask(self, texts: Sequence[str], top_k: int, targets: Sequence[str]) -> Sequence[FilledText]:
        """What may stand at each mask."""
        ...

    def embed(self, texts: Sequence[str], pooling: str | None, normalize: bool | None) -> Sequence[Embedding]:
        """Vectors; None: as the model has it."""
        ...

    def classify_texts(self, inputs: Sequence[TextOrPair], top_k: int | None) -> Sequence[ClassifiedText]:
        """Labels of each; None: all."""
        ...

    def classify_tokens(self, texts: Sequence[str], aggregation: str) -> Sequence[LabelledText]:
        """Entities."""
        ...

    def answer(self, pairs: Sequence[tuple[str, str]], top_k: int, max_answer_length: int) -> Sequence[AnsweredQuestion]:
        """Answers to questions, each with its context."""
        ...

    def classify_images(self, images: Sequence[bytes], top_k: int) -> Sequence[ClassifiedImage]:
        """Labels."""
        ...


def open_encoders(place: Place, capability: str) -> Encoders:
    """A server's client if the command is for one, else an engine in this process with the model that can do it.

    Args:
        place: which model, and where.
        capability: one of `triptych_serving.models.capabilities`, such as "fill-mask".

    Raises:
        click.ClickException: options contradict each other, or an extra is missing.
    """
    if not asks_server():
        needs("triptych_serving.repository.registry", "serve")
        from triptych_cli.encoders.embedded import EmbeddedEncoders

        return EmbeddedEncoders(place, place.models or embedded_repository(), capability)
    from triptych_cli.encoders.remote import RemoteEncoders

    return RemoteEncoders(place)
