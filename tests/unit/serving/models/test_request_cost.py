"""Bounds of the cost of requests: none that is accepted is above one, and errors name field, value and limit.

TRIPTYCH_EXAMPLES=2000 pytest tests/unit/serving/models/test_request_cost.py
"""

import re
from collections.abc import Callable
from functools import cache
from itertools import chain, count
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from triptych.decoding import DecodingOptions, SplitSentences
from triptych.v1 import embedding_pb2, fill_mask_pb2
from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.bundle.manifest import TextManifest, TranslationManifest
from triptych_serving.encoding.text_runner import LOG_PROBABILITIES, SCORES, TOKENS
from triptych_serving.errors import InvalidInputError
from triptych_serving.models.text.task import TextParts
from triptych_serving.models.text.tasks import EMBEDDING_TASK, FILL_MASK_TASK
from triptych_serving.models.translation.postprocess import assemble
from triptych_serving.models.translation.preprocess import PreparedRequest, Preprocessor
from triptych_serving.rpc.limits import LimitOptions
from triptych_serving.scheduling.admission import QueueLimits
from triptych_serving.scheduling.request import Finish, Hypothesis
from triptych_serving.services.v1.codec import packed_translation, packer
from triptych_serving.text.bert_tokenizer import BertTokenizer
from triptych_serving.text.translation_tokenizer import TranslationTokenizer
from triptych_text.steps import finish

from ....fixtures.toy import BUNDLE, ENCODER_MODELS

SETTINGS = settings(suppress_health_check=[HealthCheck.too_slow])
MESSAGE_BYTES = 20_000
# So low that few examples find a way around a bound.
LIMITS = QueueLimits(
    waiting_rows=50, waiting_tokens=600, request_characters=4_000, decode_tokens=9_000, result_bytes=60_000
)  # fmt: skip
SLOTS = 8
BERT = ENCODER_MODELS / "toy-bert" / "1"
PARTS = ["a", "a\n", "Zwei Hunde. ", "天。", "1. ", "\n", "[MASK]", "ä [MASK]\n", " ", "x" * 30, "One dog runs."]
TEXTS = st.builds(lambda part, times: part * times, st.sampled_from(PARTS), st.sampled_from([1, 2, 3, 9, 30, 100, 2_000]))
REQUESTS = st.builds(
    lambda texts, times: texts * times, st.lists(TEXTS, min_size=1, max_size=3), st.sampled_from([1, 1, 2, 5, 20, 51])
).filter(lambda texts: sum(len(text.encode()) + 2 for text in texts) <= MESSAGE_BYTES)
MASKED = REQUESTS.map(lambda texts: [f"{text[:30]}[MASK]" for text in texts])
OPTIONS = st.builds(
    DecodingOptions,
    beam_size=st.sampled_from([None, 1, 4, 8]),
    num_hypotheses=st.sampled_from([None, 1, 4, 8]),
    sampling_topk=st.sampled_from([None, None, 5]),
    max_length=st.sampled_from([None, 1, 10, 63]),
    return_alignment=st.booleans(),
    split_sentences=st.sampled_from([None, SplitSentences.OFF]),
)


@cache
def preparer() -> tuple[TranslationTokenizer, Preprocessor]:
    bundle = open_bundle(BUNDLE)
    manifest = bundle.manifest_of(TranslationManifest)
    codec = TranslationTokenizer(bundle.path("tokenizer.json"), manifest.limits.max_source_tokens)
    return codec, Preprocessor(codec, manifest, SLOTS, LIMITS)


@cache
def bert() -> tuple[BertTokenizer, TextManifest]:
    manifest = open_bundle(BERT).manifest_of(TextManifest)
    return BertTokenizer(BERT / "tokenizer.json", manifest.tokens, manifest.limits.max_tokens), manifest


def or_refused(prepare: Callable[[], Any]) -> Any:
    """Return what was prepared; None if it was refused with a clear error."""
    try:
        return prepare()
    except InvalidInputError as caught:
        error = caught
    assert error.field
    assert re.search(r"at most|is above|is not for|empty|too long|no \[MASK]", error.problem), error
    return None


def translate(prepared: PreparedRequest) -> None:
    """Give each row the longest and largest result that it may have."""
    for row in prepared.rows:
        tokens = tuple([*row.prefix, *row.source[:1] * row.max_tokens][: row.max_tokens])
        weights = np.full((len(tokens), row.size), 1 / 3, np.float32)
        one = Hypothesis(tokens, Finish.LENGTH, attention=weights if row.search.alignment else None)
        row.hypotheses = (one,) * row.search.num_hypotheses


