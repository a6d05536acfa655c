"""Models of sentence-transformers that read texts as chats, or are longer chains of modules, beside transformers."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional
from transformers import PreTrainedTokenizerFast

from triptych_export.errors import SourceError
from triptych_export.exporter import ExportOptions, export
from triptych_export.huggingface.architectures.registry import load
from triptych_export.huggingface.folder import Folder
from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.encoding.options import EncoderOptions
from triptych_serving.errors import InvalidInputError
from triptych_serving.models.text.tasks import EMBEDDING_TASK, RERANK_TASK, TEXT_CLASSIFICATION_TASK
from triptych_serving.models.text.text_model import TextModel
from triptych_text.steps import finish

from ..fixtures.decoders import CHAT, byte_tokenizer
from ..fixtures.json_files import edit_json, write_json, write_modules, write_pooling
from .test_huggingface_heads import family
from .test_huggingface_text import BERT, CROSS_ENCODER, MODERNBERT, TOLERANCE, Family, build, load_text
from .text_checkpoints import save_checkpoint

# One text with both, as Qwen3-Reranker, and a message for each, as zerank.
ONE = (
    "<|im_start|>system\nJudge the document.<|im_end|>\n<|im_start|>user\n{% for one in messages %}"
    "<{{ one.role }}>: {{ one.content }}{{ '' if loop.last else '\n' }}{% endfor %}<|im_end|>\n"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)
TWO = (
    "{% for one in messages %}<|im_start|>{{ one.role }}\n{{ one.content[0].text }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}Is it relevant?\n\nAnswer:{% endif %}"
)
PAIRS = [
    ("What is rain?", "Water falls from clouds."),
    ("a", "b"),
    (" spaced? ", "\n two\n\nlines \n"),
    ("\u6570?", "\u4e2d\u6587."),
    ("{query}", "{document}"),
]
YES, NO = 11, 17


def write_reranker(folder: Path, variant: str, template: str, form: str, no: int | None = None, **options: Any) -> Any:
    """Write a folder as sentence-transformers does; return transformers' model."""
    sizes = family(variant, **options)
    theirs = build(sizes, "ForCausalLM")
    save_checkpoint(theirs, byte_tokenizer(), folder)
    write_modules(folder, [("", "Transformer"), ("1_LogitScore", "LogitScore")])
    write_chat(folder, template, form, "text-generation", "causal_logits")
    (folder / "1_LogitScore").mkdir()
    write_json(folder / "1_LogitScore/config.json", {"true_token_id": YES, "false_token_id": no})
    return theirs


def write_chat(folder: Path, template: str, form: str, task: str, output: str) -> None:
    """Write the chat template, and that texts are its messages."""
    write_template(template, folder)
    call = {"method": "forward", "method_output_name": "logits" if output == "causal_logits" else "last_hidden_state"}
    write_json(
        folder / "sentence_bert_config.json",
        {
            "transformer_task": task,
            "modality_config": {"text": call, "message": {**call, "format": form}},
            "module_output_name": output,
            "processing_kwargs": {"chat_template": {"add_generation_prompt": True}},
        },
    )


def chat_ids(template: str, form: str, *texts: str, prompt: str = "") -> list[int]:
    """Tokenize a text or a pair as sentence-transformers does."""
    named = ("query", "document") if len(texts) > 1 else ("user",)
    roles = {**({"system": prompt} if prompt else {}), **dict(zip(named, texts, strict=True))}
    messages = [
        {"role": role, "content": text if form == "flat" else [{"type": "text", "text": text}]} for role, text in roles.items()
    ]
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=byte_tokenizer(), chat_template=template)
    rendered = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    ids: list[int] = tokenizer(rendered, add_special_tokens=False)["input_ids"]
    return ids


@contextmanager
def served(folder: Path) -> Iterator[TextModel]:
    options = ExportOptions(folder.parent / "models", precisions=("fp32",), name="ranker")
    with closing(
        TextModel("ranker", 1, open_bundle(export(folder, options, lambda line: None)), EncoderOptions(runs=1))
    ) as model:
        yield model


