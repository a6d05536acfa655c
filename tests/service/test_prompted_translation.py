"""A decoder-only model that is asked to translate, on a real port: texts, streams, documents, and LibreTranslate's API."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from libretranslatepy import LibreTranslateAPI
from tokenizers import Tokenizer
from torch import nn

from triptych_client import Client, FailedPreconditionError, InvalidArgumentError
from triptych_export.families.generation import write_generation
from triptych_export.translation_prompt import ask_to_translate
from triptych_serving.gateway.options import GatewayOptions
from triptych_serving.server import Server

from ..fixtures.decoders import decoder_source, greedy
from .support.in_process import options_of, serving

TEXTS = ["Rain again.", "Who left the gate open?", "Two dogs run over the green grass."]
PAIR: dict[str, Any] = {"source_language": "en", "target_language": "de"}
MOST = 12  # new tokens


@dataclass(frozen=True)
class Served:
    """A server with one model, and the model in PyTorch."""

    server: Server
    client: Client
    model: nn.Module
    tokenizer: Tokenizer

    def expected(self, text: str, name: str = "German") -> str:
        """Answer the prompt in PyTorch, greedily."""
        prompt = f"<|im_start|>user\nTo {name}: {text}<|im_end|>\n<|im_start|>assistant\n"
        answer = greedy(self.model, self.tokenizer.encode(prompt).ids, MOST)
        return str(self.tokenizer.decode(answer)).strip()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    repository = tmp_path_factory.mktemp("models")
    source = ask_to_translate(decoder_source("llama"), ["en", "de", "pt-BR=Brazilian Portuguese"], "To {target}: {text}")
    source = replace(source, generation={"max_length": MOST})
    (repository / "llm").mkdir()
    write_generation(source, repository / "llm/1", lambda line: None, [], ["fp32"])
    assert isinstance(source.model, nn.Module)
    assert source.tokenizer is not None
    options = replace(options_of(repository), gateway=GatewayOptions("127.0.0.1", 0))
    with serving(options) as server, Client(f"127.0.0.1:{server.port}") as client:
        yield Served(server, client, source.model, source.tokenizer)


def test_translations_are_the_answers_to_the_prompt(served: Served) -> None:
    translations = served.client.translate_many(TEXTS * 4, **PAIR)
    assert [each.text for each in translations] == list(map(served.expected, TEXTS)) * 4
    own = [len(served.tokenizer.encode(text).ids) for text in TEXTS]
    assert [each.source_token_count for each in translations] == own * 4
    brazilian = served.client.translate(TEXTS[1], source_language="en", target_language="pt")
    assert brazilian.text == served.expected(TEXTS[1], "Brazilian Portuguese")


def test_every_sentence_is_a_prompt_of_its_own(served: Served) -> None:
    text = f"{TEXTS[0]} {TEXTS[1]}\n\n{TEXTS[2]}"
    first, second, third = map(served.expected, TEXTS)
    assert served.client.translate(text, **PAIR).text == f"{first} {second}\n\n{third}"
    assert served.client.translate(" ".join(TEXTS[:2]), split_sentences="off", **PAIR).text == served.expected(
        " ".join(TEXTS[:2])
    )


def test_special_tokens_in_a_text_are_text(served: Served) -> None:
    plain = served.client.translate("Rain<|im_end|> again", **PAIR)
    assert plain.source_token_count > len(served.tokenizer.encode("Rain<|im_end|> again").ids)


def test_a_stream_has_the_same_text(served: Served) -> None:
    with served.client.translate_stream(" ".join(TEXTS), **PAIR) as stream:
        pieces = "".join(stream)
    assert pieces == stream.translation.text == served.client.translate(" ".join(TEXTS), **PAIR).text


def test_beams(served: Served) -> None:
    translation = served.client.translate(TEXTS[1], beam_size=3, num_hypotheses=2, return_scores=True, **PAIR)
    first, second = (hypothesis.score for hypothesis in translation.hypotheses)
    assert first is not None
    assert second is not None
    assert first >= second


def test_a_document_is_translated_without_alignments(served: Served) -> None:
    document = served.client.translate_document(
        b"<p>Rain again.</p><p>Who left the <b>gate</b> open?</p>", format="html", **PAIR
    )
    assert document.segments == 2
    assert document.content.count(b"<b>") == 1
    # What this model says is no text.
    assert document.findings
    assert all("the translation has an unreadable character" in finding.message for finding in document.findings)


def test_what_needs_an_encoder_is_refused(served: Served) -> None:
    for options in ({"return_alignment": True}, {"coverage_penalty": 0.5}, {"target_prefix": ("Wer",)}):
        with pytest.raises(FailedPreconditionError, match=f"options.{next(iter(options))}: model 'llm' is asked to translate"):
            served.client.translate(TEXTS[0], **PAIR, **options)
    with pytest.raises(FailedPreconditionError, match="it does not score given translations"):
        served.client.score_translations([(TEXTS[0], TEXTS[1])], **PAIR)
    with pytest.raises(FailedPreconditionError, match="not one that continues texts; it translates"):
        served.client.generate("Rain", model="llm")


def test_faults_of_a_request_name_their_field(served: Served) -> None:
    with pytest.raises(InvalidArgumentError, match=r"source_language_code: .* name one of: en, de, pt-BR"):
        served.client.translate(TEXTS[0], target_language="de")
    with pytest.raises(InvalidArgumentError, match=r"contents\[0\]: the text is empty"):
        served.client.translate(" ", **PAIR)
    with pytest.raises(InvalidArgumentError, match=r"contents\[0\]: \d+ tokens are too long for one sentence, .* at most 42"):
        served.client.translate("gate " * 60, split_sentences="off", **PAIR)
    with pytest.raises(InvalidArgumentError, match=r"options.num_hypotheses: 2 samples of each text"):
        served.client.translate(TEXTS[0], sampling_topk=4, num_hypotheses=2, **PAIR)


def test_models_name_the_languages(served: Served) -> None:
    [model] = served.client.models()
    assert (model.task, model.source_languages, model.target_languages) == ("translation", *[("en", "de", "pt-BR")] * 2)


def test_libretranslate_client(served: Served) -> None:
    client = LibreTranslateAPI(f"http://127.0.0.1:{served.server.http_port}/")
    assert client.translate(TEXTS[1], "en", "de") == served.expected(TEXTS[1])
