"""Text encoders of transformers, loaded, exported and served in float32: the results are those of transformers.

Both run on the same texts of all lengths; transformers in a padded batch.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tokenizers import AddedToken, Tokenizer
from transformers import PreTrainedModel, PreTrainedTokenizerFast
from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

from triptych_export.errors import SourceError
from triptych_export.exporter import ExportOptions, export
from triptych_export.families.text import text_manifest, write_text
from triptych_export.huggingface.architectures.registry import load
from triptych_export.huggingface.folder import Folder
from triptych_export.original import compare_with_original
from triptych_export.parity.text import TextRow, answer_in_torch
from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.bundle.manifest import TextManifest
from triptych_serving.encoding.options import EncoderOptions
from triptych_serving.errors import InvalidInputError
from triptych_serving.models.text.tasks import (
    EMBEDDING_TASK,
    FILL_MASK_TASK,
    QUESTION_ANSWERING_TASK,
    RERANK_TASK,
    TEXT_CLASSIFICATION_TASK,
    TOKEN_CLASSIFICATION_TASK,
)
from triptych_serving.models.text.text_model import TextModel
from triptych_serving.runtime.external_data import external_files
from triptych_serving.runtime.session import Session
from triptych_training.checkpoints.encoder import TextCheckpoint
from triptych_training.models.deberta import Deberta, DebertaConfig

from ..fixtures.json_files import edit_json, write_json, write_modules, write_pooling
from ..fixtures.sentences import SENTENCES
from .text_checkpoints import (
    albert_pieces,
    byte_pieces,
    deberta_pieces,
    enlarge,
    modern_pieces,
    mpnet_pieces,
    save_checkpoint,
    sentence_pieces,
    word_pieces,
)

TOLERANCE = 1e-4
SENTENCES_FILE = str(Path(__file__).parents[1] / "fixtures" / "sentences.txt")
TEXTS = [*SENTENCES[:30], "Rain.", " ".join(SENTENCES[40:44])]
POSITIONS = 160
CROSS_ENCODER: dict[str, Any] = {  # as sentence-transformers saves it
    "num_labels": 1,
    "num_hidden_layers": 1,
    "sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity", "version": "4.1.0"},
    "sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity",
}
LABELS = {0: "O", 1: "B-PLACE", 2: "I-PLACE", 3: "B-TIME", 4: "I-TIME"}


@dataclass(frozen=True)
class Family:
    """One of transformers' families at toy size; `options` go to its configuration."""

    name: str  # of its classes
    tokenizer: Callable[[], Tokenizer]
    options: dict[str, Any]
    spare_rows: int = 0  # of the embedding, beyond the tokenizer's tokens

    def variant(self, spare_rows: int = 0, **options: Any) -> "Family":
        return replace(self, options={**self.options, **options}, spare_rows=spare_rows)


