"""The services of the text and image families on a real port, beside translation, without the SDK."""

from pathlib import Path

import grpc
import pytest

from triptych.v1 import embedding_pb2, fill_mask_pb2, fill_mask_pb2_grpc, model_pb2
from triptych_serving.encoding.text_runner import TextRunner
from triptych_serving.repository.registry import ModelSelector

from ..fixtures.encoders import COLOURS, ENTITIES, write_text_bundle
from ..unit.serving.calls import hold_calls
from .support.in_process import options_of, serving
from .support.messages import GREEN, RED, ask
from .support.processes import eventually


def test_masks_are_filled_in_order(channel: grpc.Channel) -> None:
    response = ask(channel, "FillMask", contents=["one [MASK]", "One two [MASK], six [MASK]."], top_k=2, model="fill-mask")
    assert [[mask.candidates[0].token_str for mask in text.masks] for text in response.results] == [["two"], ["three", "seven"]]
    assert response.results[1].masks[1].candidates[0].sequence == "One two [MASK], six seven."
    assert [len(mask.candidates) for text in response.results for mask in text.masks] == [2, 2, 2]
    assert (response.model, response.model_version, response.results[0].token_count) == ("fill-mask", "1", 4)
    timing = response.timing
    assert min(timing.queue_seconds, timing.preprocess_seconds, timing.postprocess_seconds) >= 0
    assert timing.inference_seconds > 0


def test_texts_become_vectors(channel: grpc.Channel) -> None:
    pooling = embedding_pb2.POOLING_CLS
    response = ask(channel, "EmbedText", contents=["one", "one two"], model="fill-mask", pooling=pooling)
    assert [list(embedding.values) for embedding in response.embeddings] == [[2, 0, 0, 1]] * 2
    assert [embedding.token_count for embedding in response.embeddings] == [3, 4]
    unit = ask(channel, "EmbedText", contents=["one"], model="question-answering", normalize=True)
    assert sum(value * value for value in unit.embeddings[0].values) == pytest.approx(1)
    cut = ask(channel, "EmbedText", contents=["one", "one " * 500], model="fill-mask", truncate=True)
    assert [embedding.truncated for embedding in cut.embeddings] == [False, True]
    assert unit.model == "question-answering"


def test_texts_get_labels(channel: grpc.Channel) -> None:
    inputs = [{"text": text} for text in ("one", "one two three")]
    response = ask(channel, "ClassifyText", inputs=inputs, top_k=1, model="text-classification")
    assert [(text.labels[0].label, text.labels[0].index) for text in response.results] == [("one word", 0), ("many words", 2)]
    assert response.results[0].labels[0].score == pytest.approx(0.665, abs=0.001)


def test_entities_are_found(channel: grpc.Channel) -> None:
    response = ask(channel, "ClassifyTokens", contents=["Anna Smith lives in Paris"])
    found = [(one.label, one.text, one.start, one.end) for one in response.results[0].entities]
    assert found == [("PER", "Anna Smith", 0, 10), ("LOC", "Paris", 20, 25)]


def test_questions_are_answered(channel: grpc.Channel) -> None:
    inputs = [{"question": "where?", "context": "Anna Smith lives in Paris"}]
    response = ask(channel, "AnswerQuestion", inputs=inputs, top_k=2, max_answer_length=3)
    assert [answer.text for answer in response.results[0].answers] == ["Paris", "Anna Smith"]


def test_documents_are_ranked(channel: grpc.Channel) -> None:
    documents = ["one", "one two three four", "one two"]
    response = ask(channel, "Rerank", query="zero", documents=documents, top_k=2)
    assert [(one.index, one.token_count, one.truncated) for one in response.results] == [(1, 8, False), (2, 6, False)]
    assert [one.score for one in response.results] == pytest.approx([0.880797, 0.5])
    assert (response.model, response.model_version) == ("cross-encoder", "1")
    assert response.timing.inference_seconds > 0


def test_images_get_labels(channel: grpc.Channel) -> None:
    response = ask(channel, "ClassifyImage", images=[RED, GREEN], top_k=2)
    assert [image.labels[0].label for image in response.results] == ["red", "green"]
    assert [(image.width, image.height, len(image.labels)) for image in response.results] == [(9, 6, 2)] * 2
    assert response.model == "image-classification"
    assert response.timing.preprocess_seconds > 0
    assert response.timing.inference_seconds > 0


def test_models_say_what_they_can_do(channel: grpc.Channel) -> None:
    response = ask(channel, "ListModels")
    models = {model.name: model for model in response.models}
    assert models["broken"].state == model_pb2.MODEL_STATE_FAILED
    assert models["fill-mask"].services == ["triptych.v1.FillMaskService", "triptych.v1.EmbeddingService"]
    assert (models["fill-mask"].task, models["fill-mask"].max_source_tokens) == ("fill-mask", 64)
    classifies, ranks = "triptych.v1.TextClassificationService", "triptych.v1.RerankService"
    assert {classifies, ranks} < set(models["cross-encoder"].services)
    assert list(models["token-classification"].labels) == ENTITIES
    assert list(models["image-classification"].labels) == COLOURS
    assert models["toy"].services == ["triptych.v1.TranslationService"]
    assert models["toy"].max_target_tokens == 64


def test_a_caller_that_goes_away_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_text_bundle(tmp_path)
    with serving(options_of(tmp_path)) as server, grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        engine = server.registry.find_text(ModelSelector(), "fill-mask").engine
        holding = hold_calls(monkeypatch, TextRunner, "run")
        held = next(holding)
        request = fill_mask_pb2.FillMaskRequest(contents=["one [MASK]"] * 5_000)
        call = fill_mask_pb2_grpc.FillMaskServiceStub(channel).FillMask.future(request)
        eventually(lambda: sum(engine.count_rows()) == 5_000)
        call.cancel()
        held.set()
        eventually(lambda: engine.count_rows() == (0, 0))
        assert ask(channel, "FillMask", contents=["one [MASK]"]).results
