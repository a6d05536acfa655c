"""A loaded model of text tasks, such as a BERT: a bundle's tokenizer and graph behind one engine."""

from collections.abc import Sequence
from dataclasses import replace
from math import isqrt
from typing import Any, TypeVar

from triptych_serving.bundle.bundle import Bundle
from triptych_serving.bundle.manifest import FP16, TextManifest
from triptych_serving.encoding.cuda.text_runner import DeviceTextRunner, text_plan
from triptych_serving.encoding.loading import GraphRunners
from triptych_serving.encoding.options import DEFAULTS, EncoderOptions, Work
from triptych_serving.encoding.text_runner import TextRunner
from triptych_serving.models.capabilities import describe, unsupported
from triptych_serving.models.encoder_model import EncoderModel
from triptych_serving.models.request_cost import check_characters, check_rows
from triptych_serving.models.text.task import TextInput, TextParts, TextTask, characters_of
from triptych_serving.models.text.text_classification import NEXT_SENTENCE_LABELS
from triptych_serving.runtime.cpu_info import usable_cpus, usable_memory
from triptych_serving.runtime.native.library import native_kernels
from triptych_serving.scheduling.engine import run_rows
from triptych_serving.scheduling.wait_estimator import IncomingTexts
from triptych_serving.text.bert_tokenizer import BertTokenizer
from triptych_text.steps import Steps, finish

Result = TypeVar("Result")


class TextModel(EncoderModel):
    """A model of the text family. All tasks share one queue, and their rows share batches."""

    manifest: TextManifest

    def __init__(self, name: str, version: int, bundle: Bundle, options: EncoderOptions = DEFAULTS) -> None:
        super().__init__(name, version, bundle, options)
        manifest = bundle.manifest_of(TextManifest)
        native = manifest.causal_head and native_kernels(manifest.causal_head)  # causal attention without a matrix of scores
        if manifest.pair_bytes and not native and self.precision != FP16:
            longest = min(manifest.limits.max_tokens, self._longest_text(manifest.pair_bytes, options))
            manifest = replace(manifest, limits=replace(manifest.limits, max_tokens=longest))
        self.manifest = manifest
        self.labels = NEXT_SENTENCE_LABELS if manifest.next_sentence else manifest.labels
        tokens, most = manifest.tokens, manifest.limits.max_tokens
        self.tokenizer = BertTokenizer(bundle.path("tokenizer.json"), tokens, most, manifest.template)
        vocabulary = self.tokenizer.vocabulary
        if rows := manifest.limits.max_rows:
            batches = replace(options.limits, batch_rows=min(rows, options.limits.batch_rows))
            options = replace(options, limits=batches)
        runners = GraphRunners(
            manifest.hidden_size,
            lambda session: TextRunner(session, tokens, vocabulary, manifest.limits.max_rows),
            lambda limits, session: text_plan(limits, most, vocabulary, session),
            lambda replicas: DeviceTextRunner(replicas, tokens.pad),
            manifest.causal_head,
        )
        self._start(bundle, options, runners)
        self.parts = TextParts(self.tokenizer, manifest, options.limits)
        self.incoming_texts = IncomingTexts()

    def _longest_text(self, pair_bytes: int, options: EncoderOptions) -> int:
        """Return how many tokens a text may have for what all runs need for pairs of them to fit into half of the memory."""
        runs = options.engine(self.weight_bytes, usable_cpus())[1].runs
        return isqrt(usable_memory() // 2 // runs // pair_bytes)

    def prepare(self, task: TextTask[Result], inputs: Sequence[TextInput], **options: Any) -> Work[Result]:
        """Prepare a request in one call; arguments and errors as for `prepare_steps`."""
        return finish(self.prepare_steps(task, inputs, **options))

    def prepare_steps(self, task: TextTask[Result], inputs: Sequence[TextInput], **options: Any) -> Steps[Work[Result]]:
        """Check and tokenize a request in small steps; the resulting work's items go to `engine`.

        Args:
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
        return task.prepare(self.parts, inputs, **options)

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

    def describe(self) -> str:
        return f"{describe(self.capabilities)}, {self._encoder.takes}, at most {self.manifest.limits.max_tokens:,} tokens"