@pytest.mark.parametrize(
    ("variant", "template", "form", "no", "prompt"),
    [
        pytest.param("qwen3", ONE, "flat", NO, "Find water.", id="tied"),
        pytest.param("qwen2 window", TWO, "structured", None, "", id="untied"),
        pytest.param("granite", ONE, "flat", None, "", id="scaled", marks=pytest.mark.full),
    ],
)
@torch.no_grad()
def test_scores_equal_those_of_transformers(
    variant: str, template: str, form: str, no: int | None, prompt: str, tmp_path: Path
) -> None:
    theirs = write_reranker(tmp_path / "theirs", variant, template, form, no)
    if prompt:
        settings = {"prompts": {"web": prompt, "other": "x"}, "default_prompt_name": "web", "model_type": "CrossEncoder"}
        write_json(tmp_path / "theirs/config_sentence_transformers.json", settings)
    chats = [chat_ids(template, form, *pair, prompt=prompt) for pair in PAIRS]
    last = torch.stack([theirs(torch.tensor([ids])).logits[0, -1] for ids in chats])
    wanted = last[:, YES] - (0 if no is None else last[:, no])
    with served(tmp_path / "theirs") as model:
        found = model.run(RERANK_TASK, PAIRS, raw_scores=True)
        labelled = model.run(TEXT_CLASSIFICATION_TASK, PAIRS[:1])
        with pytest.raises(InvalidInputError, match="the second text is missing; the model takes pairs of texts"):
            model.run(TEXT_CLASSIFICATION_TASK, ["Rain."])
    assert [one.index for one in found] == wanted.argsort(descending=True, stable=True).tolist()
    assert [one.score for one in found] == pytest.approx(wanted.sort(descending=True).values.tolist(), abs=TOLERANCE)
    assert sorted(one.token_count for one in found) == sorted(map(len, chats))
    assert labelled[0].labels[0].label == "relevance"
    assert labelled[0].labels[0].score == pytest.approx(float(torch.sigmoid(wanted[0])), abs=TOLERANCE)


@pytest.mark.parametrize(("template", "form"), [(ONE, "flat"), (TWO, "structured")])
def test_the_end_of_a_chat_is_never_cut_off(template: str, form: str, tmp_path: Path) -> None:
    write_reranker(tmp_path / "theirs", "qwen3", template, form)
    document = "Water falls. " * 200
    whole = chat_ids(template, form, "Rain?", document)
    after = chat_ids(template, form, "Rain?", "")[-20:]
    with served(tmp_path / "theirs") as model:
        tokenizer, limit = model.tokenizer, model.manifest.limits.max_tokens
        [ids], [cut] = finish(tokenizer.encode_or_truncate([("Rain?", document)], lambda one: one.ids, truncate=True))
        [marked] = finish(tokenizer.encode([("Rain?", "".join(CHAT))], lambda one: one.ids))
        [ranked] = model.run(RERANK_TASK, [("Rain?", document)], truncate=True)
        with pytest.raises(InvalidInputError, match=r"documents\[0\]: .* are too long"):
            model.run(RERANK_TASK, [("Rain?", document)])
    assert (len(ids), cut, ranked.truncated) == (limit, True, True)
    kept = next(size for size in range(1, 21) if ids[-size:] != after[-size:]) - 1
    assert kept >= len(byte_tokenizer().encode("\n<think>\n" if template is ONE else "\n\nAnswer:").ids)
    assert ids[: limit - kept] == whole[: limit - kept]
    assert [marked.count(number) for number in (1, 2)] == [whole.count(number) for number in (1, 2)]  # in a text, they are text


@pytest.mark.parametrize(
    ("variant", "pooling", "prompt"),
    [("qwen3", "lasttoken", "Represent it."), pytest.param("mistral", "mean", "", marks=pytest.mark.full)],
)
@torch.no_grad()
def test_vectors_of_texts_that_are_chats(variant: str, pooling: str, prompt: str, tmp_path: Path) -> None:
    folder, sizes = tmp_path / "theirs", family(variant)
    theirs = build(sizes, "Model")
    save_checkpoint(theirs, byte_tokenizer(), folder)
    write_chat(folder, ONE, "flat", "feature-extraction", "token_embeddings")
    write_pooling(folder, {"embedding_dimension": 1, "pooling_mode": pooling}, "Normalize")
    settings = {"prompts": {"web": prompt, "other": "x"}, "default_prompt_name": "web" if prompt else None}
    write_json(folder / "config_sentence_transformers.json", settings)
    with served(folder) as model:
        found = model.run(EMBEDDING_TASK, [text for text, _ in PAIRS])
        with pytest.raises(InvalidInputError, match="'other' is not a prompt of the model; it has none"):
            model.run(EMBEDDING_TASK, ["a"], prompt_name="other")
    for (text, _), one in zip(PAIRS, found, strict=True):
        ids = chat_ids(ONE, "flat", text, prompt=prompt)
        states = theirs(torch.tensor([ids])).last_hidden_state[0]
        vector = states.mean(0) if pooling == "mean" else states[-1]
        assert one.token_count == len(ids)
        assert one.values == pytest.approx((vector / vector.norm()).tolist(), abs=TOLERANCE)


