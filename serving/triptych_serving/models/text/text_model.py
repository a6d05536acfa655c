"""A model of the BERT family ready to serve: a bundle's tokenizer and graph behind one engine."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from triptych_serving.bundle.bundle import Bundle
from triptych_serving.bundle.capability import EMBEDDING, capabilities_of, describe, unsupported
from triptych_serving.bundle.manifest import (
    FILL_MASK,
    QUESTION_ANSWERING,
    TEXT_CLASSIFICATION,
    TOKEN_CLASSIFICATION,
    TextManifest,
)
from triptych_serving.encoding.cuda.text_runner import DeviceTextRunner, text_plan
from triptych_serving.encoding.loading import EncoderGraph, load_encoder
from triptych_serving.encoding.options import DEFAULTS, EncoderOptions, Work
from triptych_serving.encoding.text_runner import TextRunner
from triptych_serving.models.results import AnsweredQuestion, ClassifiedText, FilledText, LabelledText, TextEmbedding
from triptych_serving.models.text.embedding import prepare_embed
from triptych_serving.models.text.fill_mask import prepare_fill_mask
from triptych_serving.models.text.question_answering import prepare_answer
from triptych_serving.models.text.text_classification import NEXT_SENTENCE_LABELS, TextOrPair, prepare_classify
from triptych_serving.models.text.token_classification import prepare_classify_tokens
from triptych_serving.runtime.device import Device
from triptych_serving.scheduling.engine import run_rows
from triptych_serving.scheduling.wait_estimator import IncomingTexts
from triptych_serving.text.bert_tokenizer import BertCodec

Result = TypeVar("Result")


class TextModel:
    """One version of one model. Thread-safe.

    All its tasks share one queue, and their rows share batches. Each has a pair of methods: `prepare_...` checks and tokenizes,
    for callers that hand the work to `engine` themselves; the other one does it all and waits.

    Raises:
        BundleError: the bundle lacks the precision, or a file cannot be loaded.
        DeviceError: a device cannot be used, or has no room.
        EngineError: the runtime failed.
    """

    def __init__(self, name: str, version: int, bundle: Bundle, options: EncoderOptions = DEFAULTS) -> None:
        self.name, self.version = name, version
        self.manifest = bundle.manifest_of(TextManifest)
        self.precision = bundle.precision(options.precision)
        self.labels = NEXT_SENTENCE_LABELS if self.manifest.next_sentence else self.manifest.labels
        self.capabilities = capabilities_of(self.manifest)
        self.codec = BertCodec(bundle.path("tokenizer.json"), self.manifest.tokens, self.manifest.limits.max_tokens)
        self.weight_bytes = bundle.weight_bytes(self.precision)
        self.devices = options.devices
        self._work = load_encoder(self._graph(bundle), options)
        self.engine = self._work.engine
        self.engines = (self.engine,)
        self.coming = IncomingTexts()

    def prepare_fill_mask(
        self, texts: Sequence[str], top_k: int | None = None, targets: Sequence[str] = ()
    ) -> Work[FilledText]:
        """See `fill_mask`."""
        self._require(FILL_MASK)
        return prepare_fill_mask(self.codec, self.manifest, texts, top_k, targets)

    def fill_mask(self, texts: Sequence[str], top_k: int = 5, targets: Sequence[str] = ()) -> list[FilledText]:
        """Rank the tokens that may stand at each [MASK] of each text; order is kept.

        Args:
            texts: each with one [MASK] or several.
            top_k: candidates of each mask, 1 to 1,000.
            targets: rank these words alone, each one token of the model.

        Raises:
            ServingError: whatever kept the masks from being filled.
        """
        return self.run(self.prepare_fill_mask(texts, top_k, targets))

    def prepare_embed(
        self, texts: Sequence[str], pooling: str | None = None, normalize: bool | None = None
    ) -> Work[TextEmbedding]:
        """See `embed`."""
        self._require(EMBEDDING)
        return prepare_embed(self.codec, self.manifest, texts, pooling, normalize)

    def embed(self, texts: Sequence[str], pooling: str | None = None, normalize: bool | None = None) -> list[TextEmbedding]:
        """Turn each text into a vector of the model's hidden size; order is kept.

        Args:
            texts: "[MASK]" is text like any other.
            pooling: "mean" or "cls"; None: as the bundle has it.
            normalize: scale each vector to length 1; None: as the bundle has it.

        Raises:
            ServingError: whatever kept the texts from being embedded.
        """
        return self.run(self.prepare_embed(texts, pooling, normalize))

    def prepare_classify(self, inputs: Sequence[TextOrPair], top_k: int | None = None) -> Work[ClassifiedText]:
        """See `classify`."""
        self._require(TEXT_CLASSIFICATION)
        return prepare_classify(self.codec, self.manifest, inputs, top_k)

    def classify(self, inputs: Sequence[TextOrPair], top_k: int | None = None) -> list[ClassifiedText]:
        """Rank the labels of each text, or (text, text) pair; order is kept.

        Args:
            inputs: pairs where the model takes pairs.
            top_k: labels of each input; None: all.

        Raises:
            ServingError: whatever kept the inputs from being classified.
        """
        return self.run(self.prepare_classify(inputs, top_k))

    def prepare_classify_tokens(self, texts: Sequence[str], aggregation: str = "simple") -> Work[LabelledText]:
        """See `classify_tokens`."""
        self._require(TOKEN_CLASSIFICATION)
        return prepare_classify_tokens(self.codec, self.labels, texts, aggregation)

    def classify_tokens(self, texts: Sequence[str], aggregation: str = "simple") -> list[LabelledText]:
        """Find the entities of each text; order is kept.

        Args:
            texts: "[MASK]" is text like any other.
            aggregation: "simple" or "none".

        Raises:
            ServingError: whatever kept the texts from being labelled.
        """
        return self.run(self.prepare_classify_tokens(texts, aggregation))

    def prepare_answer(
        self, inputs: Sequence[tuple[str, str]], top_k: int | None = None, max_answer_length: int | None = None
    ) -> Work[AnsweredQuestion]:
        """See `answer`."""
        self._require(QUESTION_ANSWERING)
        return prepare_answer(self.codec, inputs, top_k, max_answer_length)

    def answer(self, inputs: Sequence[tuple[str, str]], top_k: int = 1, max_answer_length: int = 15) -> list[AnsweredQuestion]:
        """Find the answers to each (question, context) in its context; order is kept.

        Args:
            inputs: questions, each with where to look.
            top_k: answers to each question, 1 to 100.
            max_answer_length: tokens.

        Raises:
            ServingError: whatever kept the questions from being answered.
        """
        return self.run(self.prepare_answer(inputs, top_k, max_answer_length))

    def run(self, work: Work[Result]) -> list[Result]:
        """Have prepared work done, and wait.

        Raises:
            ServingError: the engine refused it, or the runtime failed.
        """
        if not work.items:
            return []
        run_rows(self.engine, work.items, work.field)
        return work.read()

    @property
    def reserved(self) -> Mapping[Device, int]:
        """Bytes that are set aside on each GPU."""
        return self._work.reserved

    def load(self) -> tuple[int, int]:
        """Texts that run, texts that wait."""
        return self.engine.load()

    def describe(self) -> str:
        """For the log."""
        return f"{describe(self.capabilities)}, {self._work.takes}, at most {self.manifest.limits.max_tokens:,} tokens"

    def close(self, drain: bool = True) -> None:
        """Stop the engine."""
        self._work.close(drain)

    def _graph(self, bundle: Bundle) -> EncoderGraph:
        tokens, vocabulary, most = self.manifest.tokens, self.codec.vocabulary, self.manifest.limits.max_tokens
        return EncoderGraph(
            f"model {self.name} version {self.version}",
            bundle,
            self.weight_bytes,
            self.precision,
            self.manifest.precisions[self.precision],
            self.manifest.hidden_size,
            lambda session: TextRunner(session, tokens, vocabulary),
            lambda limits, session: text_plan(limits, most, vocabulary, session),
            lambda fleet: DeviceTextRunner(fleet, tokens.pad),
        )

    def _require(self, capability: str) -> None:
        if capability not in self.capabilities:
            raise unsupported(self.name, capability, self.capabilities)
