"""Imported models of CTranslate2 against CTranslate2 itself: the same log-probabilities and the same translations."""

import json
import shutil
import struct
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
import pytest
import sentencepiece
import torch
from ctranslate2.converters import TransformersConverter
from ctranslate2.specs import common_spec, transformer_spec
from ctranslate2.specs.model_spec import OPTIONAL
from tokenizers import processors

from triptych.decoding import DecodingOptions, SplitSentences
from triptych_export.errors import SourceError
from triptych_export.exporter import ExportOptions, export
from triptych_export.families import translation
from triptych_export.huggingface.architectures.ctranslate2 import CTranslate2Folder, load_ctranslate2
from triptych_export.translation_source import TranslationSource
from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.decoding.engine import EngineOptions
from triptych_serving.models.decode_model import DecodeModelOptions
from triptych_serving.models.translation.translator import Translator
from triptych_training.data.batches import pad

from ..fixtures.huggingface import small_model
from ..fixtures.json_files import edit_json, write_json
from ..fixtures.quick_trials import quick_trials  # noqa: F401
from ..fixtures.sentences import SENTENCES

TEXTS = [" ".join(sentence.split()[:25]) for sentence in SENTENCES[:12]]
TOKENIZERS = ("*token*", "*.spm", "*.model", "vocab.json", "merges.txt")
WIDTH, INNER, HEADS, PIECES = 24, 40, 2, 200
SPECIAL = ["<unk>", "<blank>", "<s>", "</s>"]  # OpenNMT's
OLD = {"num_heads", "pre_norm", "activation", "embeddings_merge", "alignment_layer", "alignment_heads"}  # once for both sides


def converted(family: str, variant: str, folder: Path, quantization: str | None = None) -> Path:
    """Convert a small model of transformers, with the files of its tokenizer."""
    checkpoint = small_model(family, variant, folder / "checkpoint")
    names = sorted({path.name for pattern in TOKENIZERS for path in checkpoint.glob(pattern)})
    if "bart" in family:  # the converter reads members that transformers 5 no longer writes
        edit_json(checkpoint / "config.json", normalize_before=family != "bart")
    if family == "mbart50":
        edit_json(checkpoint / "config.json", tokenizer_class="MBart50Tokenizer")
    TransformersConverter(str(checkpoint), copy_files=names).convert(str(folder / "model"), quantization=quantization)
    if family == "mbart50":
        edit_json(folder / "model/config.json", bos_token="<s>")  # the converter finds none with transformers 5
    return folder / "model"


def names(folder: Path, side: str) -> list[str]:
    return CTranslate2Folder(folder).names(side)


@torch.inference_mode()
def compare(source: TranslationSource, folder: Path, near: str, far: str, free_start: bool = False) -> None:
    """Compare the log-probabilities of random translations, token by token; a `free_start` is the caller's first token."""
    model, sources, targets = source.model, names(folder, "source"), names(folder, "target")
    frame, forced = source.sources[near], source.targets[far]
    ids = [[*forced.before, *frame.before, *row.ids, *frame.after] for row in source.tokenizer.encode_batch(TEXTS)]
    generator = np.random.default_rng(0)
    rows = [[*forced.forced, *generator.integers(8, 150, len(row)).tolist()] for row in ids]
    start, end, padding = model.config.bos_id, model.config.eos_id, model.config.pad_id
    first = [targets[start]] if free_start else []
    config = CTranslate2Folder(folder).config
    inside = slice(int(config["add_source_bos"]), -1 if config["add_source_eos"] else None)  # the rest CTranslate2 adds itself
    translator = ctranslate2.Translator(str(folder), compute_type="float32")
    scores = translator.score_batch(
        [[sources[number] for number in row[inside]] for row in ids],
        [first + [targets[number] for number in row] for row in rows],
    )
    assert isinstance(model, torch.nn.Module)
    logits = model(pad(ids, padding), pad([[start, *row] for row in rows], padding))
    for row, probabilities, score in zip(rows, logits.log_softmax(-1), scores, strict=True):
        found = probabilities[torch.arange(len(row) + 1), torch.tensor([*row, end])]
        np.testing.assert_allclose(found, score.log_probs, atol=5e-4)
    np.testing.assert_allclose(logits.log_softmax(-1).exp()[..., : len(targets)].sum(-1), 1.0, atol=1e-5)