def test_chats_are_not_lower_cased(tmp_path: Path) -> None:
    write_reranker(tmp_path, "qwen3", ONE, "flat", NO)
    edit_json(tmp_path / "config.json", architectures=["Qwen3Model"])
    write_pooling(tmp_path, {"pooling_mode": "lasttoken"})
    edit_json(tmp_path / "sentence_bert_config.json", do_lower_case=True)
    with pytest.raises(SourceError, match="do_lower_case: true is not supported of texts that become chats"):
        load(Folder(tmp_path))


def write_layers(folder: Path, sizes: Family, pooling: str, classes: int) -> Callable[[str, str], torch.Tensor]:
    """Write a cross-encoder that is a chain of modules; return what computes its scores of a pair."""
    theirs, tokenizer, width = build(sizes, "Model"), sizes.tokenizer(), sizes.options["hidden_size"]
    save_checkpoint(theirs, tokenizer, folder)
    layers = nn.Linear(width, width, bias=False), nn.LayerNorm(width), nn.Linear(width, classes)
    nn.init.normal_(layers[1].weight)
    nn.init.normal_(layers[1].bias)
    sentence = {"module_input_name": "sentence_embedding"}
    gelu = {**sentence, "module_output_name": "sentence_embedding", "activation_function": "torch.nn.modules.activation.GELU"}
    scores = {**sentence, "module_output_name": "scores", "activation_function": "torch.nn.modules.linear.Identity"}
    configs = [{"out_features": width, "bias": False, **gelu}, {"dimension": width}, {"out_features": classes, **scores}]
    kinds = ("Dense", "LayerNorm", "Dense")
    write_pooling(folder, {"embedding_dimension": width, "pooling_mode": pooling}, *kinds)
    for number, (kind, config, layer) in enumerate(zip(kinds, configs, layers, strict=True), start=2):
        (place := folder / f"{number}_{kind}").mkdir()
        write_json(place / "config.json", config)
        name = "linear" if kind == "Dense" else "norm"
        tensors = {f"{name}.{each}": tensor.detach() for each, tensor in layer.named_parameters()}
        save_file(tensors, place / "model.safetensors")
    write_json(folder / "config_sentence_transformers.json", {"model_type": "CrossEncoder", "activation_fn": "x.Identity"})

    def score(first: str, second: str) -> torch.Tensor:
        encoding = tokenizer.encode(first, second)
        segments = {} if "ModernBert" in sizes.name else {"token_type_ids": torch.tensor([encoding.type_ids])}
        states = theirs(torch.tensor([encoding.ids]), **segments)[0][0]
        vector = states.mean(0) if pooling == "mean" else states[0]
        return layers[2](layers[1](functional.gelu(layers[0](vector))))

    return score


@torch.no_grad()
def test_scores_of_a_chain_of_modules(tmp_path: Path) -> None:
    score = write_layers(tmp_path / "theirs", MODERNBERT, "cls", 1)
    wanted = torch.cat([score(*pair) for pair in PAIRS])
    with served(tmp_path / "theirs") as model:
        found = model.run(RERANK_TASK, PAIRS, raw_scores=True)
    assert [one.index for one in found] == wanted.argsort(descending=True).tolist()
    assert [one.score for one in found] == pytest.approx(wanted.sort(descending=True).values.tolist(), abs=TOLERANCE)


@torch.no_grad()
def test_labels_of_a_chain_of_modules(tmp_path: Path) -> None:
    score = write_layers(tmp_path / "theirs", BERT, "mean", 3)
    edit_json(tmp_path / "theirs/config.json", id2label={"0": "no", "1": "maybe", "2": "yes"})
    with served(tmp_path / "theirs") as model:
        found = model.run(TEXT_CLASSIFICATION_TASK, PAIRS)
    for pair, one in zip(PAIRS, found, strict=True):
        wanted = dict(zip(("no", "maybe", "yes"), torch.softmax(score(*pair), -1).tolist(), strict=True))
        assert {each.label: each.score for each in one.labels} == pytest.approx(wanted, abs=TOLERANCE)