ROBERTA_IDS = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
MODERN_IDS = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2, "sep_token_id": 3}
SIZES = {"hidden_size": 48, "num_attention_heads": 3, "intermediate_size": 80, "num_hidden_layers": 2}
ROBERTA_SIZES = {**SIZES, **ROBERTA_IDS, "max_position_embeddings": POSITIONS + 2, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
DISTIL_SIZES = {"dim": 48, "n_heads": 3, "hidden_dim": 80, "n_layers": 2, "max_position_embeddings": POSITIONS}
MPNET_SIZES = {**SIZES, "max_position_embeddings": POSITIONS + 2, "layer_norm_eps": 1e-5}
ELECTRA_SIZES = {**SIZES, "embedding_size": 32, "max_position_embeddings": POSITIONS}
DEBERTA_SIZES: dict[str, Any] = {
    **SIZES,
    "max_position_embeddings": POSITIONS,
    "position_buckets": 32,
    "relative_attention": True,
    "share_att_key": True,
    "position_biased_input": False,
    "pos_att_type": "p2c|c2p",
    "norm_rel_ebd": "layer_norm",
}
MODERN_SIZES = {**SIZES, **MODERN_IDS, "num_hidden_layers": 3, "max_position_embeddings": POSITIONS, "local_attention": 8}

BERT = Family("Bert", word_pieces, {**SIZES, "max_position_embeddings": POSITIONS})
ERNIE = Family("Ernie", word_pieces, {**SIZES, "max_position_embeddings": POSITIONS, "use_task_id": True})
ROBERTA = Family("Roberta", byte_pieces, ROBERTA_SIZES, spare_rows=200)
DISTILBERT = Family("DistilBert", word_pieces, DISTIL_SIZES)
XLM_ROBERTA = Family("XLMRoberta", sentence_pieces, ROBERTA_SIZES)
DATA2VEC = Family("Data2VecText", byte_pieces, ROBERTA_SIZES)
PRE_ROBERTA = Family("RobertaPreLayerNorm", byte_pieces, ROBERTA_SIZES, spare_rows=2)
XL = Family("XLMRobertaXL", sentence_pieces, ROBERTA_SIZES)
CAMEMBERT = Family("Camembert", sentence_pieces, {**ROBERTA_SIZES, "num_hidden_layers": 3})
MPNET = Family("MPNet", mpnet_pieces, MPNET_SIZES)
ELECTRA = Family("Electra", word_pieces, ELECTRA_SIZES)
NOMIC = Family("NomicBert", word_pieces, {**SIZES, "max_position_embeddings": POSITIONS}, spare_rows=2)
GTE = Family("Gte", sentence_pieces, {**SIZES, "max_position_embeddings": POSITIONS, "pad_token_id": 1})
JINA = Family("JinaEmbeddingsV3", sentence_pieces, {**SIZES, "max_position_embeddings": POSITIONS}, spare_rows=2)
MODERNBERT = Family("ModernBert", modern_pieces, MODERN_SIZES)
ALBERT = Family("Albert", albert_pieces, {**SIZES, "embedding_size": 32, "max_position_embeddings": POSITIONS})
DEBERTA = Family("DebertaV2", deberta_pieces, DEBERTA_SIZES)
MEGATRON = Family("MegatronBert", word_pieces, {**SIZES, "max_position_embeddings": POSITIONS})
SQUEEZE = Family(
    *("SqueezeBert", word_pieces),
    {**SIZES, "num_attention_heads": 4, "embedding_size": 48, "max_position_embeddings": POSITIONS},
)
ROFORMER = Family("RoFormer", word_pieces, {**ELECTRA_SIZES, "hidden_act": "relu"})
BIG_BIRD = Family("BigBird", albert_pieces, {**SIZES, "max_position_embeddings": POSITIONS, "sep_token_id": 3})
IBERT = Family("IBert", byte_pieces, ROBERTA_SIZES, spare_rows=2)
RELATIVES = [MEGATRON, SQUEEZE, ROFORMER, BIG_BIRD, IBERT]
ROPE = {"full_attention": 1_000.0, "sliding_attention": 100.0}

VARIANTS = {
    "bert untied": BERT.variant(3, tie_word_embeddings=False),
    "bert odd heads": BERT.variant(hidden_size=35, num_attention_heads=5),
    "bert relu": BERT.variant(hidden_act="relu", type_vocab_size=1),
    "bert gelu_new": BERT.variant(hidden_act="gelu_new", num_hidden_layers=1),
    "ernie without tasks": ERNIE.variant(use_task_id=False, type_vocab_size=4),
    "ernie untied, many tasks": ERNIE.variant(3, tie_word_embeddings=False, task_type_vocab_size=16, hidden_act="relu"),
    "roberta untied": ROBERTA.variant(tie_word_embeddings=False, type_vocab_size=2),
    "roberta silu, spare rows": ROBERTA.variant(5, hidden_act="silu"),
    "distilbert relu": DISTILBERT.variant(activation="relu", n_layers=3),
    "distilbert untied, sinusoids": DISTILBERT.variant(tie_word_embeddings=False, sinusoidal_pos_embds=True),
    "xlm-roberta": XLM_ROBERTA,
    "xlm-roberta-xl untied": XL.variant(4, tie_word_embeddings=False, type_vocab_size=2, hidden_act="relu"),
    "camembert": CAMEMBERT,
    "data2vec": DATA2VEC,
    "roberta-prelayernorm untied": PRE_ROBERTA.variant(tie_word_embeddings=False, type_vocab_size=2, hidden_act="relu"),
    "mpnet relu, untied": MPNET.variant(3, hidden_act="relu", tie_word_embeddings=False),
    "electra of one width": ELECTRA.variant(embedding_size=48, hidden_act="relu"),
    "electra untied, wide embeddings": ELECTRA.variant(3, embedding_size=64, tie_word_embeddings=False, type_vocab_size=1),
    "megatron untied": MEGATRON.variant(2, tie_word_embeddings=False, hidden_act="relu", type_vocab_size=1),
    "squeezebert of other groups": SQUEEZE.variant(
        3, q_groups=1, k_groups=2, v_groups=3, post_attention_groups=2, intermediate_groups=1, tie_word_embeddings=False
    ),
    "roformer untied, of one width": ROFORMER.variant(3, embedding_size=48, tie_word_embeddings=False, hidden_act="gelu"),
    "big bird untied, with full attention": BIG_BIRD.variant(
        5, tie_word_embeddings=False, attention_type="original_full", hidden_act="relu"
    ),
    "ibert untied": IBERT.variant(tie_word_embeddings=False, type_vocab_size=2, force_dequant="gelu"),
    "albert relu, untied, wide embeddings": ALBERT.variant(
        3, embedding_size=64, hidden_act="relu", tie_word_embeddings=False, type_vocab_size=1, num_hidden_layers=3
    ),
    "deberta of v3's head": DEBERTA.variant(3, legacy=False, tie_word_embeddings=False),
    "deberta untied, narrow embeddings": DEBERTA.variant(
        embedding_size=32, tie_word_embeddings=False, hidden_act="relu", pos_att_type=["c2p", "p2c"]
    ),
    "deberta of many buckets": DEBERTA.variant(position_buckets=128, num_attention_heads=4),
    "deberta of far distances": DEBERTA.variant(position_buckets=9, max_relative_positions=40),
    "nomic relu, untied": NOMIC.variant(tie_word_embeddings=False, hidden_act="relu", type_vocab_size=1),
    "nomic scaled": NOMIC.variant(rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0}),
    "gte relu, untied": GTE.variant(5, tie_word_embeddings=False, hidden_act="relu", type_vocab_size=2),
    "gte without segments": GTE.variant(type_vocab_size=0, rope_parameters={"rope_type": "default", "rope_theta": 90.0}),
    "jina relu, untied": JINA.variant(5, tie_word_embeddings=False, hidden_act="relu", type_vocab_size=2),
    "modernbert with biases": MODERNBERT.variant(attention_bias=True, mlp_bias=True, norm_bias=True, classifier_bias=True),
    "modernbert mixed biases": MODERNBERT.variant(attention_bias=True, decoder_bias=False, tie_word_embeddings=False),
    "modernbert other layers": MODERNBERT.variant(
        11,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        num_hidden_layers=3,
        rope_parameters={name: {"rope_type": "default", "rope_theta": theta} for name, theta in ROPE.items()},
        local_attention=5,
        hidden_activation="gelu_new",
        classifier_activation="relu",
        classifier_pooling="mean",
    ),
    "modernbert whole texts only": MODERNBERT.variant(global_attn_every_n_layers=1),
}


@dataclass
class Imported:
    """A model of transformers, and its bundle."""

    theirs: PreTrainedModel
    tokenizer: PreTrainedTokenizerFast
    checkpoint: TextCheckpoint
    served: TextModel

    def encode(self, texts: Sequence[Any]) -> dict[str, torch.Tensor]:
        """Encode a padded batch, with segments if the model has them."""
        kinds = getattr(self.theirs.config, "type_vocab_size", 0) > 1
        parts = [list(part) for part in zip(*texts, strict=True)]
        return dict(self.tokenizer(*parts, padding=True, return_tensors="pt", return_token_type_ids=kinds))

    @torch.no_grad()
    def ask(self, texts: Sequence[Any]) -> Any:
        """Run transformers on 1-tuples or pairs."""
        return self.theirs(**self.encode(texts))


@contextmanager
def imported(folder: Path, family: Family, head: str, **options: Any) -> Iterator[Imported]:
    theirs = build(family, head, **options)
    tokenizer = save_checkpoint(theirs, family.tokenizer(), folder / "theirs")
    original = Folder(folder / "theirs")
    checkpoint = load(original)
    assert isinstance(checkpoint, TextCheckpoint)
    assert " outputs as in transformers" in compare_with_original(original, checkpoint)
    write_text(checkpoint, folder / "bundle", lambda line: None)
    with closing(TextModel("model", 1, open_bundle(folder / "bundle"), EncoderOptions("fp32", runs=1))) as served:
        yield Imported(theirs, tokenizer, checkpoint, served)


def load_text(folder: Path) -> TextCheckpoint:
    loaded = load(Folder(folder))
    assert isinstance(loaded, TextCheckpoint)
    return loaded


def build(family: Family, head: str, **options: Any) -> PreTrainedModel:
    size = family.tokenizer().get_vocab_size() + family.spare_rows
    config = getattr(transformers, f"{family.name}Config")(**{"vocab_size": size, **family.options, **options})
    return enlarge(getattr(transformers, family.name + head)(config))


