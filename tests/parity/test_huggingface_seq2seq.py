"""Encoder-decoder checkpoints of transformers, read into our modules: the same logits and the same tokens."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from triptych_export.huggingface.architectures.registry import load
from triptych_export.huggingface.folder import Folder
from triptych_export.translation_source import TranslationSource
from triptych_training.data.batches import Ids, pad
from triptych_training.decoding.greedy import greedy

from ..fixtures.huggingface import VARIANTS, small_model
from ..fixtures.sentences import SENTENCES

ALL = [
    pytest.param(family, variant, id=f"{family}-{variant}", marks=[pytest.mark.full] if place else [])
    for family, variants in VARIANTS.items()
    for place, variant in enumerate(variants)
]
TEXTS = SENTENCES[:24]
LENGTH = 30  # as transformers count: the decoder's start and the end included
NEUTRAL: dict[str, Any] = {
    "num_beams": 1,
    "min_length": 0,
    "no_repeat_ngram_size": 0,
    "repetition_penalty": 1.0,
    "max_length": LENGTH,
    "do_sample": False,
}


class Case:
    """One checkpoint, loaded by both, and a language pair."""

    def __init__(self, folder: Path) -> None:
        self.theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        loaded = load(Folder(folder))
        assert isinstance(loaded, TranslationSource)
        self.ours = loaded
        self.source, self.target = list(loaded.sources)[-1], next(iter(loaded.targets))

    def texts(self) -> list[str]:
        """As transformers want them: instructions and Marian's languages are part of a text."""
        frame = self.ours.targets[self.target]
        language = "".join(self.tokenizer.convert_ids_to_tokens(list(frame.before)))
        return [f"{language}{frame.text}{text}" for text in TEXTS]

    def their_sources(self) -> list[Ids]:
        if getattr(self.tokenizer, "src_lang", None):
            self.tokenizer.src_lang = self.source
        rows: list[Ids] = self.tokenizer(self.texts()).input_ids
        return rows

    def our_sources(self) -> list[Ids]:
        near, far = self.ours.sources[self.source], self.ours.targets[self.target]
        texts = [encoding.ids for encoding in self.ours.tokenizer.encode_batch([far.text + text for text in TEXTS])]
        return [[*far.before, *near.before, *ids, *near.after] for ids in texts]

    def generate(self, sources: Sequence[Ids]) -> list[Ids]:
        """Tokens without the decoder's start and the end."""
        config = self.ours.model.config
        source = pad([list(ids) for ids in sources], config.pad_id)
        forced = self.ours.targets[self.target].forced
        options = {**NEUTRAL, **({"forced_bos_token_id": forced[0]} if forced else {})}
        rows = self.theirs.generate(source, attention_mask=(source != config.pad_id).long(), **options)[:, 1:].tolist()
        return [list(_until(row, config.eos_id)) for row in rows]


def _until(row: Ids, end: int) -> Iterator[int]:
    for token in row:
        if token == end:
            return
        yield token


@pytest.fixture
def case(tmp_path: Path, request: pytest.FixtureRequest) -> Case:
    family, variant = request.param
    return Case(small_model(family, variant, tmp_path / "model"))


every_model = pytest.mark.parametrize(
    "case", [pytest.param(tuple(p.values), id=p.id, marks=p.marks) for p in ALL], indirect=True
)


@every_model
@torch.inference_mode()
def test_the_same_model(case: Case) -> None:
    """Source ids, teacher-forced logits of ragged batches, greedy tokens."""
    sources, config = case.our_sources(), case.ours.model.config
    assert sources == case.their_sources()

    torch.manual_seed(3)
    source = pad(sources, config.pad_id)
    target = torch.randint(0, config.vocabulary_size, (len(sources), 17))
    target[target == config.pad_id] = config.eos_id  # M2M100 gives padding no position, and never has it here
    target[:, 0] = config.bos_id
    mask = (source != config.pad_id).long()
    expected = case.theirs(input_ids=source, attention_mask=mask, decoder_input_ids=target).logits
    torch.testing.assert_close(case.ours.model(source, target), expected, rtol=1e-4, atol=1e-4)

    generation = case.ours.generation
    suppressed = [ids[0] for ids in generation.get("suppressed_tokens", ()) if len(ids) == 1]
    longest = LENGTH - 1 - generation.get("forced_end", False)
    prefix = case.ours.targets[case.target].forced
    answers = greedy(case.ours.model, sources, longest, prefix, suppressed)
    assert answers == case.generate(sources)
    assert len({tuple(answer) for answer in answers}) >= len(TEXTS) // 2


Stored = dict[str, torch.Tensor]


def copies(stored: Stored) -> Stored:
    """As pickles have it: every name of a tied matrix, and the fixed positions of old versions."""
    shared = stored["model.shared.weight"]
    names = ("lm_head.weight", "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")
    return {**stored, **{name: shared.clone() for name in names}, "model.encoder.version": torch.ones(1)}


def decoder_only(stored: Stored) -> Stored:
    """Under one of the other names alone."""
    names = {"model.shared.weight": "model.decoder.embed_tokens.weight"}
    return {names.get(name, name): tensor for name, tensor in stored.items()}


def different(stored: Stored) -> Stored:
    """Tied by config.json, but stored as two matrices: then there are two."""
    return {**stored, "lm_head.weight": stored["model.shared.weight"].flip(0)}


def half(stored: Stored) -> Stored:
    return {name: tensor.half() for name, tensor in stored.items()}


def bare(stored: Stored) -> Stored:
    """Of the model without its head: no prefix, no bias."""
    return {name.removeprefix("model."): tensor for name, tensor in stored.items() if name.startswith("model.")}


@pytest.mark.parametrize("change", [copies, decoder_only, different, half, bare])
@torch.inference_mode()
def test_however_embeddings_are_stored(change: Callable[[Stored], Stored], tmp_path: Path) -> None:
    folder = small_model("bart", "tied", tmp_path / "model")
    original = load_file(folder / "model.safetensors")
    save_file(change(original), folder / "model.safetensors", {"format": "pt"})
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32).eval()
    ours = load(Folder(folder))
    assert isinstance(ours, TranslationSource)
    source, target = torch.tensor([[0, 9, 8, 7, 2], [0, 5, 2, 1, 1]]), torch.tensor([[2, 0, 5, 6], [2, 0, 9, 9]])
    expected = theirs(input_ids=source, attention_mask=(source != 1).long(), decoder_input_ids=target).logits
    torch.testing.assert_close(ours.model(source, target), expected, rtol=1e-4, atol=1e-4)