def test_scores_have_no_activation_of_their_own_and_layers_have_weights(tmp_path: Path) -> None:
    write_layers(tmp_path, BERT, "cls", 1)
    (tmp_path / "3_LayerNorm").rename(tmp_path / "elsewhere")
    with pytest.raises(SourceError, match=r"3_LayerNorm: holds no weights; .*; there are: nothing"):
        load(Folder(tmp_path))
    (tmp_path / "elsewhere").rename(tmp_path / "3_LayerNorm")
    edit_json(tmp_path / "4_Dense/config.json", activation_function="torch.nn.modules.activation.GELU")
    with pytest.raises(SourceError, match=r"4_Dense/config\.json: .*GELU' is none of torch\.nn\.modules\.linear\.Identity"):
        load(Folder(tmp_path))


def write_template(text: str, folder: Path) -> None:
    (folder / "chat_template.jinja").write_text(text, encoding="utf-8")


def spoil_score(folder: Path, **members: Any) -> None:
    edit_json(folder / "1_LogitScore/config.json", **members)


def spoil_chat(folder: Path, **members: Any) -> None:
    edit_json(folder / "sentence_bert_config.json", **members)


FAULTS: Sequence[tuple[Callable[[Path], None], str]] = [
    (lambda folder: (folder / "chat_template.jinja").unlink(), r"no chat template, and modules\.json names a model that reads"),
    (partial(write_template, "{{ messages[1].content }} {{ messages[0].content }}"), "once each, in this order"),
    (partial(write_template, "{{ raise_exception('only users') }}"), "rejects messages of query and document: only users"),
    (partial(write_template, "{{ messages[0].content | upper }}{{ messages[1].content }}"), "once each, in this order"),
    (partial(spoil_score, true_token_id=360), r"true_token_id: 360, expected the number of a token, below 360"),
    (partial(spoil_score, false_token_id="no"), "false_token_id: 'no', expected the number of a token"),
    (partial(spoil_score, module_input_name="logits"), "module_input_name: 'logits' is not supported"),
    (partial(spoil_chat, processing_kwargs={"text": {"padding": True}}), r"processing_kwargs: .*'padding'.* is not supported"),
    (partial(spoil_chat, modality_config={"message": "flat"}), r"modality_config\.message: 'flat', .*expected members by name"),
    (partial(spoil_chat, processing_kwargs=["chat"]), r"processing_kwargs: \['chat'\], expected members by name"),
    (partial(spoil_chat, modality_config=["message"]), r"modality_config: \['message'\] is not supported"),
    (partial(write_template, "{{ messages[0].content + 1 }}"), "rejects messages of query and document: can only concatenate"),
    (partial(spoil_chat, modality_config={"message": {"format": "rows"}}), "modality_config: .*'rows'.* is not supported"),
]


@pytest.mark.parametrize(("spoil", "message"), FAULTS)
def test_what_cannot_be_served_is_refused(spoil: Callable[[Path], None], message: str, tmp_path: Path) -> None:
    write_reranker(tmp_path, "qwen3", ONE, "flat", NO)
    load_text(tmp_path)
    spoil(tmp_path)
    with pytest.raises(SourceError, match=message):
        load(Folder(tmp_path))


def test_encoders_that_read_chats_are_refused(tmp_path: Path) -> None:
    save_checkpoint(build(BERT, "ForSequenceClassification", **CROSS_ENCODER), BERT.tokenizer(), tmp_path)
    write_modules(tmp_path, [("", "Transformer")])
    form = {"method": "forward", "method_output_name": "logits", "format": "flat"}
    write_json(tmp_path / "sentence_bert_config.json", {"modality_config": {"message": form}})
    with pytest.raises(SourceError, match=r"modality_config: {'message': .* is not supported"):
        load(Folder(tmp_path))


def test_limited_logits_are_refused(tmp_path: Path) -> None:
    write_reranker(tmp_path, "gemma2", ONE, "flat", NO)
    with pytest.raises(SourceError, match=r"final_logit_softcapping: 9\.0 is not supported of a model that ranks texts"):
        load(Folder(tmp_path))