def check_masks(model: Imported) -> None:
    """Compare the five best tokens, their probabilities and texts."""
    mask = model.tokenizer.mask_token
    texts = [f"{mask} is at home.", f"Nobody left the {mask} open, and the {mask} was late.", f"The{mask}."]
    halves = [(text.split()[: number % 7], text.split()[number % 7 :]) for number, text in enumerate(TEXTS)]
    texts += [" ".join([*before, mask, *after]) for before, after in halves]
    filled = model.served.run(FILL_MASK_TASK, texts)
    answered = model.ask([(text,) for text in texts])
    logits = answered.prediction_logits if "prediction_logits" in answered else answered.logits
    encoded = model.encode([(text,) for text in texts])
    tokens = set()
    for row, result in enumerate(filled):
        places = (encoded["input_ids"][row] == model.tokenizer.mask_token_id).nonzero()[:, 0].tolist()
        assert result.token_count == int(encoded["attention_mask"][row].sum())
        assert len(result.masks) == len(places)
        for place, answer in zip(places, result.masks, strict=True):
            probabilities = torch.softmax(logits[row, place], -1)
            best = probabilities[: len(model.tokenizer)].topk(5)
            assert [candidate.token for candidate in answer.candidates] == best.indices.tolist()
            assert [candidate.score for candidate in answer.candidates] == pytest.approx(best.values.tolist(), abs=TOLERANCE)
            words = [model.tokenizer.decode([token]) for token in best.indices.tolist()]
            assert [candidate.token_str for candidate in answer.candidates] == words
            tokens.add(answer.candidates[0].token)
    assert len(tokens) > 5  # the input matters
    check_sequences(model, mask)


def check_sequences(model: Imported, mask: str) -> None:
    """Compare filled texts with what transformers decodes, except for letters that its tokenizer does not keep."""
    text = f"the old {mask} is here."
    [filled] = model.served.run(FILL_MASK_TASK, [text], top_k=20)
    ids = model.tokenizer(text)["input_ids"]
    for candidate in filled.masks[0].candidates:
        whole = [candidate.token if number == model.tokenizer.mask_token_id else number for number in ids]
        decoded = str(model.tokenizer.decode(whole[1:-1]))
        assert "".join(candidate.sequence.split()) == "".join(decoded.split())
        if model.served.tokenizer.spaced:
            assert candidate.sequence.replace("  ", " ") == decoded.strip().replace("  ", " ")


def check_vectors(model: Imported) -> None:
    """Compare both poolings of the last hidden states."""
    encoder = model.theirs if hasattr(model.theirs, "embeddings") else model.theirs.base_model
    encoded = model.encode([(text,) for text in TEXTS])
    with torch.no_grad():
        states = encoder(**encoded).last_hidden_state
    inside = encoded["attention_mask"][:, :, None]
    mean = ((states * inside).sum(1) / inside.sum(1)).numpy()
    ours = np.array([each.values for each in model.served.run(EMBEDDING_TASK, TEXTS, pooling="mean", normalize=False)])
    np.testing.assert_allclose(ours, mean, atol=TOLERANCE)
    first = np.array([each.values for each in model.served.run(EMBEDDING_TASK, TEXTS, pooling="cls", normalize=False)])
    np.testing.assert_allclose(first, states[:, 0].numpy(), atol=TOLERANCE)
    centred = mean - mean.mean(0)
    assert np.linalg.norm(centred) > 0.2 * np.linalg.norm(mean)  # the input matters


def check_labels(model: Imported) -> None:
    """Compare label probabilities of single texts and pairs."""
    pairs = list(zip(TEXTS[::2], TEXTS[1::2], strict=True))
    singles = [(text,) for text in TEXTS]
    inputs: list[tuple[Any, Any]] = [(singles, TEXTS), (pairs, pairs)]
    for theirs, ours in inputs:
        logits = model.ask(theirs).logits
        problem = model.theirs.config.problem_type
        function = "none" if problem == "regression" else "sigmoid" if problem or logits.shape[1] == 1 else "softmax"
        scores = {"none": logits, "sigmoid": torch.sigmoid(logits), "softmax": torch.softmax(logits, -1)}
        expected = scores[function].numpy()
        got = model.served.run(TEXT_CLASSIFICATION_TASK, ours)
        ranked = [sorted(each.labels, key=lambda label: label.index) for each in got]
        numbers = np.array([[label.score for label in labels] for labels in ranked])
        np.testing.assert_allclose(numbers, expected, atol=TOLERANCE)
        assert [label.label for label in ranked[0]] == [f"LABEL_{number}" for number in range(logits.shape[1])]
        assert numbers.std(0).max() > 0.02  # the input matters


def check_token_labels(model: Imported) -> None:
    """Compare every token's best label and its span; entities have no surrounding white space."""
    probabilities = torch.softmax(model.ask([(text,) for text in TEXTS]).logits, -1)
    encoded = model.tokenizer(TEXTS, return_offsets_mapping=True, return_special_tokens_mask=True)
    for row, (text, result) in enumerate(
        zip(TEXTS, model.served.run(TOKEN_CLASSIFICATION_TASK, TEXTS, aggregation="none"), strict=True)
    ):
        places = [i for i, special in enumerate(encoded["special_tokens_mask"][row]) if not special]
        best = probabilities[row, places].max(-1)
        assert [each.label for each in result.entities] == [LABELS[label] for label in best.indices.tolist()]
        assert [each.score for each in result.entities] == pytest.approx(best.values.tolist(), abs=TOLERANCE)
        for entity, place in zip(result.entities, places, strict=True):
            start, end = encoded["offset_mapping"][row][place]
            assert text[start:end].strip() == entity.text.strip() == text[entity.start : entity.end].strip()
    for strategy in ("simple", "first", "average", "max"):
        check_entities(model, strategy)


def check_entities(model: Imported, strategy: str) -> None:
    """Compare entities with those of transformers' pipeline, without its white space and its entities outside of any."""
    pipeline = transformers.pipeline(
        "token-classification", model=model.theirs, tokenizer=model.tokenizer, aggregation_strategy=strategy
    )
    found = []
    for text, result in zip(TEXTS, model.served.run(TOKEN_CLASSIFICATION_TASK, TEXTS, aggregation=strategy), strict=True):
        theirs = [one for one in pipeline(text) if one["entity_group"] != "O" and text[one["start"] : one["end"]].strip()]
        assert [one.label for one in result.entities] == [one["entity_group"] for one in theirs]
        assert [one.text for one in result.entities] == [text[one["start"] : one["end"]].strip() for one in theirs]
        assert [one.score for one in result.entities] == pytest.approx([one["score"] for one in theirs], abs=TOLERANCE)
        assert all(text[one.start : one.end] == one.text == one.text.strip() for one in result.entities)
        found += result.entities
    assert len({entity.label for entity in found}) == 2