@SETTINGS
@given(texts=REQUESTS, options=OPTIONS)
def test_no_translation_costs_more_than_the_bounds(texts: list[str], options: DecodingOptions) -> None:
    codec, preprocessor = preparer()
    prepared = or_refused(lambda: finish(preprocessor.prepare_steps(texts, options)))
    if prepared is None:
        return
    rows = prepared.rows
    assert sum(map(len, texts)) <= LIMITS.request_characters
    assert len(rows) <= LIMITS.waiting_rows
    assert sum(len(row.source) for row in rows) <= LIMITS.waiting_tokens
    assert sum(row.search.slots * row.max_tokens for row in rows) <= LIMITS.decode_tokens
    translate(prepared)
    if options.return_alignment:
        parts = chain.from_iterable(map(packed_translation, filter(None, assemble(prepared.texts, codec))))
        assert sum(map(len, parts)) <= LIMITS.result_bytes


@cache
def words() -> list[str]:
    """Return words that are one token each."""
    tokenizer = bert()[0]
    return [token for token in map(tokenizer.token, range(tokenizer.vocabulary)) if token.isalpha()]


@SETTINGS
@given(texts=MASKED, top_k=st.sampled_from([None, 1, 20, 1_000]), wanted=st.sampled_from([0, 1, 20, 100_000]))
def test_no_masks_cost_more_than_the_bounds(texts: list[str], top_k: int | None, wanted: int) -> None:
    (tokenizer, manifest), targets = bert(), tuple(words()[:wanted])
    work = or_refused(
        lambda: finish(FILL_MASK_TASK.prepare(TextParts(tokenizer, manifest, LIMITS), texts, top_k=top_k, targets=targets))
    )
    if work is None:
        return
    held = 0
    for item in work.items:
        row = item.payload
        held += 4 * len(row.places) * (0 if row.targets is None else len(row.targets))
        known = row.k if row.targets is None else len(row.targets)
        tokens = np.arange(len(row.places) * known).reshape(-1, known) % tokenizer.vocabulary
        results = np.full(tokens.shape, 0.1, np.float32)
        item.result = {SCORES: results, TOKENS: tokens, LOG_PROBABILITIES: results}
    pack = packer(fill_mask_pb2.FillMaskResponse)
    assert sum(item.size for item in work.items) <= LIMITS.waiting_tokens
    assert held + sum(len(pack(result)) for result in work.read()) <= LIMITS.result_bytes


@SETTINGS
@given(texts=REQUESTS)
def test_no_vectors_cost_more_than_the_bounds(texts: list[str]) -> None:
    tokenizer, manifest = bert()
    work = or_refused(lambda: finish(EMBEDDING_TASK.prepare(TextParts(tokenizer, manifest, LIMITS), texts)))
    if work is None:
        return
    for item in work.items:
        item.result = {manifest.pooling: np.full(manifest.hidden_size, 0.1, np.float32)}
    pack = packer(embedding_pb2.EmbedTextResponse)
    assert sum(item.size for item in work.items) <= LIMITS.waiting_tokens
    assert sum(len(pack(result)) for result in work.read()) <= LIMITS.result_bytes


@pytest.mark.parametrize(
    ("texts", "options", "message"),
    [
        (["a\n" * 100], {}, r"^contents: at least 51 rows in one request, at most 50 can wait \(--max-queue-rows\)"),
        (["a"] * 20, {"beam_size": 8, "max_length": 60},
         r"^contents: at least 20 sentences x 8 beams or samples x 60 tokens are 9,600 tokens to decode, at most 9,000"),
        (["a\n" * 30], {"beam_size": 8, "max_length": 60}, "^contents: at least 19 sentences x 8 beams .* 9,120 tokens to"),
        (["a" * 2_001, "b" * 2_000], {}, r"^contents: 4,001 characters in one request, at most 4,000 are allowed"),
        (["dog " * 30] * 30, {}, r"^contents: more than 600 tokens in one request, at most 600 can wait"),
        (["dog " * 20] * 4, {"return_alignment": True, "beam_size": 4, "num_hypotheses": 4},
         r"^contents: the alignments \(return_alignment\) of 4 texts, 4 sentences may need [\d,]+ bytes, at most 60,000 fit"),
    ],
)  # fmt: skip
def test_errors_name_field_value_and_limit(texts: list[str], options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        finish(preparer()[1].prepare_steps(texts, DecodingOptions(**options)))


def test_a_request_is_refused_before_the_rest_of_it_is_tokenized(monkeypatch: pytest.MonkeyPatch) -> None:
    codec, preprocessor = preparer()
    calls = count()
    monkeypatch.setattr("triptych_serving.text.validation.BATCH_TEXTS", 5)
    encode = codec.encode_source_steps
    monkeypatch.setattr(codec, "encode_source_steps", lambda *some: (next(calls), encode(*some))[1])
    with pytest.raises(InvalidInputError, match="rows"):
        finish(preprocessor.prepare_steps(["a\n" * 1_000], DecodingOptions()))
    assert next(calls) == 0


def test_a_default_server_takes_what_its_queue_holds() -> None:
    limits = LimitOptions()
    assert limits.decode_tokens >= limits.queue_rows * 256  # greedy, with the usual length limit
    assert limits.request_characters >= 4 * limits.queue_tokens
    assert limits.queue.result_bytes == limits.message_bytes
