"""Every way to decode, through a real server: beams, samples, prefixes, penalties, scores, alignments, long texts."""

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from triptych.v1 import translation_pb2
from triptych.v1.translation_pb2_grpc import TranslationServiceStub
from triptych_client import Client, DecodingOptions, FailedPreconditionError, FinishReason

from ..fixtures.toy import PAIRS, SOURCE, SOURCES, TARGET, TARGETS, copy_old_bundle
from .support.in_process import LocalServer, local_server
from .test_translate import assert_is_a_good_stream

SCORES = DecodingOptions(return_scores=True)
BEAMS = DecodingOptions(beam_size=4, num_hypotheses=4, return_scores=True)
SAMPLES = DecodingOptions(sampling_topk=0, sampling_temperature=3.0, seed=11)
TEXT = f"  {SOURCES[0]} {SOURCES[1]}\n\n\t{SOURCES[2]}\r\n"
TRANSLATION = f"  {TARGETS[0]} {TARGETS[1]}\n\n\t{TARGETS[2]}\r\n"


def test_hypotheses_are_ranked_by_their_scores(client: Client) -> None:
    for translation in client.translate_many(SOURCES[:8], options=BEAMS):
        scores = [hypothesis.score for hypothesis in translation.hypotheses]
        assert len(scores) == len({hypothesis.text for hypothesis in translation.hypotheses}) == 4
        assert scores == sorted(scores, key=lambda score: -(score or -math.inf))
        assert translation.text == translation.hypotheses[0].text


def test_scores_are_absent_unless_they_are_asked_for(client: Client) -> None:
    [plain, scored] = (client.translate(SOURCE, options=options).hypotheses[0] for options in (None, SCORES))
    assert plain.text == scored.text
    assert plain.score is None
    assert scored.score is not None
    assert -0.01 < scored.score < 0


def test_scoring_prefers_the_right_translation(client: Client) -> None:
    scores = client.score_translations([(SOURCE, TARGET), (SOURCE, TARGETS[1])])
    assert scores[0].log_probability > -0.1 > -5 > scores[1].log_probability
    for score, text in zip(scores, TARGETS[:2], strict=True):
        tokens = client.translate(SOURCES[TARGETS.index(text)]).hypotheses[0].token_count
        assert len(score.token_log_probabilities) == tokens + 1
        assert sum(score.token_log_probabilities) == pytest.approx(score.log_probability, abs=1e-4)
        assert (score.model, score.model_version) == ("toy", "1")
        assert score.timing.inference_seconds > 0


def test_alignment_is_a_distribution_over_the_source(client: Client) -> None:
    options = DecodingOptions(beam_size=3, return_alignment=True)
    translation = client.translate(TEXT, options=options)
    [hypothesis] = translation.hypotheses
    assert (translation.text, translation.finish_reason) == (TRANSLATION, FinishReason.STOP)
    assert len(hypothesis.alignment) == hypothesis.token_count
    for weights in hypothesis.alignment:
        assert len(weights) == translation.source_token_count
        assert sum(weights) == pytest.approx(1, abs=1e-4)
    assert len(translation.source_spans) == translation.source_token_count
    assert "".join(TEXT[start:end] for start, end in translation.source_spans) == "".join(TEXT.split())
    assert "".join(hypothesis.text[start:end] for start, end in hypothesis.spans) == "".join(hypothesis.text.split())
    first = client.translate(SOURCES[0]).source_token_count
    assert all(weight == 0 for weight in hypothesis.alignment[0][first:])
    assert all(weight == 0 for weight in hypothesis.alignment[-1][:first])


def test_one_cut_sentence_makes_the_text_incomplete(client: Client) -> None:
    shortest = min(PAIRS, key=lambda pair: len(pair[1]))
    limit = client.translate(shortest[0]).hypotheses[0].token_count + 1
    options = DecodingOptions(max_length=limit)
    assert client.translate(shortest[0], options=options).finish_reason is FinishReason.STOP
    assert client.translate(f"{shortest[0]} {max(SOURCES, key=len)}", options=options).truncated


STREAMS = [
    pytest.param(DecodingOptions(), id="greedy"),
    pytest.param(DecodingOptions(beam_size=4, num_hypotheses=2, return_scores=True), id="beams"),
    pytest.param(SAMPLES, id="sample"),
    pytest.param(DecodingOptions(target_prefix=("Der",)), id="prefix"),
]


@pytest.mark.parametrize("options", STREAMS)
@pytest.mark.parametrize("text", [SOURCE, TEXT], ids=["sentence", "text"])
def test_a_streams_pieces_are_its_translation(client: Client, options: DecodingOptions, text: str) -> None:
    with client.translate_stream(text, options=options) as stream:
        pieces = list(stream)
    whole = client.translate(text, options=options)
    assert "".join(pieces) == stream.translation.text == whole.text
    assert all(pieces)
    assert stream.translation.hypotheses == whole.hypotheses


def test_a_stream_of_many_long_texts(translation: TranslationServiceStub) -> None:
    texts = [f" {SOURCES[i]}\n{SOURCES[i + 1]} {SOURCES[i + 2]}" for i in range(0, 120, 3)]
    expected = [f" {TARGETS[i]}\n{TARGETS[i + 1]} {TARGETS[i + 2]}" for i in range(0, 120, 3)]
    events = translation.TranslateStream(translation_pb2.TranslateStreamRequest(contents=texts))
    assert_is_a_good_stream(events, expected)


def test_a_result_does_not_wait_for_the_other_texts(translation: TranslationServiceStub) -> None:
    request = translation_pb2.TranslateStreamRequest(contents=["\n".join(SOURCES), SOURCE])
    results = [event.result.content_index for event in translation.TranslateStream(request) if event.HasField("result")]
    assert results == [1, 0]


@pytest.fixture(scope="module")
def old_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    repository: Path = tmp_path_factory.mktemp("old")
    copy_old_bundle(repository)
    with local_server(repository) as server:
        yield server


def test_an_old_bundle_decodes_greedily_and_says_what_it_lacks(old_server: LocalServer) -> None:
    with Client(old_server.address) as client:
        assert client.translate(TEXT).text == TRANSLATION
        assert client.translate(SOURCE, options=DecodingOptions(target_prefix=("Das",))).text.startswith("Das")
        with pytest.raises(FailedPreconditionError, match="export the checkpoint again"):
            client.translate(SOURCE, options=BEAMS)
        with pytest.raises(FailedPreconditionError, match="cannot score translations; export the checkpoint again"):
            client.score_translations([(SOURCE, TARGET)])