def check_answers(model: Imported) -> None:
    """Compare the likeliest span of whole words within the context."""
    questions = [("Who left the gate open?", text) for text in TEXTS[4:]]
    answer = model.ask(questions)
    encoded = model.tokenizer(*map(list, zip(*questions, strict=True)))
    for row, (found, (_, context)) in enumerate(
        zip(model.served.run(QUESTION_ANSWERING_TASK, questions), questions, strict=True)
    ):
        places = [i for i, part in enumerate(encoded.sequence_ids(row)) if part == 1]
        start, end = (torch.softmax(logits[row, [0, *places]], 0)[1:] for logits in (answer.start_logits, answer.end_logits))
        scores = (start[:, None] * end[None]).triu().tril(14)
        assert found.answers[0].score == pytest.approx(float(scores.max()), abs=TOLERANCE)
        first, last = divmod(int(scores.argmax()), len(places))
        left, right = (encoded.token_to_word(row, places[place]) for place in (first, last))
        span = encoded.word_to_chars(row, left, 1).start, encoded.word_to_chars(row, right, 1).end
        assert found.answers[0].text == context[slice(*span)].strip() == context[found.answers[0].start : found.answers[0].end]
        assert found.token_count == len(encoded["input_ids"][row])


def check_next_sentence(model: Imported) -> None:
    pairs = list(zip(TEXTS[::2], TEXTS[1::2], strict=True))
    expected = torch.softmax(model.ask(pairs).seq_relationship_logits, -1)[:, 0].tolist()
    got = [
        {label.label: label.score for label in each.labels}["next"]
        for each in model.served.run(TEXT_CLASSIFICATION_TASK, pairs)
    ]
    assert got == pytest.approx(expected, abs=TOLERANCE)


@torch.no_grad()
def check_attention(theirs: Any, folder: Path, precision: str) -> None:
    """Compare the attention weights of every layer and head; in other precisions than fp32 in the mean."""
    ids = torch.randint(9, 200, (1, 21))
    theirs.set_attn_implementation("eager")  # the only one that returns weights
    wanted = torch.stack(theirs(input_ids=ids, output_attentions=True).attentions, 1).numpy()
    session = Session(folder / f"attend.{precision}.onnx")
    inputs = {"ids": ids.int().numpy(), "segments": np.zeros((1, 21), np.int32)}
    [found] = session.run({name: inputs[name] for name in session.inputs}, ["encoder"])
    assert external_files(folder / f"attend.{precision}.onnx") == {f"weights.{precision}.bin"}
    np.testing.assert_allclose(found.sum(-1), 1, atol=1e-5 if precision != "fp16" else 2e-3)
    if precision == "fp32":
        np.testing.assert_allclose(found, wanted, atol=TOLERANCE)
    assert np.abs(found - wanted).mean() < found.std() / 5
    assert found.std() > 0.02  # not uniform


# test_original compares weights and outputs of the others, test_text_graphs a graph of BERT.
@pytest.mark.parametrize(
    "family",
    [
        MODERNBERT,
        DEBERTA,
        *(
            pytest.param(family, marks=pytest.mark.full)
            for family in (
                *(BERT, MPNET, ROBERTA, PRE_ROBERTA, DISTILBERT, ELECTRA, ALBERT, NOMIC, GTE, JINA),
                *(MEGATRON, ROFORMER, BIG_BIRD, IBERT),
            )
        ),
    ],
    ids=lambda family: family.name,
)
def test_masks_are_filled_as_in_transformers(tmp_path: Path, family: Family) -> None:
    head = "ForPreTraining" if family is BERT else "ForMaskedLM"
    layers = {
        BERT.name: {"num_hidden_layers": 1},
        MPNET.name: {"num_hidden_layers": 1},
        MODERNBERT.name: {"num_hidden_layers": 2},
        DEBERTA.name: {"num_hidden_layers": 1},
        BIG_BIRD.name: {"num_hidden_layers": 1},
    }.get(family.name, {})
    with imported(tmp_path, family, head, **layers) as model:
        check_masks(model)
        check_vectors(model)
        if family is BERT:
            check_next_sentence(model)
        for precision in ("fp32", "int8"):
            check_attention(model.theirs, tmp_path / "bundle", precision)


@pytest.mark.full
@pytest.mark.parametrize(
    ("family", "precision"), [(BERT, "int8-weights"), (MPNET, "fp16"), (NOMIC, "fp16"), (MODERNBERT, "fp16"), (DEBERTA, "fp16")]
)
def test_attention_in_other_precisions(tmp_path: Path, family: Family, precision: str) -> None:
    theirs = build(family, "ForMaskedLM", num_hidden_layers=2)
    save_checkpoint(theirs, family.tokenizer(), tmp_path / "theirs")
    write_text(load_text(tmp_path / "theirs"), tmp_path / "bundle", lambda line: None, (precision,))
    check_attention(theirs, tmp_path / "bundle", precision)


@pytest.mark.full
@pytest.mark.parametrize("family", VARIANTS.values(), ids=VARIANTS)
def test_variants_fill_masks(tmp_path: Path, family: Family) -> None:
    with imported(tmp_path, family, "ForMaskedLM") as model:
        check_masks(model)
        check_vectors(model)


EVERY = [BERT, ERNIE, ROBERTA, DISTILBERT, XLM_ROBERTA, CAMEMBERT, DATA2VEC, PRE_ROBERTA, XL]
EVERY += [MPNET, ELECTRA, ALBERT, DEBERTA, NOMIC, GTE, JINA, MODERNBERT, VARIANTS["modernbert other layers"]]
EVERY += RELATIVES
IDS = [f"{family.name} {index}" for index, family in enumerate(EVERY)]


def check_bare(model: Imported) -> None:
    check_vectors(model)
    assert model.served.capabilities == {"embedding"}


HEADS: dict[str, tuple[Callable[[Imported], None], dict[str, Any]]] = {
    "ForSequenceClassification": (check_labels, {"num_labels": 3}),
    "ForTokenClassification": (check_token_labels, {"id2label": LABELS}),
    "ForQuestionAnswering": (check_answers, {}),
    "Model": (check_bare, {}),
}


@pytest.mark.full
@pytest.mark.parametrize(
    ("family", "head"),
    [
        pytest.param(family, head, id=f"{name}-{head}")
        for name, family in zip(IDS, EVERY, strict=True)
        for head in HEADS
        if hasattr(transformers, family.name + head) and (family.name, head) != ("BigBird", "ForQuestionAnswering")
    ],
)
def test_every_head_of_every_family(tmp_path: Path, family: Family, head: str) -> None:
    check, options = HEADS[head]
    with imported(tmp_path, family, head, **options) as model:
        check(model)
        if head == "ForSequenceClassification":
            check_vectors(model)