@pytest.mark.parametrize(
    ("family", "variant", "languages", "quantization"),
    [
        ("marian", "tied", ("en", "de"), "int8"),
        ("marian", "languages", ("en", "fr"), None),
        ("marian", "untied", ("en", "de"), None),
        ("bart", "tied", ("und", "und"), "int16"),
        ("bart", "odd", ("und", "und"), None),
        ("bart", "untied", ("und", "und"), None),
        ("mbart50", "tied", ("en_XX", "de_DE"), None),
        ("nllb", "tied", ("eng_Latn", "deu_Latn"), "float16"),
        ("nllb", "legacy", ("eng_Latn", "deu_Latn"), None),
        ("t5", "tied", ("und", "und"), "int8_float16"),
        ("t5", "odd", ("und", "und"), "bfloat16"),
        ("t5", "gated", ("und", "und"), None),
        ("t5", "languages", ("zh", "de"), None),
        ("mt5", "gated", ("und", "und"), None),
        ("umt5", "gated", ("und", "und"), "int8"),
    ],
)
def test_converted_models(
    family: str, variant: str, languages: tuple[str, str], quantization: str | None, tmp_path: Path
) -> None:
    folder = converted(family, variant, tmp_path, quantization)
    source = load_ctranslate2(CTranslate2Folder(folder))
    codes = zip((source.sources, source.targets), languages, strict=True)
    near, far = (next(code for code in offered if code.startswith(language)) for offered, language in codes)
    compare(source, folder, near, far)


def test_a_decoder_that_starts_with_the_target_language(tmp_path: Path) -> None:
    folder = converted("mbart25", "tied", tmp_path)
    edit_json(folder / "config.json", bos_token="<s>")
    with pytest.raises(SourceError, match="--target-language"):
        load_ctranslate2(CTranslate2Folder(folder))
    compare(load_ctranslate2(CTranslate2Folder(folder), "", "ro_RO"), folder, "en_XX", "ro_RO", free_start=True)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> "Package":
    """A package that tests must not change."""
    made = Package(tmp_path_factory.mktemp("packages") / "translate-en_de-1_0")
    made.save()
    return made


