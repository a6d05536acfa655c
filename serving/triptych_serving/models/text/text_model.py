"""A loaded model of the BERT family: a bundle's tokenizer and graph behind one engine."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from triptych_serving.bundle.bundle import Bundle
from triptych_serving.bundle.manifest import TextManifest
from triptych_serving.encoding.cuda.text_runner import DeviceTextRunner, text_plan
from triptych_serving.encoding.engine import OneShotEngine
from triptych_serving.encoding.loading import EncoderGraph, load_encoder
from triptych_serving.encoding.options import DEFAULTS, EncoderOptions, Work
from triptych_serving.encoding.text_runner import TextRunner
from triptych_serving.models.attender import Attender
from triptych_serving.models.capabilities import capabilities_of, describe, unsupported
from triptych_serving.models.request_cost import check_characters, check_rows
from triptych_serving.models.text.task import TextInput, TextTask, characters_of
from triptych_serving.models.text.text_classification import NEXT_SENTENCE_LABELS
from triptych_serving.runtime.device import Device
from triptych_serving.scheduling.engine import run_rows
from triptych_serving.scheduling.wait_estimator import IncomingTexts
from triptych_serving.text.bert_tokenizer import BertTokenizer
from triptych_text.steps import Steps, finish

Result = TypeVar("Result")


class TextModel:
    """One version of one model. Thread-safe.

    All tasks share one queue, and their rows share batches.

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
        self.tokenizer = BertTokenizer(bundle.path("tokenizer.json"), self.manifest.tokens, self.manifest.limits.max_tokens)
        self.weight_bytes = bundle.weight_bytes(self.precision)
        self.devices = options.devices
        if rows := self.manifest.limits.max_rows:
            batches = replace(options.limits, batch_rows=min(rows, options.limits.batch_rows))
            options = replace(options, limits=batches)
        self._limits = options.limits
        self._encoder = load_encoder(self._graph(bundle), options)
        self.engine = self._encoder.engine
        graph = self.manifest.precisions[self.precision]
        self.attender = Attender(name, bundle, graph.attend, graph.saturation_free, options.limits, options.gives_way)
        self.coming = IncomingTexts()

    def prepare(self, task: TextTask[Result], inputs: Sequence[TextInput], **options: Any) -> Work[Result]:
        """Prepare a request in one call; arguments and errors as for `prepare_steps`."""
        return finish(self.prepare_steps(task, inputs, **options))

    def prepare_steps(self, task: TextTask[Result], inputs: Sequence[TextInput], **options: Any) -> Steps[Work[Result]]:
        """Check and tokenize a request in small steps; the resulting work's items go to `engine`.

        Args:
            task: one of `models.text.tasks`.
            inputs: texts, or pairs of texts.
            options: the task's; None selects the default.

        Raises:
            UnsupportedError: the model cannot do this task.
            InvalidInputError: an input or option is not acceptable; names the field.
        """
        if task.name not in self.capabilities:
            raise unsupported(self.name, task.name, self.capabilities)
        check_rows(task.names.list, len(inputs), self._limits)
        check_characters(task.names.list, characters_of(inputs, options), self._limits)
        return task.prepare(self.tokenizer, self.manifest, self._limits, inputs, **options)

    def run(self, task: TextTask[Result], inputs: Sequence[TextInput], **options: Any) -> list[Result]:
        """Run a task in this process and wait; results are in the order of the inputs. Arguments as for `prepare`.

        Raises:
            ServingError: as `prepare`; or the engine rejected the request, or the runtime failed.
        """
        work = self.prepare(task, inputs, **options)
        if not work.items:
            return []
        run_rows(self.engine, work.items, work.field)
        return list(work.read())

    @property
    def engines(self) -> tuple[OneShotEngine, ...]:
        """The engines created so far."""
        return (self.engine, *self.attender.engines)

    @property
    def reserved(self) -> Mapping[Device, int]:
        """Bytes reserved on each GPU."""
        return self._encoder.reserved

    def load(self) -> tuple[int, int]:
        """Return the numbers of running and waiting texts."""
        running, waiting = (sum(numbers) for numbers in zip(*(engine.load() for engine in self.engines), strict=True))
        return running, waiting

    def describe(self) -> str:
        """Describe the model for the log."""
        return f"{describe(self.capabilities)}, {self._encoder.takes}, at most {self.manifest.limits.max_tokens:,} tokens"

    def close(self, drain: bool = True) -> None:
        """Stop the engine: with `drain`, after all accepted requests."""
        self._encoder.close(drain)
        self.attender.close(drain)

    def _graph(self, bundle: Bundle) -> EncoderGraph:
        tokens, vocabulary, most = self.manifest.tokens, self.tokenizer.vocabulary, self.manifest.limits.max_tokens
        return EncoderGraph(
            f"model {self.name} version {self.version}",
            bundle,
            self.weight_bytes,
            self.precision,
            self.manifest.precisions[self.precision],
            self.manifest.hidden_size,
            lambda session: TextRunner(session, tokens, vocabulary),
            lambda limits, session: text_plan(limits, most, vocabulary, session),
            lambda replicas: DeviceTextRunner(replicas, tokens.pad),
        )
