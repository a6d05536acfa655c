"""Translation by a decoder-only model, whose chat template asks it to translate."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from triptych.decoding import DecodingOptions
from triptych_serving.bundle.bundle import Bundle
from triptych_serving.bundle.manifest import PromptedTranslationManifest
from triptych_serving.bundle.search_params import SearchParams
from triptych_serving.decoding.prompt_lane_factory import PromptLaneFactory
from triptych_serving.encoding.options import Work
from triptych_serving.errors import InvalidInputError, UnsupportedError
from triptych_serving.models.decode_model import DecodeModelOptions
from triptych_serving.models.generation.chat import ChatMessage
from triptych_serving.models.generation.generator import Generator
from triptych_serving.models.request_cost import RowLimit, check_characters
from triptych_serving.models.translation.options import ModelDefaults, ResolvedOptions, resolve_options
from triptych_serving.models.translation.preprocess import PreparedRequest, PreparedText, check_texts, split_texts
from triptych_serving.models.translation.scoring import Scorer, TranslationScore
from triptych_serving.models.translation.translator import TranslationModel
from triptych_serving.scheduling.engine import Engine
from triptych_serving.scheduling.request import Row
from triptych_serving.text.languages import describe_pair, resolve_pair
from triptych_serving.text.translation_tokenizer import TranslationTokenizer
from triptych_serving.text.validation import CONTENTS, SHOWN_CHARACTERS
from triptych_text.sentences import Splitter, whole
from triptych_text.steps import Steps

SOURCE_SHARE = 3  # a source takes at most one in so many tokens of the context, which also has the prompt and the translation
FOREIGN = ("coverage_penalty", "return_alignment", "target_prefix")  # options that need an encoder


class PromptedTranslator(TranslationModel[PromptLaneFactory]):
    """A decoder-only model that is asked to translate each sentence."""

    manifest: PromptedTranslationManifest
    aligns = False

    def __init__(self, name: str, version: int, bundle: Bundle, options: DecodeModelOptions) -> None:
        self.manifest = bundle.manifest_of(PromptedTranslationManifest)
        super().__init__(name, version, bundle, options)
        self._generator = generator = Generator(name, version, bundle, options)
        self.lanes, self.engine = generator.lanes, generator.engine
        self._model_devices, self._engine_options = generator._model_devices, generator._engine_options
        assert generator.chat is not None  # the manifest has a template
        self._chat, self._most = generator.chat, generator.context // SOURCE_SHARE
        self.tokenizer = _Tokenizer(bundle.path("tokenizer.json"), self._most)

    @property
    def engines(self) -> list[Engine[Any]]:
        return [self.engine]

    @property
    def scorer(self) -> Scorer:
        self._refuse_scores()

    def score_steps(
        self, deadline: float | None, pairs: Sequence[tuple[str, str]], source_language: str = "", target_language: str = ""
    ) -> Steps[Work[TranslationScore]]:
        self._refuse_scores()

    def describe(self) -> str:
        return f"{describe_pair(self.manifest)}, {self._generator.describe()}"

    def _refuse_scores(self) -> NoReturn:
        raise UnsupportedError(f"model {self.name!r} is asked to translate; it does not score given translations")

    def _prepare_steps(
        self,
        texts: Sequence[str],
        options: DecodingOptions,
        source_language: str,
        target_language: str,
        admit: Callable[[SearchParams], None] | None = None,
    ) -> Steps[PreparedRequest]:
        manifest = self.manifest
        pair, resolved = resolve_pair(manifest, source_language, target_language), self._resolve(options)
        limit = RowLimit(resolved.search.slots, resolved.max_tokens, self._limits)
        limit.check(CONTENTS.list, len(texts))
        check_characters(CONTENTS.list, sum(map(len, texts)), self._limits)
        if admit is not None:
            admit(resolved.search)
        check_texts(texts)
        split = list(map(whole, texts))
        if resolved.splits:
            split = yield from split_texts(texts, Splitter(pair.language, self.tokenizer.fits), limit)
        names = {
            "source_language": manifest.languages[pair.source],
            "source_code": pair.source,
            "target_language": manifest.languages[pair.target],
            "target_code": pair.target,
        }
        prepared = []
        for index, sentences in enumerate(split):
            rows = []
            for sentence in sentences.texts:
                rows.append(self._row(CONTENTS.whole(index), sentence, names, resolved))
                yield
            prepared.append(PreparedText(sentences, tuple(rows)))
        return PreparedRequest(tuple(prepared))

    def _resolve(self, options: DecodingOptions) -> ResolvedOptions:
        for name in FOREIGN:
            if getattr(options, name) not in (None, (), False):
                raise UnsupportedError(f"options.{name}: model {self.name!r} is asked to translate, and has no encoder")
        context = self._generator.context
        defaults = ModelDefaults(self.manifest.generation, context + 1, splits=self.manifest.splits)
        resolved = resolve_options(options, 1, defaults, self._engine_options.slots)
        if resolved.search.samples and resolved.search.num_hypotheses > 1:
            problem = f"{resolved.search.num_hypotheses} samples of each text; this model has one, send the text several times"
            raise InvalidInputError("options.num_hypotheses", problem)
        return resolved

    def _row(self, field: str, sentence: str, names: dict[str, str], resolved: ResolvedOptions) -> Row:
        size = len(self._generator.tokenizer.encode(sentence, add_special_tokens=False))
        if size > self._most:
            problem = f"{size:,} tokens are too long for one sentence, the model takes at most {self._most:,} tokens"
            raise InvalidInputError(field, f"{problem}; it begins {sentence[:SHOWN_CHARACTERS]!r}")
        ids = self._chat.encode([ChatMessage("user", sentence)], names)
        left = self._generator.context - len(ids)
        if left < 1:
            raise InvalidInputError(field, f"the prompt has {len(ids):,} tokens, which leave no room for a translation")
        row = self._generator.row(ids, min(left, resolved.max_tokens), resolved.search)
        row.frame = replace(row.frame, before=len(ids) - size)
        return row


class _Tokenizer(TranslationTokenizer):
    """Leaves out white space around a translation, with which language models begin or end."""

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        return [text.strip() for text in super().decode(rows)]

    def decode_stable(self, row: Sequence[int]) -> str:
        return super().decode_stable(row).lstrip()