@pytest.mark.full
@pytest.mark.parametrize("problem", ["multi_label_classification", "regression"])
def test_labels_may_be_independent(tmp_path: Path, problem: str) -> None:
    with imported(tmp_path, BERT, "ForSequenceClassification", num_labels=3, problem_type=problem) as model:
        check_labels(model)


@pytest.mark.full
def test_a_cross_encoder_ranks_as_in_transformers(tmp_path: Path) -> None:
    options = {**CROSS_ENCODER, "problem_type": "regression"}
    with imported(tmp_path, BERT, "ForSequenceClassification", **options) as model:
        check_labels(model)
        pairs = [(TEXTS[0], text) for text in TEXTS]
        logits = model.ask(pairs).logits[:, 0]
        raw = model.served.run(RERANK_TASK, pairs, raw_scores=True)
        assert [one.index for one in raw] == logits.argsort(descending=True).tolist()
        assert [one.score for one in raw] == pytest.approx(logits.sort(descending=True).values.tolist(), abs=TOLERANCE)
        scores = [one.score for one in model.served.run(RERANK_TASK, pairs)]
        assert scores == pytest.approx(torch.sigmoid(logits).sort(descending=True).values.tolist(), abs=TOLERANCE)


@torch.no_grad()
def test_a_cross_encoder_has_the_sigmoid_of_the_logit_of_transformers(tmp_path: Path) -> None:
    """The full tier serves it."""
    theirs = build(BERT, "ForSequenceClassification", **CROSS_ENCODER)
    save_checkpoint(theirs, word_pieces(), tmp_path)
    checkpoint = load_text(tmp_path)
    pair = word_pieces().encode(*TEXTS[:2])
    logits = theirs(torch.tensor([pair.ids]), token_type_ids=torch.tensor([pair.type_ids])).logits[0]
    found = answer_in_torch(checkpoint.model, TextRow(pair.ids, pair.type_ids))
    np.testing.assert_allclose(found["logits"], logits, atol=TOLERANCE)
    np.testing.assert_allclose(found["probabilities"], logits.sigmoid(), atol=TOLERANCE)
    assert text_manifest(checkpoint, ("fp32",))["pairs"]


def test_a_sentence_transformers_folder_sets_the_pooling(tmp_path: Path) -> None:
    folder = write_sentence_transformer(tmp_path, {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False})
    checkpoint = load_text(folder)
    assert (checkpoint.pooling, checkpoint.normalize, checkpoint.head) == ("cls", True, "embedding")
    manifest = text_manifest(checkpoint, ("fp32",))
    assert (manifest["task"], manifest["pooling"], manifest["normalize"]) == ("text-embedding", "cls", True)
    assert "classifier_not_carried_over" not in checkpoint.provenance
    (folder / "model_head.pkl").touch()
    assert "model_head.pkl of SetFit is a pickle" in load_text(folder).provenance["classifier_not_carried_over"]


def test_length_limit_case_and_prompts_of_sentence_transformers(tmp_path: Path) -> None:
    folder = write_sentence_transformer(tmp_path, {"pooling_mode": "mean"})
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 12, "do_lower_case": true}')
    prompts = {"prompts": {"query": "rain: ", "other": "sun: ", "empty": ""}, "default_prompt_name": "query"}
    write_json(folder / "config_sentence_transformers.json", prompts)
    checkpoint = load_text(folder)
    assert checkpoint.model.config.max_positions == 12
    assert checkpoint.tokenizer.encode("AGAIN.").ids == word_pieces().encode("rain: again.").ids
    assert checkpoint.provenance["prompts_not_available"] == "other: 'sun: '"
    bundle = open_bundle(export(folder, ExportOptions(tmp_path / "models", valid=(SENTENCES_FILE,)), lambda line: None))
    assert bundle.manifest_of(TextManifest).limits.max_tokens == 12
    with closing(TextModel("model", 1, bundle, EncoderOptions("fp32", runs=1))) as served:
        [default], [plain] = (served.run(EMBEDDING_TASK, ["Rain again."], **given) for given in ({}, {"normalize": False}))
    assert np.linalg.norm(default.values) == pytest.approx(1)
    vector = np.array(plain.values)
    np.testing.assert_allclose(default.values, vector / np.linalg.norm(vector), rtol=1e-5)
    tokenizer = word_pieces()
    tokenizer.add_tokens([AddedToken("the", normalized=False)])
    tokenizer.save(str(folder / "tokenizer.json"))
    with pytest.raises(SourceError, match="the added token 'the' cuts texts before the default prompt is added"):
        load(Folder(folder))
    assert str(bundle.manifest.provenance["original"]).startswith("9 outputs as in transformers 5")
    assert list(bundle.manifest.precisions) == ["int8-weights", "fp32"]
    assert {"int8", "int8-weights"} < bundle.manifest.parity.keys()
    assert bundle.manifest.parity["int8-weights"]["mean_cosine"] > bundle.manifest.parity["int8"]["mean_cosine"] > 0.97


def test_prompts_of_sentence_transformers_are_named_by_requests(tmp_path: Path) -> None:
    folder = write_sentence_transformer(tmp_path, {"pooling_mode": "mean"})
    write_json(folder / "config_sentence_transformers.json", {"prompts": {"query": "rain: ", "document": "", "other": "sun: "}})
    checkpoint = load(Folder(folder))
    assert isinstance(checkpoint, TextCheckpoint)
    assert checkpoint.provenance["prompts"] == "query: 'rain: ', other: 'sun: '"
    write_text(checkpoint, tmp_path / "bundle", lambda line: None, ("fp32",))
    bundle = open_bundle(tmp_path / "bundle")
    with closing(TextModel("model", 1, bundle, EncoderOptions("fp32", runs=1))) as served:
        [named] = served.run(EMBEDDING_TASK, ["again."], prompt_name="query")
        [written] = served.run(EMBEDDING_TASK, ["rain: again."])
        [plain] = served.run(EMBEDDING_TASK, ["again."], prompt_name="document")
        for name, texts, fault in (
            ("passage", ["again."], "prompt_name: 'passage' is not a prompt of the model; it has 'query', 'document', 'other'"),
            ("query", ["again.", " "], r"contents\[1\]: the text is empty"),
        ):
            with pytest.raises(InvalidInputError, match=fault):
                served.run(EMBEDDING_TASK, texts, prompt_name=name)
    assert named.values == written.values != plain.values


