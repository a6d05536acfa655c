"""The Open Inference Protocol, as the unmodified tritonclient package speaks it."""

import json
import queue
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from tritonclient import grpc as triton
from tritonclient.utils import InferenceServerException

from triptych_client import Client as TriptychClient
from triptych_client import FailedPreconditionError

from ...fixtures.encoders import COLOURS, HIDDEN, png
from ...fixtures.toy import PAIRS, SOURCE, SOURCES, TARGET, TARGETS
from ..support.processes import PATIENCE_SECONDS

Client = triton.InferenceServerClient
MODELS = [
    "broken",
    "cross-encoder",
    "fill-mask",
    "image-classification",
    "image-tensors",
    "pairs",
    "question-answering",
    "tensors",
    "text-classification",
    "text-tensors",
    "token-classification",
    "toy",
    "words",
]


@pytest.fixture
def client(every_model: str) -> Iterator[Client]:
    with Client(every_model) as client:
        yield client


def tensor(elements: Sequence[str | bytes], name: str = "text", column: bool = False) -> Any:
    array = np.array([None, *(one.encode() if isinstance(one, str) else one for one in elements)], object)[1:]
    array = array[:, None] if column else array
    made = triton.InferInput(name, array.shape, "BYTES")
    return made.set_data_from_numpy(array)


def outputs(*names: str) -> list[Any]:
    return [triton.InferRequestedOutput(name) for name in names]


def arrays(result: Any) -> dict[str, Any]:
    return {output.name: result.as_numpy(output.name) for output in result.get_response().outputs}