def test_a_package_is_served_with_the_translations_of_ctranslate2(package: "Package", tmp_path: Path) -> None:
    """Greedily, and with the beams that are its default."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(translation, "RANDOM_SENTENCES", translation.FEWEST_SENTENCES)
        patch.setattr(translation, "RANDOM_LENGTH", 10)
        bundle = export(package.folder, ExportOptions(tmp_path, name="argos", precisions=("fp32",)), lambda line: None)
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(package.folder / "sentencepiece.model"))
    sources = [pieces.encode(text, out_type=str) for text in TEXTS]
    theirs = ctranslate2.Translator(str(package.model), compute_type="float32")
    ours = Translator("argos", 1, open_bundle(bundle), DecodeModelOptions("fp32", EngineOptions(workers=1, slots=16)))
    with closing(ours):
        for given, beams, penalty in ((1, 1, 1.0), (None, 4, 0.2)):
            options = DecodingOptions(beam_size=given, max_length=30, split_sentences=SplitSentences.OFF)
            found = [output.text for output in ours.translate(TEXTS, options, "en", "de")]
            results = theirs.translate_batch(
                sources, beam_size=beams, length_penalty=penalty, max_decoding_length=30, disable_unk=True
            )
            expected = ["".join(result.hypotheses[0]).replace("\u2581", " ").lstrip(" ") for result in results]
            assert found == expected
            assert len(set(expected)) > len(TEXTS) / 2


@pytest.mark.parametrize("ends", [True, False])
def test_a_tokenizer_json_alone(package: "Package", ends: bool, tmp_path: Path) -> None:
    """The file says what is added to texts."""
    folder = shutil.copytree(package.model, tmp_path / "model")
    tokenizer = load_ctranslate2(CTranslate2Folder(package.folder)).tokenizer
    template = ["<s>:0", "$A:0", *(["</s>:0"] if ends else [])]
    tokenizer.post_processor = processors.TemplateProcessing(template, special_tokens=[("<s>", 2), ("</s>", 3)])
    tokenizer.save(str(folder / "tokenizer.json"))
    source = load_ctranslate2(CTranslate2Folder(folder), "en", "de")
    assert source.sources["en"].before == (2,)
    assert source.tokenizer.encode("A man.").ids[-1:] == ([3] if ends else tokenizer.encode("A man.").ids[-1:])
    compare(source, folder, "en", "de")
    write_json(folder / "shared_vocabulary.json", [*SPECIAL[:2], *reversed(names(folder, "source")[2:])])
    with pytest.raises(SourceError, match=r"the tokenizer's token 2 is '<s>', that of the vocabulary '.*'; use the tokenizer"):
        load_ctranslate2(CTranslate2Folder(folder), "en", "de")


def test_faults_of_folders(package: "Package", tmp_path: Path) -> None:
    def error(break_it: Callable[[Path], object]) -> str:
        folder = shutil.copytree(package.folder, tmp_path / str(len(list(tmp_path.iterdir()))))
        break_it(folder)
        with pytest.raises(SourceError) as caught:
            load_ctranslate2(CTranslate2Folder(folder))
        return str(caught.value)

    content = (package.model / "model.bin").read_bytes()
    for length in (0, 3, 20, 200, len(content) // 2, len(content) - 1):
        assert "model.bin: not a model of CTranslate2, or damaged" in error(
            lambda folder, length=length: (folder / "model/model.bin").write_bytes(content[:length])
        )
    other = content.replace(b"\x10\x00TransformerSpec\x00", b"\x0c\x00WhisperSpec\x00")
    assert "'WhisperSpec' is not supported" in error(lambda folder: (folder / "model/model.bin").write_bytes(other))
    alibi = content.replace(b"decoder/scale_alibi", b"decoder/scale_xyzzy")
    assert "decoder.scale_xyzzy: 0 is not supported" in error(lambda folder: (folder / "model/model.bin").write_bytes(alibi))
    assert "no tokenizer: expected" in error(lambda folder: (folder / "sentencepiece.model").unlink())
    assert "bpe.model: BPE after Moses' tokenizer is not supported" in error(
        lambda folder: (folder / "sentencepiece.model").rename(folder / "bpe.model")
    )
    known = names(package.model, "source")
    twice = [*known[:-1], known[-2]]
    assert "is in the vocabulary twice; copy tokenizer.json" in error(
        lambda folder: (folder / "model/shared_vocabulary.json").write_text(json.dumps(twice))
    )
    assert "no vocabulary, expected" in error(lambda folder: (folder / "model/shared_vocabulary.json").unlink())
    assert "has 201 rows, and the vocabulary 150 tokens" in error(
        lambda folder: (folder / "model/shared_vocabulary.json").write_text(json.dumps(known[:150]))
    )
    other = json.dumps([*known[:170], *(f"x{number}" for number in range(len(known) - 170))])
    assert "sentencepiece.model has only 169 of the vocabulary's 201 tokens" in error(
        lambda folder: (folder / "model/shared_vocabulary.json").write_text(other)
    )
    for code in (None, 3, "", "not a language!"):
        problem = f"metadata.json: from_code, to_code: expected the codes of two languages, found 'en' and {code!r}"
        assert problem in error(lambda folder, code=code: edit_json(folder / "metadata.json", to_code=code))
    assert "bos: 'x' is not supported" in error(lambda folder: edit_json(folder / "model/config.json", bos="x"))
    assert "eos_token: 'xyzzy' is not in the vocabulary" in error(
        lambda folder: edit_json(folder / "model/config.json", eos_token="xyzzy")
    )


def test_a_model_is_named_by_its_folder(package: "Package", tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"it is a file: name its folder, .*model"):
        export(package.model / "model.bin", ExportOptions(tmp_path), lambda line: None)


class Package:
    """A package of Argos Translate with random weights, as OpenNMT's models are converted."""

    def __init__(self, folder: Path, stored_positions: bool = True, separate: bool = False, **config: Any) -> None:
        self.folder, self.model = folder, folder / "model"
        self.model.mkdir(parents=True)
        write_json(folder / "metadata.json", {"from_code": "en", "to_code": "de", "package_version": "1.0"})
        pieces = _train_pieces(folder / "sentencepiece.model")
        sources, targets = [*SPECIAL, *pieces], [*SPECIAL, *(pieces[:-9] if separate else pieces)]
        self._random = np.random.default_rng(6)
        self.spec = transformer_spec.TransformerSpec.from_config(
            (2, 2), HEADS, pre_norm=True, activation=common_spec.Activation.GELU
        )
        embeddings = self._weight(len(sources), WIDTH)
        self.spec.encoder.embeddings[0].weight = embeddings
        self.spec.decoder.embeddings.weight = self._weight(len(targets), WIDTH) if separate else embeddings
        for side in (self.spec.encoder, self.spec.decoder):
            if stored_positions:
                side.position_encodings.encodings = self._weight(5_000, WIDTH)
            self._norm(side.layer_norm)
            for layer in side.layer:
                self._layer(layer)
        self.spec.decoder.projection.weight = self.spec.decoder.embeddings.weight
        self.spec.decoder.projection.bias = self._weight(len(targets), 1)[:, 0]
        self.spec.register_source_vocabulary(sources)
        self.spec.register_target_vocabulary(targets)
        for name, value in config.items():
            setattr(self.spec.config, name, value)

    def save(self, quantization: str | None = None) -> Path:
        """Write the model; return the package's folder."""
        self.spec.validate()
        self.spec.optimize(quantization)
        self.spec.save(str(self.model))
        return self.folder

    def _layer(self, layer: Any) -> None:
        for number, linear in enumerate(layer.self_attention.linear):
            self._linear(linear, WIDTH, (3 * WIDTH, WIDTH)[number], 2.0)
        if hasattr(layer, "attention"):
            for number, linear in enumerate(layer.attention.linear):
                self._linear(linear, WIDTH, (WIDTH, 2 * WIDTH, WIDTH)[number], 6.0)
            self._norm(layer.attention.layer_norm)
        self._norm(layer.self_attention.layer_norm)
        self._norm(layer.ffn.layer_norm)
        self._linear(layer.ffn.linear_0, WIDTH, INNER)
        self._linear(layer.ffn.linear_1, INNER, WIDTH)

    def _linear(self, linear: Any, inputs: int, outputs: int, factor: float = 1.0) -> None:
        linear.weight, linear.bias = factor * self._weight(outputs, inputs), self._weight(outputs, 1)[:, 0]

    def _norm(self, norm: Any) -> None:
        norm.gamma, norm.beta = 1 + 0.2 * self._weight(WIDTH, 1)[:, 0], 0.2 * self._weight(WIDTH, 1)[:, 0]

    def _weight(self, rows: int, columns: int) -> Any:
        return self._random.normal(size=(rows, columns)).astype(np.float32) * columns**-0.5