def test_newer_files_of_sentence_transformers_leave_the_length_to_the_tokenizer(tmp_path: Path) -> None:
    folder = write_sentence_transformer(tmp_path, {"embedding_dimension": 48, "pooling_mode": "cls", "include_prompt": True})
    task = {"transformer_task": "feature-extraction", "module_output_name": "token_embeddings", "unpad_inputs": True}
    write_json(folder / "sentence_bert_config.json", task)
    for length, expected in ((14, 14), (10**30, POSITIONS)):
        edit_json(folder / "tokenizer_config.json", model_max_length=length)
        assert load_text(folder).model.config.max_positions == expected
    (folder / "config_sentence_transformers.json").write_text('{"similarity": 16, "similarity_fn_name": "dot"}')
    with pytest.raises(SourceError, match=r"config_sentence_transformers\.json: similarity: 16 is not supported"):
        load(Folder(folder))


@torch.no_grad()
def test_vectors_have_the_recorded_number_of_values(tmp_path: Path) -> None:
    folder = write_sentence_transformer(tmp_path, {"pooling_mode": "mean"})
    ids = word_pieces().encode("again.").ids
    wanted = answer_in_torch(load_text(folder).model, TextRow(ids, [0] * len(ids)))["mean"][:16]
    write_json(folder / "config_sentence_transformers.json", {"truncate_dim": 16})
    write_text(load_text(folder), tmp_path / "bundle", lambda line: None, ("fp32",))
    bundle = open_bundle(tmp_path / "bundle")
    assert bundle.manifest_of(TextManifest).hidden_size == 16
    with closing(TextModel("model", 1, bundle, EncoderOptions("fp32", runs=1))) as served:
        [whole] = served.run(EMBEDDING_TASK, ["again."])
        [plain] = served.run(EMBEDDING_TASK, ["again."], normalize=False)
    np.testing.assert_allclose(plain.values, wanted, atol=TOLERANCE)
    assert np.linalg.norm(whole.values) == pytest.approx(1)
    edit_json(folder / "config_sentence_transformers.json", truncate_dim=0)
    with pytest.raises(SourceError, match="truncate_dim: 0, expected a whole number above 0"):
        load(Folder(folder))


def change_modules(*places: tuple[str, str]) -> Callable[[Path], None]:
    return lambda folder: write_modules(folder, places)


def change_pooling(*kinds: str, **pooling: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        shutil.rmtree(folder / "1_Pooling")
        write_pooling(folder, pooling, "Normalize", *kinds)

    return change


def change_prompts(**members: Any) -> Callable[[Path], None]:
    return lambda folder: write_json(folder / "config_sentence_transformers.json", members)


TRANSFORMER, MEAN = ("", "Transformer"), {"pooling_mode": "mean"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (change_pooling(pooling_mode_max_tokens=True), "by pooling_mode_max_tokens is not supported; supported: mean, cls"),
        (change_pooling(pooling_mode="max"), "pooling by max is not supported"),
        (change_pooling(), "pooling by nothing is not supported"),
        (change_pooling(**MEAN, layers=2), r"1_Pooling/config\.json: layers: 2 is not supported, and may change"),
        (change_pooling(pooling_mode=["mean", "cls"]), "pooling by mean and cls is not supported"),
        (change_pooling("Dense", **MEAN), "the modules Transformer, Pooling, Normalize, Dense are not supported"),
        (change_pooling("Pooling", **MEAN), "the modules Transformer, Pooling, Normalize, Pooling are not supported"),
        (change_pooling("LSTM", **MEAN), "LSTM is not supported; supported: Transformer, Pooling, Dense, LayerNorm, Normalize"),
        (change_modules(TRANSFORMER), "the modules Transformer are not supported; supported: Transformer, Pooling, any"),
        (change_modules(TRANSFORMER, ("2_N", "Normalize"), ("1_Pooling", "Pooling")), "Normalize, Pooling are not"),
        (change_modules(("0_T", "Transformer"), ("1_Pooling", "Pooling")), "Transformer is in '0_T', not in the"),
        (change_modules(TRANSFORMER, ("2_Pooling", "Pooling")), r"2_Pooling/config\.json: missing, modules\.json names its"),
        (change_prompts(prompts=["query: "]), r"prompts: \['query: '\], expected texts by name"),
        (change_prompts(prompts={"query": "q: "}, default_prompt_name=["q"]), r"default_prompt_name: \['q'\] is not among"),
    ],
)
def test_other_modules_and_prompts_are_rejected(tmp_path: Path, change: Callable[[Path], None], message: str) -> None:
    folder = write_sentence_transformer(tmp_path, MEAN)
    change(folder)
    with pytest.raises(SourceError, match=message):
        load(Folder(folder))


def test_a_cross_encoder_with_modules_has_no_default_prompt(classifier: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(classifier, tmp_path / "copy")
    write_modules(folder, [("", "Transformer")])
    prompts = {"model_type": "CrossEncoder", "prompts": {"query": "query: "}, "default_prompt_name": None}
    write_json(folder / "config_sentence_transformers.json", prompts)
    assert load_text(folder).head == "text-classification"
    edit_json(folder / "config_sentence_transformers.json", default_prompt_name="query")
    with pytest.raises(SourceError, match="default_prompt_name is not supported of a cross-encoder; save the model without it"):
        load(Folder(folder))


def test_a_cross_encoder_with_modules_takes_texts_of_the_tokenizer_s_length(classifier: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(classifier, tmp_path / "copy")
    edit_json(folder / "tokenizer_config.json", model_max_length=16)
    assert load_text(folder).model.config.max_positions > 16
    write_modules(folder, [("", "Transformer")])
    assert load_text(folder).model.config.max_positions == 16


def test_labels_of_several_classes_stay_the_same(classifier: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(classifier, tmp_path / "copy")
    edit_json(folder / "config.json", id2label={"0": "a", "1": " a "})
    assert load_text(folder).labels == ("a", "a")


def test_the_card_lists_special_tokens_that_are_text_in_texts(classifier: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(classifier, tmp_path / "copy")
    edit_json(folder / "tokenizer_config.json", additional_special_tokens=[f"[E{number}]" for number in range(9)])
    listed = load(Folder(folder)).provenance["special_tokens_read_as_text"]
    assert listed == "[E0], [E1], [E2], [E3], [E4], [E5], [E6], [E7], ..."
    assert "special_tokens_read_as_text" not in load(Folder(classifier)).provenance


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"cls_token": 5}, "cls_token: 5, expected a token's text"),
        ({"additional_special_tokens": [{"lstrip": True}]}, "additional_special_tokens: {'lstrip': True}, expected a token's"),
        ({"extra_special_tokens": 5}, "extra_special_tokens: 5, expected a token's text"),
        ({"added_tokens_decoder": {"0": "[PAD]", "a": 1}}, "added tokens: {.*'a': 1}, expected whole numbers as ids"),
        ({"model_input_names": 5}, r"tokenizer_config\.json: model_input_names: 5, expected a list"),
    ],
)
def test_damaged_settings_of_a_tokenizer_are_named(
    classifier: Path, tmp_path: Path, members: dict[str, Any], message: str
) -> None:
    folder = shutil.copytree(classifier, tmp_path / "copy")
    edit_json(folder / "tokenizer_config.json", **members)
    with pytest.raises(SourceError, match=message):
        load(Folder(folder))