def failure(call: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(InferenceServerException) as error:
        call()
    return str(error.value.status()).removeprefix("StatusCode."), error.value.message()


def test_the_server_says_what_it_is_and_has(client: Client) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    metadata = client.get_server_metadata()
    assert metadata.name == "triptych"
    assert list(metadata.extensions) == ["model_repository", "model_configuration", "parameters", "statistics"]
    index = {model.name: model for model in client.get_model_repository_index().models}
    assert sorted(index) == MODELS
    assert {name for name, model in index.items() if model.state == "READY"} == set(MODELS) - {"broken"}
    assert index["broken"].state == "UNAVAILABLE"
    assert "tokenizer.json" in index["broken"].reason


def test_a_model_is_ready_or_is_not(client: Client) -> None:
    assert client.is_model_ready("toy")
    assert client.is_model_ready("toy", "1")
    for name, version in (("toy", "2"), ("broken", ""), ("nothing", ""), ("", "")):
        assert not client.is_model_ready(name, version)


@pytest.mark.parametrize("name", sorted(set(MODELS) - {"broken"}))
def test_metadata_and_configuration_say_the_same(client: Client, name: str) -> None:
    metadata, config = client.get_model_metadata(name), client.get_model_config(name).config
    assert (metadata.name, metadata.versions, metadata.platform, config.backend) == (name, ["1"], "triptych", "triptych")
    for tensors, configured in ((metadata.inputs, config.input), (metadata.outputs, config.output)):
        assert [tensor.name for tensor in tensors] == [tensor.name for tensor in configured]
        assert [list(tensor.shape) for tensor in tensors] == [[-1, *tensor.dims] for tensor in configured]
    assert config.max_batch_size > 1
    assert config.parameters["task"].string_value in name or name in ("toy", "pairs", "cross-encoder", "words")
    has_masks = "fill-mask" in config.parameters["tasks"].string_value
    assert config.parameters["mask_token"].string_value == ("[MASK]" if has_masks else "")


def test_translation(client: Client) -> None:
    result = client.infer("toy", [tensor(SOURCES[:9])], request_id="my id")
    response = result.get_response()
    assert (response.id, response.model_name, response.model_version) == ("my id", "toy", "1")
    assert arrays(result).keys() == {"translated_text"}
    assert [text.decode() for text in result.as_numpy("translated_text")] == TARGETS[:9]


def test_a_column_is_answered_by_a_column(client: Client) -> None:
    wanted = ["translated_text", "source_token_count", "token_count"]
    n = 9
    flat = arrays(client.infer("toy", [tensor(SOURCES[:n])], outputs=outputs(*wanted)))
    column = arrays(client.infer("toy", [tensor(SOURCES[:n], column=True)], outputs=outputs(*wanted)))
    assert [flat[name].shape for name in wanted] == [(n,), (n,), (n, 1)]
    assert [column[name].shape for name in wanted] == [(n, 1), (n, 1), (n, 1)]
    for name in wanted:
        assert flat[name].ravel().tolist() == column[name].ravel().tolist()


def test_options_of_decoding_are_parameters(client: Client) -> None:
    parameters = {
        "source_language_code": "en",
        "target_language_code": "de",
        "beam_size": 3,
        "num_hypotheses": 2,
        "length_penalty": 1,
        "return_scores": True,
        "split_sentences": "off",
    }
    result = arrays(client.infer("toy", [tensor([SOURCE, SOURCES[1]])], parameters=parameters))
    assert result.keys() == {"translated_text", "hypotheses", "score"}
    assert result["hypotheses"].shape == result["score"].shape == (2, 2)
    assert result["hypotheses"][:, 0].tolist() == result["translated_text"].tolist() == [TARGET.encode(), TARGETS[1].encode()]
    assert (result["score"][:, 0] > result["score"][:, 1]).all()

    prefixed = {"target_prefix": json.dumps(["Die"]), "seed": 3, "sampling_topk": 1}
    [text] = client.infer("toy", [tensor([SOURCE])], parameters=prefixed).as_numpy("translated_text")
    assert text.startswith(b"Die")


def test_outputs_are_those_that_were_asked_for_in_their_order(client: Client) -> None:
    every = [output.name for output in client.get_model_metadata("toy").outputs][::-1]
    result = client.infer("toy", [tensor([SOURCE])], outputs=outputs(*every))
    assert list(arrays(result)) == every
    alignment = json.loads(result.as_numpy("alignment")[0, 0])
    assert len(alignment) == result.as_numpy("token_count")[0, 0]
    assert {len(weights) for weights in alignment} == {result.as_numpy("source_token_count")[0]}
    assert result.as_numpy("finish_reason").tolist() == [[b"stop"]]
    assert result.as_numpy("score")[0, 0] < 0


def test_masks_are_filled(client: Client) -> None:
    texts = ["one two [MASK].", "[MASK] is five [MASK]"]
    every = outputs("sequence", "token_str", "token", "score", "mask_count", "token_count")
    result = arrays(client.infer("fill-mask", [tensor(texts)], parameters={"top_k": 2}, outputs=every))
    assert {name: array.shape for name, array in result.items()} == {
        "sequence": (2, 2, 2),
        "token_str": (2, 2, 2),
        "token": (2, 2, 2),
        "score": (2, 2, 2),
        "mask_count": (2,),
        "token_count": (2,),
    }
    assert result["token_str"][:, :, 0].tolist() == [[b"three", b""], [b"[SEP]", b"six"]]
    assert result["sequence"][0].tolist() == [[b"one two three.", b"one two four."], [b"", b""]]
    assert result["token"][0, 1].tolist() == [-1, -1]
    assert result["mask_count"].tolist() == [1, 2]

    targets = {"targets": json.dumps(["nine", "four"])}
    assert client.infer("fill-mask", [tensor(texts[:1])], parameters=targets).as_numpy("token_str").tolist() == [
        [[b"four", b"nine"]]
    ]


def test_texts_are_embedded(client: Client) -> None:
    parameters = {"task": "embedding", "pooling": "mean", "normalize": True}
    vectors = client.infer("fill-mask", [tensor(["one", "two three"])], parameters=parameters).as_numpy("embedding")
    assert vectors.shape == (2, HIDDEN)
    assert vectors.dtype == np.float32
    assert np.linalg.norm(vectors, axis=1) == pytest.approx([1, 1])


def test_tokens_have_vectors_and_those_of_shorter_texts_are_padded(client: Client, every_model: str) -> None:
    inputs, texts = [tensor(["one", "two three"])], ["one", "two three"]
    asked = client.infer("words", inputs, parameters={"task": "embedding", "token_vectors": True})
    outputs = [triton.InferRequestedOutput("token_embedding")]
    named = client.infer("words", inputs, parameters={"task": "embedding"}, outputs=outputs)
    vectors = asked.as_numpy("token_embedding")
    assert np.array_equal(named.as_numpy("token_embedding"), vectors)
    assert vectors.shape == (2, 4 * HIDDEN)
    assert not vectors[0, 3 * HIDDEN :].any()
    with TriptychClient(every_model) as plain:
        found = plain.embed_many(texts, model="words", token_vectors=True)
        assert [one.token_values for one in found] == [(*vectors[0, : 3 * HIDDEN],), (*vectors[1],)]
        assert [(one.token_starts, one.token_ends) for one in found] == [((0, 0, 0), (0, 3, 0)), ((0, 0, 4, 0), (0, 3, 9, 0))]
        assert plain.embed("one", model="words").token_values == ()
        with pytest.raises(FailedPreconditionError, match="token_vectors: the model's bundle has only vectors of whole texts"):
            plain.embed("one", model="fill-mask", token_vectors=True)


def test_texts_and_pairs_are_classified(client: Client) -> None:
    result = arrays(client.infer("text-classification", [tensor(["one", "one two"])], parameters={"top_k": 1}))
    assert result["label"].tolist() == [[b"one word"], [b"two words"]]
    assert result["score"].shape == (2, 1)
    pair = [tensor(["one"]), tensor(["two three four"], "text_pair")]
    result = arrays(client.infer("pairs", pair, parameters={"task": "text-classification"}))
    assert sorted(result["label"][0].tolist()) == [b"next", b"not_next"]
    code, message = failure(lambda: client.infer("pairs", pair[:1], parameters={"task": "text-classification"}))
    assert (code, message) == ("INVALID_ARGUMENT", "text_pair[0]: the second text is missing; the model takes pairs of texts")


def test_documents_are_scored_in_their_order(client: Client) -> None:
    def score(*documents: str, **parameters: bool) -> Any:
        inputs = [tensor(["zero"] * len(documents), "query"), tensor(documents, "documents")]
        return arrays(client.infer("cross-encoder", inputs, parameters={"task": "rerank", **parameters}))["score"].tolist()

    assert score("one", "one two three four", "one two", raw_scores=True) == [-1, 2, 0]
    assert score("one two") == [0.5]
    assert failure(lambda: score("one", " ")) == ("INVALID_ARGUMENT", "documents[1]: the text is empty")


def test_similar_words_are_found(client: Client) -> None:
    result = client.infer("words", [tensor(["five -one +two"])], parameters={"task": "neighbors", "top_k": 1})
    assert json.loads(result.as_numpy("neighbors")[0]) == [{"score": 1.0, "token": 11, "token_str": "six"}]


def test_tokens_are_classified(client: Client) -> None:
    [entities] = client.infer("token-classification", [tensor(["Anna Smith lives in Paris."])]).as_numpy("entities")
    assert [(one["text"], one["label"], one["start"]) for one in json.loads(entities)] == [
        ("Anna Smith", "PER", 0),
        ("Paris", "LOC", 20),
    ]
    each = client.infer("token-classification", [tensor(["Anna Smith"])], parameters={"aggregation": "none"})
    assert [one["label"] for one in json.loads(each.as_numpy("entities")[0])] == ["B-PER", "I-PER"]


def test_questions_are_answered(client: Client) -> None:
    inputs = [tensor(["where does anna live?"], "question"), tensor(["anna smith lives in paris."], "context")]
    result = arrays(client.infer("question-answering", inputs, parameters={"top_k": 2}))
    assert result["answer"].tolist() == [b"paris"]
    answers = json.loads(result["answers"][0])
    assert len(answers) == 2
    assert answers[0]["text"] == "paris"
    assert answers[0]["score"] == pytest.approx(result["score"][0])


def test_images_are_classified(client: Client) -> None:
    files = [png((255, 0, 0)), png((0, 0, 255), (5, 7))]
    result = client.infer("image-classification", [tensor(files, "image")])
    assert arrays(result).keys() == {"label", "score"}
    assert result.as_numpy("label")[:, 0].tolist() == [b"red", b"blue"]
    assert result.as_numpy("score").shape == (2, len(COLOURS))
    asked = arrays(
        client.infer(
            "image-classification",
            [tensor(files, "image", column=True)],
            outputs=outputs("index", "width", "height"),
            parameters={"top_k": 1},
        )
    )
    assert asked["index"].tolist() == [[0], [2]]
    assert (asked["width"].tolist(), asked["height"].tolist()) == ([[9], [5]], [[6], [7]])


TEXT = ["a man"]


@pytest.mark.parametrize(
    ("model", "arguments", "problem"),
    [
        ("toy", {"model_version": "7"}, "NOT_FOUND: version '7' of toy not found"),
        ("", {}, "INVALID_ARGUMENT: model_name: empty, name a model"),
        ("broken", {}, "UNAVAILABLE: model 'broken' cannot be served"),
        ("toy", {"inputs": [tensor([SOURCE, " "])]}, "INVALID_ARGUMENT: text[1]: the text is empty"),
        ("toy", {"outputs": outputs("foo")}, "INVALID_ARGUMENT: outputs[0].name: there is no output 'foo'; there are: transl"),
        ("toy", {"outputs": outputs("piece")}, "INVALID_ARGUMENT: outputs[0].name: 'piece' is only available with ModelStream"),
        ("toy", {"outputs": [triton.InferRequestedOutput("score", 3)]}, "INVALID_ARGUMENT: outputs[0].parameters: there is"),
        ("toy", {"parameters": {"beam_size": 0}}, "INVALID_ARGUMENT: parameters.beam_size: 0 is out of range"),
        ("toy", {"parameters": {"target_language_code": "x"}}, "INVALID_ARGUMENT: parameters.target_language_code: 'x' is not"),
        ("toy", {"parameters": {"task": "fill-mask"}}, "INVALID_ARGUMENT: parameters.task: the model does not have the task"),
        ("toy", {"priority": 1}, "INVALID_ARGUMENT: parameters.priority: there is no such parameter"),
        (
            "fill-mask",
            {"inputs": [tensor(["[MASK]"] * 500 + ["[MASK]" * 10])], "parameters": {"top_k": 20}},
            "INVALID_ARGUMENT: text: 501 texts x 10 masks (of one of them) x 20 candidates need 2,004,000 bytes, at most 1,0",
        ),
        ("image-classification", {"inputs": [tensor([b"GIF89a"], "image")]}, "INVALID_ARGUMENT: image[0]: "),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_is_refused_with_the_right_status(
    client: Client, model: str, arguments: dict[str, Any], problem: str
) -> None:
    found = ": ".join(failure(lambda: client.infer(model, **{"inputs": [tensor(TEXT)], **arguments})))
    assert found[: len(problem)] == problem
    assert len(found.splitlines()) == 1
    assert client.is_server_ready()


def test_what_is_not_offered_is_unimplemented(client: Client) -> None:
    calls: list[Callable[[], object]] = [
        client.get_system_shared_memory_status,
        lambda: client.register_system_shared_memory("a", "/a", 1),
        client.get_cuda_shared_memory_status,
        client.get_trace_settings,
        client.get_log_settings,
    ]
    assert [failure(call)[0] for call in calls] == ["UNIMPLEMENTED"] * len(calls)


class Stream:
    """A stream that collects its responses."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._news: queue.Queue[Any] = queue.Queue()
        client.start_stream(lambda result, error: self._news.put(error or result))

    def ask(self, model: str, inputs: list[Any], **arguments: Any) -> None:
        self._client.async_stream_infer(model, inputs, **arguments)

    def read(self) -> Any:
        return self._news.get(timeout=PATIENCE_SECONDS)

    def read_all_of(self, request_id: str) -> list[Any]:
        """Read until the final response; no other request may be on the stream."""
        results = []
        while not results or not results[-1].get_response().parameters["triton_final_response"].bool_param:
            results.append(self.read())
            assert results[-1].get_response().id == request_id
        return results


@pytest.fixture
def stream(client: Client) -> Iterator[Stream]:
    yield Stream(client)
    client.stop_stream()


def test_a_stream_has_pieces_then_the_whole(stream: Stream) -> None:
    sources, targets = SOURCES[:40], TARGETS[:40]
    stream.ask("toy", [tensor(sources)], request_id="all", parameters={"num_hypotheses": 1})
    *pieces, last = stream.read_all_of("all")
    said = [""] * len(sources)
    for piece in pieces:
        [text], [index] = piece.as_numpy("piece"), piece.as_numpy("piece_index")
        said[index] += text.decode()
    assert len(pieces) >= len(sources)
    assert said == targets
    assert [text.decode() for text in last.as_numpy("translated_text")] == targets
    assert last.as_numpy("hypotheses").shape == (len(sources), 1)


def test_outputs_say_whether_there_are_pieces(stream: Stream) -> None:
    stream.ask("toy", [tensor([SOURCE])], request_id="whole", outputs=outputs("translated_text"))
    [only] = stream.read_all_of("whole")
    assert only.as_numpy("translated_text").tolist() == [TARGET.encode()]
    stream.ask("toy", [tensor([SOURCE])], request_id="pieces", outputs=outputs("piece"))
    *pieces, last = stream.read_all_of("pieces")
    assert b"".join(piece.as_numpy("piece")[0] for piece in pieces).decode() == TARGET
    assert arrays(last) == {}


def test_an_empty_final_response(stream: Stream) -> None:
    stream.ask("toy", [tensor([SOURCE])], request_id="1", enable_empty_final_response=True)
    *_, whole, last = stream.read_all_of("1")
    assert whole.as_numpy("translated_text").tolist() == [TARGET.encode()]
    assert arrays(last) == {}
    stream.ask("fill-mask", [tensor(["one [MASK]"])], request_id="2", enable_empty_final_response=True)
    [only] = stream.read_all_of("2")
    assert only.as_numpy("token_str")[0, 0, 0] == b"two"


def test_a_stream_outlives_its_errors(stream: Stream) -> None:
    stream.ask("nothing", [tensor([SOURCE])], request_id="1")
    assert stream.read().message() == (f"NOT_FOUND: model 'nothing' not found; available: {', '.join(MODELS)}")
    stream.ask("toy", [tensor([""])], request_id="2")
    assert stream.read().message() == "INVALID_ARGUMENT: text[0]: the text is empty"
    stream.ask("toy", [tensor([SOURCE])], request_id="3", parameters={"beam_size": 99})
    assert stream.read().message().startswith("INVALID_ARGUMENT: parameters.beam_size: 99 is above")
    stream.ask("image-classification", [tensor([png((0, 255, 0))], "image")], request_id="4")
    [image] = stream.read_all_of("4")
    assert image.as_numpy("label")[0, 0] == b"green"


@pytest.mark.parametrize("has_ids", [True, False])
def test_many_requests_share_a_stream(stream: Stream, has_ids: bool) -> None:
    """Requests without an id are answered in their order."""
    pairs = PAIRS[:60]
    for number, (source, _) in enumerate(pairs):
        stream.ask("toy", [tensor([source])], request_id=str(number) if has_ids else "", outputs=outputs("translated_text"))
    found = {}
    for number in range(len(pairs)):
        result = stream.read()
        found[int(result.get_response().id or number)] = result.as_numpy("translated_text")[0].decode()
    assert [found[number] for number in range(len(pairs))] == [target for _, target in pairs]


def test_statistics_count_every_service(client: Client) -> None:
    def look(name: str = "text-classification") -> Any:
        [model] = client.get_inference_statistics(name).model_stats
        return model

    before = look()
    client.infer("text-classification", [tensor(["one", "two"])])
    failure(lambda: client.infer("text-classification", [tensor([" "])]))
    after = look()
    assert (after.name, after.version) == ("text-classification", "1")
    assert after.inference_count - before.inference_count == 2
    assert after.execution_count > before.execution_count
    assert after.inference_stats.success.count - before.inference_stats.success.count == 1
    assert after.inference_stats.fail.count - before.inference_stats.fail.count == 1
    assert after.inference_stats.compute_infer.ns > before.inference_stats.compute_infer.ns
    assert after.last_inference >= before.last_inference
    every = client.get_inference_statistics().model_stats
    assert [model.name for model in every] == [name for name in MODELS if name != "broken"]
    assert failure(lambda: client.get_inference_statistics("nothing"))[0] == "NOT_FOUND"