def _train_pieces(path: Path) -> list[str]:
    with path.open("wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(SENTENCES), model_writer=file, vocab_size=PIECES, minloglevel=2
        )
    model = sentencepiece.SentencePieceProcessor(model_file=str(path))
    return [model.id_to_piece(number) for number in range(3, len(model))]


@pytest.mark.parametrize(
    ("options", "quantization"),
    [
        ({}, "int8"),
        ({"stored_positions": False}, None),
        ({"separate": True, "add_source_bos": True, "add_source_eos": True}, None),
    ],
)
def test_packages_of_argos_translate(options: dict[str, Any], quantization: str | None, tmp_path: Path) -> None:
    package = Package(tmp_path / "translate-en_de-1_0", **options)
    folder = package.save(quantization)
    compare(load_ctranslate2(CTranslate2Folder(folder)), package.model, "en", "de")


@pytest.mark.parametrize("parts", [("self_attention", "attention"), ("ffn",)])
def test_biases_in_some_layers_only(parts: Sequence[str], tmp_path: Path) -> None:
    """OpenNMT-py's projections of attention have none by default."""
    package = Package(tmp_path / "translate-en_de-1_0")
    for layer in (*package.spec.encoder.layer, *package.spec.decoder.layer):
        for part in (getattr(layer, name) for name in parts if hasattr(layer, name)):
            for linear in getattr(part, "linear", None) or (part.linear_0, part.linear_1):
                linear.bias = OPTIONAL
    folder = package.save()
    compare(load_ctranslate2(CTranslate2Folder(folder)), package.model, "en", "de")


