"""The Triptych client: translations, filled masks, embeddings and labels from a Triptych server, in a few lines.

    from triptych_client import Client

    with Client("localhost:8001") as client:
        translation = client.translate("Good morning!", target_language="de")
        print(translation.text)
        for translation in client.translate_many(["One.", "Two."], target_language="de"):
            print(translation.text, translation.finish_reason)
        print(client.fill_mask("The capital of France is [MASK].").masks[0].candidates[0].sequence)
        print(client.classify_image("cat.jpg").labels[0].label)

`AsyncClient` is the same for asyncio. `triptych_client.errors` explains the exceptions, `triptych_client.arguments` the named
arguments that calls share. Of this distribution the package imports only `triptych`; every other package may import it.
"""

from triptych.decoding import DecodingOptions, SplitSentences
from triptych.version import __version__
from triptych_client.arguments import Aggregation, Pooling
from triptych_client.async_client import AsyncClient
from triptych_client.client import Client
from triptych_client.connection import tls_credentials
from triptych_client.errors import (
    CallCancelledError,
    DeadlineExceededError,
    FailedPreconditionError,
    FieldViolation,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    ResourceExhaustedError,
    ServerError,
    TriptychClientError,
    UnauthenticatedError,
    UnavailableError,
    UnimplementedError,
)
from triptych_client.generation import Generation, GenerationChoice, TokenLogprob, ToolCall
from triptych_client.results import (
    AlignmentHeads,
    Attention,
    AttentionToken,
    ClassifiedImage,
    CompletedImage,
    DocumentFinding,
    DocumentProgress,
    FindingKind,
    FinishReason,
    GeneratedImage,
    GeneratedImages,
    Hypothesis,
    ImageCompletion,
    ImageOutcome,
    Model,
    ModelState,
    Results,
    ScoredLabel,
    Severity,
    Timing,
    TranslatedDocument,
    Translation,
    Translations,
    TranslationScore,
)
from triptych_client.tensors import Tensor
from triptych_client.text_tasks import (
    Answer,
    AnsweredQuestion,
    ClassifiedText,
    Embedding,
    Entity,
    FilledMask,
    FilledText,
    LabelledText,
    MaskCandidate,
    NearestWords,
    Neighbor,
    RankedDocument,
)
from triptych_client.translation_stream import (
    AsyncGenerationStream,
    AsyncTranslationStream,
    GenerationStream,
    TranslationStream,
)

__all__ = [
    "Aggregation",
    "AlignmentHeads",
    "Answer",
    "AnsweredQuestion",
    "AsyncClient",
    "AsyncGenerationStream",
    "AsyncTranslationStream",
    "Attention",
    "AttentionToken",
    "CallCancelledError",
    "ClassifiedImage",
    "ClassifiedText",
    "Client",
    "CompletedImage",
    "DeadlineExceededError",
    "DecodingOptions",
    "DocumentFinding",
    "DocumentProgress",
    "Embedding",
    "Entity",
    "FailedPreconditionError",
    "FieldViolation",
    "FilledMask",
    "FilledText",
    "FindingKind",
    "FinishReason",
    "GeneratedImage",
    "GeneratedImages",
    "Generation",
    "GenerationChoice",
    "GenerationStream",
    "Hypothesis",
    "ImageCompletion",
    "ImageOutcome",
    "InvalidArgumentError",
    "LabelledText",
    "MaskCandidate",
    "Model",
    "ModelState",
    "NearestWords",
    "Neighbor",
    "NotFoundError",
    "PermissionDeniedError",
    "Pooling",
    "RankedDocument",
    "ResourceExhaustedError",
    "Results",
    "ScoredLabel",
    "ServerError",
    "Severity",
    "SplitSentences",
    "Tensor",
    "Timing",
    "TokenLogprob",
    "ToolCall",
    "TranslatedDocument",
    "Translation",
    "TranslationScore",
    "TranslationStream",
    "Translations",
    "TriptychClientError",
    "UnauthenticatedError",
    "UnavailableError",
    "UnimplementedError",
    "__version__",
    "tls_credentials",
]