def test_an_encoder_whose_tokenizer_adds_nothing_is_rejected(classifier: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(classifier, tmp_path / "copy")
    edit_json(folder / "tokenizer.json", post_processor=None)
    with pytest.raises(SourceError, match=r"makes \[\] of an empty text, .*; if the model was trained with them"):
        load(Folder(folder))
    edit_json(folder / "tokenizer_config.json", tokenizer_class="BertTokenizer")
    assert load(Folder(folder)).tokenizer.encode("Rain.").ids == word_pieces().encode("Rain.").ids


def write_sentence_transformer(folder: Path, pooling: dict[str, Any]) -> Path:
    target = folder / "theirs"
    save_checkpoint(build(BERT, "Model", num_hidden_layers=1), word_pieces(), target)
    write_pooling(target, {"word_embedding_dimension": 48, **pooling}, "Normalize")
    return target


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("classifier")
    save_checkpoint(build(BERT, "ForSequenceClassification", num_hidden_layers=1), word_pieces(), folder)
    return folder


@pytest.mark.parametrize(
    ("family", "members", "message"),
    [
        (
            "Bert",
            {"architectures": ["BertForMultipleChoice"]},
            "Choice is not supported; supported: BertModel, BertForMaskedLM",
        ),
        ("Bert", {"architectures": 5}, "config.json: 5 is not supported; supported: BertModel"),
        ("Bert", {"pad_token_id": 1.5}, "pad_token_id: 1.5, expected a whole number"),
        ("Bert", {"architectures": None}, "architectures: missing, name the model's class; supported: BertModel"),
        ("Bert", {"problem_type": "ranking"}, "problem_type: 'ranking' is not supported; supported: single_label_"),
        ("Bert", {"hidden_act": "mish"}, "hidden_act: 'mish' is not supported; supported: relu, gelu"),
        ("Bert", {"is_decoder": True}, "is_decoder: True is not supported; supported: False"),
        ("Bert", {"position_embedding_type": "relative_key"}, "position_embedding_type: 'relative_key' is not supported"),
        ("Bert", {"id2label": {"0": "a", "2": "b"}}, "id2label: .*, expected labels numbered from 0"),
        ("Bert", {"id2label": {"0": "a", "1": None}}, "id2label: .*, expected labels numbered from 0, none of them empty"),
        ("Bert", {"id2label": {str(number): "" for number in range(99)}}, "id2label: .{200}, expected labels numbered"),
        ("Bert", {"id2label": None, "num_labels": "two"}, "num_labels: 'two', expected a whole number"),
        ("Bert", {"vocab_size": 100}, "the tokenizer has '.*' as number .*, config.json a vocab_size of 100"),
        ("Bert", {"num_attention_heads": 5}, "heads: 5 does not divide model_dim 48"),
        ("Bert", {"architectures": ["BertForMaskedLM"]}, "missing cls.predictions.transform.dense.weight"),
        ("Bert", {"num_hidden_layers": 2}, "missing encoder.layer.1.attention.self.query.weight"),
        ("Bert", {"model_type": "bertish"}, "model_type 'bertish' .* is not supported"),
        ("MPNet", {"relative_attention_num_buckets": 64}, "relative_attention_num_buckets: 64 is not supported; supported: 32"),
        ("MPNet", {"pad_token_id": 0}, "pad_token_id: 0 is not supported; supported: 1, from which positions count"),
        ("Electra", {"architectures": ["ElectraForPreTraining"]}, "is not supported; supported: ElectraModel"),
        ("Electra", {"embedding_size": 48}, r"embeddings.LayerNorm.weight \[32\], expected \[48\]"),
        ("Albert", {"num_hidden_groups": 2}, "num_hidden_groups: 2 is not supported; supported: 1"),
        ("Albert", {"inner_group_num": 2}, "inner_group_num: 2 is not supported; supported: 1"),
        ("NomicBert", {"prenorm": True}, "prenorm: True is not supported; supported: False"),
        ("NomicBert", {"num_experts": 8, "moe_top_k": 2}, "num_experts: 8 is not supported, and may change the results; moe_"),
        ("NomicBert", {"activation_function": "gelu"}, "activation_function: 'gelu' is not supported; supported: 'swiglu'"),
        ("NomicBert", {"head_dim": 8}, "head_dim: 8 is not supported; supported: the width divided by the number of heads"),
        ("Gte", {"logn_attention_scale": True}, "logn_attention_scale: True is not supported; supported: False"),
        ("Gte", {"rope_parameters": {"rope_type": "longrope", "short_factor": [1.0]}}, "rope_type: 'longrope' is not"),
        (
            "Gte",
            {"rope_parameters": None, "rope_scaling": {"type": "ntk", "factor": 8.0, "mixed_b": 0.5}},
            "mixed_b: not supported with rope_type 'ntk'",
        ),
        ("DebertaV2", {"conv_kernel_size": 3, "conv_act": "gelu"}, "conv_kernel_size: 3 is not supported; supported: 0"),
        ("DebertaV2", {"share_att_key": None}, "share_att_key: False is not supported; supported: True"),
        ("DebertaV2", {"pos_att_type": ["c2p"]}, r"pos_att_type: \['c2p'\] is not supported; supported: 'p2c|c2p' or "),
        ("DebertaV2", {"position_buckets": None}, "position_buckets: -1 is below 4"),
        ("DebertaV2", {"type_vocab_size": 2}, "type_vocab_size: 2 is not supported; supported: 0"),
        ("DebertaV2", {"architectures": ["DebertaV2ForMultipleChoice"]}, "is not supported; supported: DebertaV2Model, "),
        ("SqueezeBert", {"layer_norm_eps": 1e-5}, "layer_norm_eps: 1e-05 is not supported; supported: 1e-12"),
        ("RoFormer", {"rotary_value": True}, "rotary_value: True is not supported; supported: False"),
        ("BigBird", {"attention_type": "sparse"}, "attention_type: 'sparse' is not supported; supported: 'block_sparse', "),
        ("BigBird", {"rescale_embeddings": True}, "rescale_embeddings: True is not supported"),
        ("BigBird", {"use_bias": False}, "use_bias: False is not supported"),
        ("IBert", {"quant_mode": True}, "quant_mode: True is not supported"),
        ("ModernBert", {"rope_parameters": 5}, "rope_parameters: 5, expected members by name"),
        ("ModernBert", {"rope_parameters": {"sliding_attention": [5]}}, r"rope_parameters: \[5\], expected members by name"),
    ],
)
def test_unsupported_members_are_named(tmp_path: Path, family: str, members: dict[str, Any], message: str) -> None:
    made = next(
        each for each in (BERT, MPNET, ELECTRA, ALBERT, DEBERTA, NOMIC, GTE, MODERNBERT, *RELATIVES) if each.name == family
    )
    head = "ForSequenceClassification" if made is BERT else "Model"
    save_checkpoint(build(made, head, num_hidden_layers=1), made.tokenizer(), tmp_path)
    edit_json(tmp_path / "config.json", **members)
    with pytest.raises(SourceError, match=message):
        load(Folder(tmp_path))


@torch.no_grad()
def test_texts_of_a_sparse_big_bird_are_as_long_as_all_tokens_are_compared(tmp_path: Path) -> None:
    theirs = build(BIG_BIRD, "Model", block_size=4, num_random_blocks=1)
    save_checkpoint(theirs, BIG_BIRD.tokenizer(), tmp_path)
    checkpoint, ids = load_text(tmp_path), torch.randint(5, 300, (1, 28))
    assert checkpoint.model.config.max_positions == ids.shape[1]
    assert checkpoint.model.bert.embedding.positions.weight.shape == (28, 48)  # type: ignore[union-attr]
    states = checkpoint.model.bert(ids, torch.zeros_like(ids))
    torch.testing.assert_close(states, theirs(ids).last_hidden_state, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("members", [{"tokenizer_class": "RoFormerTokenizer"}, {"tokenizer_class": None}])
def test_roformer_s_own_tokenizer_is_refused(tmp_path: Path, members: dict[str, Any]) -> None:
    save_checkpoint(build(ROFORMER, "Model"), ROFORMER.tokenizer(), tmp_path)
    edit_json(tmp_path / "tokenizer_config.json", **members)
    with pytest.raises(SourceError, match=r"'RoFormerTokenizer' is not supported: .*jieba"):
        load(Folder(tmp_path))


@pytest.mark.parametrize(("buckets", "distance"), [(256, 512), (32, 160), (9, 40), (128, 160)])
def test_deberta_s_buckets_are_those_of_transformers(buckets: int, distance: int) -> None:
    distances = torch.arange(-2_000, 2_001)
    config = DebertaConfig(9, 8, 1, 8, 1, position_buckets=buckets, max_distance=distance, mask_id=3)
    wanted = make_log_bucket_position(distances, buckets, distance).long() + buckets
    assert Deberta(config).rows(distances).tolist() == wanted.clamp(0, 2 * buckets - 1).tolist()


def test_old_configurations_of_modernbert(tmp_path: Path) -> None:
    save_checkpoint(build(MODERNBERT, "Model"), modern_pieces(), tmp_path)
    edit_json(tmp_path / "config.json", layer_types=None, rope_parameters=None)
    edit_json(tmp_path / "config.json", global_attn_every_n_layers=2, global_rope_theta=5_000.0)
    checkpoint = load_text(tmp_path)
    shape = checkpoint.model.config
    assert (shape.global_layers, shape.global_theta, shape.local_theta) == ((0, 2), 5_000.0, 10_000.0)  # type: ignore[union-attr]
    edit_json(tmp_path / "config.json", rope_scaling={"rope_type": "yarn"})
    with pytest.raises(SourceError, match=r"rope_scaling: \{'rope_type': 'yarn'\} is not supported"):
        load(Folder(tmp_path))
    scaled = {"full_attention": {"rope_type": "linear", "factor": 2.0}}
    edit_json(tmp_path / "config.json", rope_scaling=None, rope_parameters=scaled)
    with pytest.raises(SourceError, match="rope_type: 'linear' is not supported"):
        load(Folder(tmp_path))


NOMIC_FILE: dict[str, Any] = {  # without sizes
    **{"activation_function": "swiglu", "architectures": ["NomicBertModel"], "model_type": "nomic_bert", "causal": False},
    **{"attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0, "dense_seq_output": True, "fused_bias_fc": True},
    **{"fused_dropout_add_ln": True, "initializer_range": 0.02, "layer_norm_epsilon": 1e-12, "max_trained_positions": 2048},
    **{"mlp_fc1_bias": False, "mlp_fc2_bias": False, "n_positions": 8192, "pad_vocab_size_multiple": 64, "prenorm": False},
    **{"parallel_block": False, "parallel_block_tied_norm": False, "qkv_proj_bias": False, "reorder_and_upcast_attn": False},
    **{"rotary_emb_base": 1000, "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False, "rotary_emb_scale_base": None},
    **{"rotary_scaling_factor": 2, "scale_attn_by_inverse_layer_idx": False, "scale_attn_weights": True, "use_xentropy": True},
    **{"summary_activation": None, "summary_first_dropout": 0.0, "summary_proj_to_labels": True, "summary_type": "cls_index"},
    **{"summary_use_proj": True, "type_vocab_size": 2, "use_cache": True, "use_flash_attn": True, "use_rms_norm": False},
}


def test_configurations_of_nomic_s_authors(tmp_path: Path) -> None:
    theirs = build(NOMIC.variant(max_position_embeddings=2048), "Model")
    save_checkpoint(theirs, word_pieces(), tmp_path)
    expected, config = load_text(tmp_path).model, theirs.config
    sizes = {"n_embd": 48, "n_head": 3, "n_inner": 80, "n_layer": 2, "vocab_size": config.vocab_size}
    write_json(tmp_path / "config.json", {**NOMIC_FILE, **sizes})
    found = load_text(tmp_path).model
    assert found.config == expected.config
    assert all(map(torch.equal, found.state_dict().values(), expected.state_dict().values()))


def test_configurations_of_gte_s_authors(tmp_path: Path) -> None:
    scaled = {"rope_type": "linear", "factor": 8.0 ** (2 / 16), "rope_theta": 160_000.0}
    save_checkpoint(build(GTE, "Model", rope_parameters=scaled), sentence_pieces(), tmp_path)
    expected = load_text(tmp_path).model.config
    members = {"layer_norm_type": "layer_norm", "logn_attention_clip1": False, "logn_attention_scale": False, "pack_qkv": True}
    members |= {"position_embedding_type": "rope", "unpad_inputs": False, "use_memory_efficient_attention": False}
    scaling = {"rope_theta": 20_000, "rope_scaling": {"factor": 8.0, "type": "ntk"}}
    edit_json(tmp_path / "config.json", model_type="new", architectures=["NewModel"], rope_parameters=None)
    edit_json(tmp_path / "config.json", **members, **scaling)
    assert load_text(tmp_path).model.config == expected
    edit_json(tmp_path / "config.json", rope_theta=None, rope_scaling=None)
    assert load_text(tmp_path).model.config == replace(expected, theta=10_000.0, rotary_divisor=1.0)