def test_a_package_whose_translations_start_with_a_token(package: "Package", tmp_path: Path) -> None:
    folder = shutil.copytree(package.folder, tmp_path / "package")
    prefix = names(package.model, "target")[9]
    edit_json(folder / "metadata.json", target_prefix=prefix)
    source = load_ctranslate2(CTranslate2Folder(folder))
    assert source.targets["de"].forced == (9,)
    compare(source, package.model, "en", "de")
    edit_json(folder / "metadata.json", target_prefix=">>xyzzy<<")
    with pytest.raises(SourceError, match=r"metadata\.json: target_prefix: '>>xyzzy<<' is not in the vocabulary"):
        load_ctranslate2(CTranslate2Folder(folder))


@pytest.mark.parametrize(("code", "known"), [("pb", "pt-BR"), ("zt", "zh-Hant")])
def test_languages_that_only_argos_translate_names_so(package: "Package", code: str, known: str, tmp_path: Path) -> None:
    folder = shutil.copytree(package.folder, tmp_path / "package")
    edit_json(folder / "metadata.json", to_code=code)
    assert list(load_ctranslate2(CTranslate2Folder(folder)).targets) == [known]


def _write_old(package: Package, version: int, revision: int, flags: Sequence[str]) -> Path:
    """Write a model as the first versions of CTranslate2 did: without config.json, types and, at first, aliases."""
    package.spec.validate()
    package.model.joinpath("model.bin").unlink(missing_ok=True)
    variables: dict[str, Any] = {}
    for name, value in package.spec.variables(ordered=True):
        side, _, last = name.partition("/")
        variables[last if last in OLD and revision < 5 else name.replace("embeddings_0", "embeddings")] = value.numpy()
    variables |= {name: np.int8(1) for name in flags}

    def text(value: str) -> bytes:
        return struct.pack("<H", len(value) + 1) + value.encode() + b"\0"

    with package.model.joinpath("model.bin").open("wb") as file:
        file.write(struct.pack("<I", version) + text("TransformerSpec") + struct.pack("<II", revision, len(variables)))
        for name, value in variables.items():
            file.write(text(name) + struct.pack("<B", value.ndim) + struct.pack(f"<{value.ndim}I", *value.shape))
            file.write(struct.pack("<BI", value.itemsize, value.size) + value.tobytes())
        if version >= 3:
            file.write(struct.pack("<I", 0))
    for side, tokens in package.spec._vocabularies.items():
        (package.model / f"{side}_vocabulary.txt").write_text("\n".join(tokens[0]) + "\n", encoding="utf-8")
    return package.folder


@pytest.mark.parametrize(("version", "revision", "flags"), [(2, 4, ()), (3, 5, ("with_source_bos", "with_source_eos"))])
def test_models_of_old_versions(version: int, revision: int, flags: Sequence[str], tmp_path: Path) -> None:
    package = Package(tmp_path / "translate-en_de-1_0", separate=True)
    folder = _write_old(package, version, revision, flags)
    compare(load_ctranslate2(CTranslate2Folder(folder)), package.model, "en", "de")
