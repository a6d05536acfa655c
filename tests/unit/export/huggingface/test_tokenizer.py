"""Tokenizers from Hugging Face's files: ids and texts equal those of sentencepiece and transformers."""

import importlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import transformers
from google.protobuf import runtime_version
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from triptych_export.errors import SourceError
from triptych_export.huggingface.folder import Folder
from triptych_export.huggingface.tokenizers import language_codes
from triptych_export.huggingface.tokenizers.piece_model import BPE, UNIGRAM, PieceType, read_piece_model
from triptych_export.huggingface.tokenizers.piece_tokenizer import cuts
from triptych_export.huggingface.tokenizers.tokenizer import decoder_tokenizer, text_tokenizer, translation_tokenizers
from triptych_serving.text.tokenizers import make_tokenizer
from triptych_serving.text.translation_tokenizer import TranslationTokenizer
from triptych_serving.text.vocabulary import Vocabulary

from ....fixtures.encoders import tokenizer as word_pieces
from ....fixtures.json_files import edit_json, write_json
from ....fixtures.piece_folders import (
    ALBERT_IDS,
    CODES,
    DEBERTA_IDS,
    T5_IDS,
    PieceFolder,
    pieces_of,
    train,
    write_folder,
    write_m2m100,
    write_marian,
)
from ....fixtures.sentences import SENTENCES

PLAIN = SENTENCES[:40]
ODD = (
    "  two  spaces,\u00a0a no-break one,\u3000a wide one\tand a tab ",
    "one line\nand\r\nanother",
    "\ufb01ne \u2460 \uff37\uff49\uff44\uff45 x\u00b2 \u2122 \u2026 \u00bd",
    "cafe\u0301 Vie\u0323\u0302t e\u0302\u0301 \u1112\u1161\u11ab\u1100\u1173\u11af \uff76\uff9e k\u02b2\u0361\u00e7",
    "smile \U0001f600 \U0001f469\u200d\U0001f469\u200d\U0001f467 \u2764\ufe0f",
    "\u6f22\u5b57 \u041c\u043e\u0441\u043a\u0432\u0430 stra\u00dfe",
    "</s> a<s>b <unk><pad> <mask> <extra_id_0> eng_Latn __de__ >>fra<< <0x41> [CLS]",
    "\u2581low \u2581 line \u2581",
    "\u2581",
    " ",
    "",
    "a",
    "-- ---- ... ...... 1,000,000",
    "zero\u200bwidth \ufeffmark \x07bell soft\u00adhyphen",
)
LINES = (*PLAIN, *ODD)
TEXT = ("xlm-roberta", "camembert", "deberta", "albert")
CLASSES = {
    "mbart": transformers.MBartTokenizer,
    "mbart50": transformers.MBart50Tokenizer,
    "xlm-roberta": transformers.XLMRobertaTokenizer,
    "camembert": transformers.CamembertTokenizer,
    "deberta": transformers.DebertaV2Tokenizer,
    "albert": transformers.AlbertTokenizer,
    "pegasus": transformers.PegasusTokenizer,
    "t5": transformers.T5Tokenizer,
}


@pytest.fixture(scope="module")
def trained() -> dict[str, bytes]:
    """SentencePiece models of the sentences, by type."""
    return {kind: train(SENTENCES, 300, kind) for kind in (UNIGRAM, BPE)}


@pytest.fixture(scope="module")
def unigram(trained: dict[str, bytes]) -> bytes:
    return trained[UNIGRAM]


@pytest.fixture(scope="module")
def bpe(trained: dict[str, bytes]) -> bytes:
    return trained[BPE]


@pytest.fixture(scope="module")
def other() -> bytes:
    """A model of another language."""
    return train((sentence[::-1].lower() + " \u00df\u041c \u6f22\u5b57" for sentence in SENTENCES), 250)


@pytest.fixture(scope="module", autouse=True)
def _any_protobuf() -> Iterator[None]:
    """Skip the version check of a sentencepiece module, which asks for a newer protobuf than it needs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runtime_version, "ValidateProtobufRuntimeVersion", lambda *_: None)
        importlib.import_module("sentencepiece.sentencepiece_model_pb2")
        yield


def _served(tokenizer: Tokenizer) -> Tokenizer:
    """Make the tokenizer that serving reads from a bundle."""
    return make_tokenizer(tokenizer.to_str())


def _source(folder: PieceFolder | Path) -> Tokenizer:
    return _served(translation_tokenizers(Folder(folder if isinstance(folder, Path) else folder.path)).source)


def _text(path: Path) -> Tokenizer:
    return _served(text_tokenizer(Folder(path)))


def _ids(tokenizer: Tokenizer, lines: tuple[str, ...] = LINES) -> dict[str, list[int]]:
    return {line: tokenizer.encode(line).ids for line in lines}


def _vocabulary(tokenizer: Tokenizer) -> dict[str, int]:
    return {name.removeprefix("\uffff"): number for name, number in tokenizer.get_vocab().items()}


FOLDERS: dict[str, tuple[int, dict[str, Any]]] = {  # size and options of the model
    **dict.fromkeys(("nllb", "mbart", "mbart50", *TEXT[:-1], "m2m100"), (300, {})),
    "deberta": (300, DEBERTA_IDS),
    "t5": (500, T5_IDS),
    "pegasus": (500, T5_IDS),
    "mt5": (500, {**T5_IDS, "byte_fallback": True}),
}
MODEL_OPTIONS: list[dict[str, Any]] = [
    {"normalization_rule_name": "identity"},
    {"normalization_rule_name": "nfkc_cf"},
    {"add_dummy_prefix": False},
    {"remove_extra_whitespaces": False},
    {"split_by_whitespace": False},
    {"user_defined_symbols": ["<place>", "ha", "\u041c"]},
]


@pytest.mark.parametrize("kind", [UNIGRAM, BPE])
@pytest.mark.parametrize("family", FOLDERS)
def test_ids_equal_sentencepiece(tmp_path: Path, trained: dict[str, bytes], family: str, kind: str) -> None:
    size, options = FOLDERS[family]
    model = train(SENTENCES, size, kind, **options) if options else trained[kind]
    folder = write_m2m100(tmp_path, model) if family == "m2m100" else write_folder(family, tmp_path, model)
    tokenizer = _text(tmp_path) if family in TEXT else _source(folder)
    assert _ids(tokenizer) == {line: folder.ids(line) for line in LINES}


@pytest.mark.parametrize("options", MODEL_OPTIONS, ids=lambda options: next(iter(options)))
@pytest.mark.parametrize("kind", [UNIGRAM, BPE])
def test_options_of_a_model_are_kept(tmp_path: Path, kind: str, options: dict[str, Any]) -> None:
    folder = write_folder("nllb", tmp_path, train(SENTENCES, 300, kind, **options))
    lines = (*LINES, "in <place>, <place><place> \u041c\u041c what a <place>d hat")
    assert _ids(_source(folder), lines) == {line: folder.ids(line) for line in lines}


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("kind", [UNIGRAM, BPE])
def test_marian_has_one_tokenizer_per_side(
    tmp_path: Path, unigram: bytes, bpe: bytes, other: bytes, kind: str, separate: bool
) -> None:
    folder = write_marian(tmp_path, unigram if kind == UNIGRAM else bpe, other, separate)
    made = translation_tokenizers(Folder(tmp_path))
    assert made.target is not None
    assert folder.target_ids is not None
    assert _ids(_served(made.source)) == {line: folder.ids(line) for line in LINES}
    assert _ids(_served(made.target)) == {line: folder.target_ids(line) for line in LINES}


def test_marian_never_forms_a_piece_that_the_vocabulary_lacks(tmp_path: Path, unigram: bytes, other: bytes) -> None:
    longest = max(pieces_of(unigram), key=len)
    folder = write_marian(tmp_path, unigram, other, without=[longest])
    line = f"{longest.replace(chr(0x2581), ' ')} again"
    ids = _source(folder).encode(line).ids
    assert len(ids) > len(folder.ids(line))
    assert 1 not in ids


@pytest.mark.parametrize("separate", [False, True])
def test_marian_equals_transformers(tmp_path: Path, unigram: bytes, other: bytes, separate: bool) -> None:
    folder = write_marian(tmp_path, unigram, other, separate)
    theirs = transformers.MarianTokenizer.from_pretrained(tmp_path)
    made = translation_tokenizers(Folder(tmp_path))
    assert made.target is not None
    source, target = _served(made.source), _served(made.target)
    assert _vocabulary(source) == theirs.get_vocab()
    assert _vocabulary(target) == (theirs.target_encoder if separate else theirs.get_vocab())
    assert _ids(source, PLAIN) == {line: theirs(line)["input_ids"] for line in PLAIN}
    assert _ids(target, PLAIN) == {line: theirs(text_target=line)["input_ids"] for line in PLAIN}
    assert folder.target_ids is not None
    # Every token in turn, of both languages; then texts, one with white space and what has no piece at its end.
    space = target.token_to_id("\u2581")
    codes = [target.token_to_id(code) for code in CODES]  # special here
    rows = [[number, number, space] for number in range(target.get_vocab_size()) if number not in codes]
    rows += [[space, *folder.target_ids(line)[:-1], space, 1, 0] for line in LINES]
    assert [target.decode(row) for row in rows] == [theirs.decode(row, skip_special_tokens=True) for row in rows]


def test_marian_codes_are_special(tmp_path: Path, unigram: bytes, other: bytes) -> None:
    write_marian(tmp_path, unigram, other)
    tokenizer = _source(tmp_path)
    assert tokenizer.decode([tokenizer.token_to_id(code) for code in CODES]) == ""
    assert tokenizer.token_to_id(CODES[1]) not in tokenizer.encode(f"{CODES[1]} hello").ids


@pytest.mark.parametrize("family", CLASSES)
def test_families_equal_transformers(tmp_path: Path, unigram: bytes, family: str) -> None:
    options = {"t5": T5_IDS, "pegasus": T5_IDS, "deberta": DEBERTA_IDS, "albert": ALBERT_IDS}.get(family)
    folder = write_folder(family, tmp_path, train(SENTENCES, 300, **options) if options else unigram)
    theirs = CLASSES[family].from_pretrained(tmp_path)
    mine = _text(tmp_path) if family in TEXT else _source(folder)
    assert mine.get_vocab() == theirs.get_vocab()
    bare = {line: mine.encode(line, add_special_tokens=False).ids for line in PLAIN}
    assert bare == {line: theirs(line, add_special_tokens=False)["input_ids"] for line in PLAIN}
    rows = [folder.ids(line) for line in LINES]
    assert [mine.decode(row) for row in rows] == [_their_text(theirs, row) for row in rows]
    if family in TEXT:
        assert mine.encode("one way", "or the other").ids == theirs("one way", "or the other")["input_ids"]


def test_m2m100_equals_transformers(tmp_path: Path, bpe: bytes) -> None:
    folder = write_m2m100(tmp_path, bpe)
    write_json(
        tmp_path / "special_tokens_map.json", {"additional_special_tokens": [f"__{code}__" for code in language_codes.M2M100]}
    )
    theirs, mine = transformers.M2M100Tokenizer.from_pretrained(tmp_path), _source(folder)
    codes = [theirs.get_lang_token(code) for code in theirs.lang_code_to_id]
    assert [mine.token_to_id(code) for code in codes] == [theirs.get_lang_id(code.strip("_")) for code in codes]
    assert _ids(mine, PLAIN) == {line: theirs(line)["input_ids"][1:] for line in PLAIN}  # theirs begins with the language
    rows = [[mine.token_to_id("__de__"), mine.token_to_id("\u2581"), *folder.ids(line)] for line in LINES]
    assert [mine.decode(row) for row in rows] == [_their_text(theirs, row) for row in rows]


def test_nllb_equals_transformers(tmp_path: Path, bpe: bytes) -> None:
    folder = write_folder("nllb", tmp_path, bpe)
    behind = ["ace_Arab", "deu_Latn", "eng_Latn", "<mask>"]
    flags = {"lstrip": False, "rstrip": False, "normalized": False, "single_word": False, "special": True}
    size = _source(folder).token_to_id("ace_Arab")
    tokens = {str(size + place): {"content": name, **flags} for place, name in enumerate(behind)}
    edit_json(tmp_path / "tokenizer_config.json", added_tokens_decoder=tokens, additional_special_tokens=behind[:3])
    theirs, mine = transformers.NllbTokenizer.from_pretrained(tmp_path, src_lang="eng_Latn"), _source(folder)
    assert mine.get_vocab() == theirs.get_vocab()
    assert _ids(mine, PLAIN) == {line: theirs(line)["input_ids"][1:] for line in PLAIN}
    rows = [[size + 1, *folder.ids(line)] for line in LINES]
    assert [mine.decode(row) for row in rows] == [_their_text(theirs, row) for row in rows]


def _their_text(tokenizer: Any, row: list[int]) -> str:
    return str(tokenizer.decode(row, skip_special_tokens=True, clean_up_tokenization_spaces=False))


def test_default_languages_of_a_family(tmp_path: Path, bpe: bytes) -> None:
    size = len(pieces_of(bpe)) + 4
    nllb = _source(write_folder("nllb", tmp_path / "nllb", bpe))
    assert [nllb.token_to_id(name) for name in ("ace_Arab", "zul_Latn", "<mask>")] == [size, size + 201, size + 202]
    mbart = _source(write_folder("mbart50", tmp_path / "mbart50", bpe))
    assert [mbart.token_to_id(name) for name in ("ar_AR", "sl_SI", "<mask>")] == [size, size + 51, size + 52]
    write_m2m100(tmp_path / "wmt21", bpe)
    edit_json(tmp_path / "wmt21" / "tokenizer_config.json", language_codes="wmt21")
    wmt21 = _source(tmp_path / "wmt21")
    assert [wmt21.token_to_id(name) for name in ("__en__", "__de__", "__fr__")] == [size, size + 7, None]


def test_added_tokens_keep_their_ids(tmp_path: Path, unigram: bytes) -> None:
    folder = write_folder("xlm-roberta", tmp_path, unigram)
    size = _text(tmp_path).get_vocab_size()
    write_json(tmp_path / "added_tokens.json", {"<mask>": size - 1, "<ours>": size + 1, "<brand>": size})
    write_json(tmp_path / "special_tokens_map.json", {"additional_special_tokens": ["<ours>"]})
    tokenizer = _text(tmp_path)
    assert [tokenizer.token_to_id(name) for name in ("<mask>", "<brand>", "<ours>")] == [size - 1, size, size + 1]
    assert size in tokenizer.encode("a <brand> of its own").ids
    assert size in tokenizer.encode("a<brand>").ids
    assert size + 1 not in tokenizer.encode("<ours>").ids
    assert tokenizer.decode([size, size + 1]).strip() == "<brand>"
    write_json(tmp_path / "added_tokens.json", {"<brand>": size + 3})
    with pytest.raises(SourceError, match=f"ids up to {size + 3}, but {size + 1} is missing"):
        text_tokenizer(Folder(folder.path))
    write_json(tmp_path / "added_tokens.json", {"<brand>": 7})
    with pytest.raises(SourceError, match="'<brand>': id 7 in the added tokens"):
        text_tokenizer(Folder(folder.path))


@pytest.mark.parametrize(
    ("framing", "config", "second"),
    [
        ("BertProcessing", {}, 1),
        ("BertProcessing", {"model_input_names": ["input_ids", "token_type_ids", "attention_mask"]}, 1),
        ("BertProcessing", {"model_input_names": ["input_ids", "attention_mask"]}, 0),
        ("TemplateProcessing", {"model_input_names": ["input_ids", "attention_mask"]}, 0),
        ("TemplateProcessing", {"tokenizer_class": "TokenizersBackend"}, 0),
    ],
)
def test_types_of_tokens_are_those_that_the_checkpoint_makes(
    tmp_path: Path, framing: str, config: dict[str, Any], second: int
) -> None:
    made = word_pieces()
    if framing == "BertProcessing":
        last, first = (("[SEP]", made.token_to_id("[SEP]")), ("[CLS]", made.token_to_id("[CLS]")))
        made.post_processor = processors.BertProcessing(last, first)
    made.save(str(tmp_path / "tokenizer.json"))
    write_json(tmp_path / "config.json", {"model_type": "bert", "architectures": ["BertModel"]})
    write_json(tmp_path / "tokenizer_config.json", config)
    encoding = _text(tmp_path).encode("one", "two three")
    assert encoding.tokens == ["[CLS]", "one", "[SEP]", "two", "three", "[SEP]"]
    assert encoding.type_ids == [0, 0, 0, second, second, second]


def test_serving_decodes_and_completes_marian_translations(tmp_path: Path, unigram: bytes, other: bytes) -> None:
    folder = write_marian(tmp_path / "model", unigram, other)
    target = translation_tokenizers(Folder(folder.path)).target
    assert target is not None
    target.save(str(tmp_path / "tokenizer.json"))
    codec, vocabulary = TranslationTokenizer(tmp_path / "tokenizer.json", 64), Vocabulary.of(_served(target))
    assert codec.vocabulary == target.get_vocab_size()
    row = folder.ids("The ferry leaves at noon.")[:-1]  # the other language's pieces
    assert codec.decode([row]) == ["The ferry leaves at noon."]
    assert vocabulary.tail(row, 1000) == b"The ferry leaves at noon."


WORDS = (
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    *("the", "fe", "##rry", "no", "##on", ".", "caf", "##e", "##\u00e9", "\u6f22"),
)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"do_lower_case": False},
        {"strip_accents": False, "tokenize_chinese_chars": False},
        {"additional_special_tokens": ["[CLS2]"], "added_tokens_decoder": {"15": {"content": "[CLS2]", "special": True}}},
    ],
    ids=["defaults", "cased", "accents", "added"],
)
@pytest.mark.parametrize("name", ["bert", "distilbert", "electra"])
def test_bert_equals_transformers(tmp_path: Path, name: str, settings: dict[str, Any]) -> None:
    (tmp_path / "vocab.txt").write_text("".join(f"{word}\n" for word in WORDS), encoding="utf-8")
    write_json(tmp_path / "config.json", {"model_type": name})
    named = "ElectraTokenizer" if name == "electra" else "BertTokenizer"
    write_json(tmp_path / "tokenizer_config.json", {"tokenizer_class": named, **settings})
    theirs, mine = transformers.BertTokenizer.from_pretrained(tmp_path), _text(tmp_path)
    lines = ("The ferry, the noon.", "caf\u00e9 CAFE\u0301 \u6f22\u5b57", "the\u00a0no\ton", "", "fe[CLS2]rry")
    assert mine.get_vocab() == theirs.get_vocab()
    mine.encode_special_tokens = False  # as theirs
    assert _ids(mine, lines) == {line: theirs(line)["input_ids"] for line in lines}
    pair, their_pair = mine.encode("the ferry", "noon"), theirs("the ferry", "noon")
    assert (pair.ids, pair.type_ids) == (their_pair["input_ids"], their_pair["token_type_ids"])
    assert mine.decode(pair.ids) == _their_text(theirs, pair.ids) == "the ferry noon"


def test_mpnet_equals_transformers(tmp_path: Path) -> None:
    words = ("<s>", "<pad>", "</s>", "<unk>", "[UNK]", *WORDS[5:], "<mask>")
    (tmp_path / "vocab.txt").write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    write_json(tmp_path / "config.json", {"model_type": "mpnet"})
    theirs, mine = transformers.MPNetTokenizer.from_pretrained(tmp_path), _text(tmp_path)
    assert mine.get_vocab() == theirs.get_vocab()
    mine.encode_special_tokens = False  # as theirs
    lines = ("The ferry, the noon.", "the <mask> noon<mask>", "a b", "")
    assert _ids(mine, lines) == {line: theirs(line)["input_ids"] for line in lines}
    assert mine.encode("the ferry", "noon").ids == theirs("the ferry", "noon")["input_ids"]


@pytest.fixture(scope="module")
def byte_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """vocab.json and merges.txt."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=special, initial_alphabet=alphabet, show_progress=False)  # type: ignore[call-arg]
    tokenizer.train_from_iterator(SENTENCES, trainer)
    folder = tmp_path_factory.mktemp("bytes")
    tokenizer.model.save(str(folder))
    return folder


@pytest.mark.parametrize("spaced", [False, True])
def test_byte_level_equals_transformers(tmp_path: Path, byte_files: Path, spaced: bool) -> None:
    shutil.copytree(byte_files, tmp_path, dirs_exist_ok=True)
    write_json(tmp_path / "config.json", {"model_type": "roberta"})
    mask = {"content": "<mask>", "lstrip": True, "rstrip": False, "normalized": False, "single_word": False}
    write_json(tmp_path / "tokenizer_config.json", {"add_prefix_space": spaced, "mask_token": {"__type": "AddedToken", **mask}})
    theirs, mine = transformers.RobertaTokenizer.from_pretrained(tmp_path), _text(tmp_path)
    assert mine.get_vocab() == theirs.get_vocab()
    lines = (*PLAIN, *(line for line in ODD if "</s>" not in line))
    assert _ids(mine, lines) == {line: theirs(line)["input_ids"] for line in lines}
    assert mine.encode("one way", "or the other").ids == theirs("one way", "or the other")["input_ids"]
    mine.encode_special_tokens = False
    masked = "The <mask> leaves at noon."
    assert mine.encode(masked).ids == theirs(masked)["input_ids"]
    rows = [theirs(line)["input_ids"] for line in lines]
    assert [mine.decode(row) for row in rows] == [_their_text(theirs, row) for row in rows]


@pytest.mark.parametrize("begins", [False, True])
@pytest.mark.parametrize("kind", ["gpt2", "gpt_neo", "gptj", "codegen", "opt"])
def test_gpt2_may_begin_texts_with_a_token(tmp_path: Path, byte_files: Path, begins: bool, kind: str) -> None:
    shutil.copytree(byte_files, tmp_path, dirs_exist_ok=True)
    write_json(tmp_path / "config.json", {"model_type": kind})
    write_json(tmp_path / "tokenizer_config.json", {"add_bos_token": begins, "bos_token": "<s>"})
    theirs, mine = transformers.GPT2Tokenizer.from_pretrained(tmp_path), decoder_tokenizer(Folder(tmp_path))
    assert _ids(mine, PLAIN) == {line: theirs(line)["input_ids"] for line in PLAIN}


def test_the_token_before_texts_of_gpt2_has_a_default(tmp_path: Path, byte_files: Path) -> None:
    shutil.copytree(byte_files, tmp_path, dirs_exist_ok=True)
    write_json(tmp_path / "config.json", {"model_type": "gpt2"})
    write_json(tmp_path / "tokenizer_config.json", {"add_bos_token": True})
    with pytest.raises(SourceError, match=r"the special token '<\|endoftext\|>' is not in the tokenizer's vocabulary"):
        decoder_tokenizer(Folder(tmp_path))
    ids = json.loads((tmp_path / "vocab.json").read_text())
    write_json(tmp_path / "vocab.json", {"<|endoftext|>" if name == "<s>" else name: number for name, number in ids.items()})
    theirs, mine = transformers.GPT2Tokenizer.from_pretrained(tmp_path), decoder_tokenizer(Folder(tmp_path))
    assert _ids(mine, PLAIN) == {line: theirs(line)["input_ids"] for line in PLAIN}
    assert mine.encode("").ids == [ids["<s>"]]


def test_bart_appends_the_end_token(tmp_path: Path, byte_files: Path) -> None:
    shutil.copytree(byte_files, tmp_path, dirs_exist_ok=True)
    write_json(tmp_path / "config.json", {"model_type": "bart"})
    theirs = transformers.BartTokenizer.from_pretrained(tmp_path)
    assert _ids(_source(tmp_path), PLAIN) == {line: theirs(line)["input_ids"][1:] for line in PLAIN}


def test_blenderbot_begins_with_a_space_and_appends_the_end_token(tmp_path: Path, byte_files: Path) -> None:
    shutil.copytree(byte_files, tmp_path, dirs_exist_ok=True)
    write_json(tmp_path / "config.json", {"model_type": "blenderbot"})
    theirs = transformers.BlenderbotTokenizer.from_pretrained(tmp_path)
    assert _ids(_source(tmp_path), PLAIN) == {line: [*theirs(line, add_special_tokens=False)["input_ids"], 2] for line in PLAIN}


def _fast(path: Path, tokenizer: Tokenizer, model_type: str, **settings: Any) -> Path:
    """A folder with a tokenizer.json."""
    tokenizer.save(str(path / "tokenizer.json"))
    write_json(path / "config.json", {"model_type": model_type})
    write_json(path / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", **settings})
    return path


@pytest.mark.parametrize("post_processor", [None, {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}])
@pytest.mark.parametrize("name", ["PreTrainedTokenizerFast", "TokenizersBackend", "GPT2Tokenizer", "BartTokenizerFast", None])
def test_only_named_classes_add_what_a_fast_tokenizer_does_not_say(
    tmp_path: Path, byte_files: Path, name: str | None, post_processor: dict[str, Any] | None
) -> None:
    shutil.copytree(byte_files, tmp_path / "slow")
    bare = transformers.BartTokenizer.from_pretrained(tmp_path / "slow").backend_tokenizer
    content = json.loads(bare.to_str()) | {"post_processor": post_processor}
    folder = _fast(tmp_path, Tokenizer.from_str(json.dumps(content)), "bart", tokenizer_class=name, eos_token="</s>")
    theirs, made = transformers.AutoTokenizer.from_pretrained(folder), translation_tokenizers(Folder(folder))
    before, end = made.before(Folder(folder), 2), theirs.convert_tokens_to_ids("</s>")
    framed = {line: [*before, *ids] for line, ids in _ids(_served(made.source), PLAIN).items()}
    assert framed == {line: theirs(line)["input_ids"] for line in PLAIN}
    assert (made.target or made.source).encode(PLAIN[0]).ids[-1] == end
    write_json(folder / "config.json", {"model_type": "roberta"})
    assert _ids(_text(folder), PLAIN) == framed


def test_settings_that_are_null_are_absent(tmp_path: Path, byte_files: Path) -> None:
    shutil.copytree(byte_files, tmp_path / "slow")
    theirs = transformers.Qwen2Tokenizer.from_pretrained(tmp_path / "slow")
    theirs.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "tokenizer_config.json").read_text())["add_prefix_space"] is None
    write_json(tmp_path / "config.json", {"model_type": "qwen2"})
    assert _ids(decoder_tokenizer(Folder(tmp_path)), PLAIN) == {line: theirs(line)["input_ids"] for line in PLAIN}


def test_a_fast_tokenizer_is_used_with_its_settings(tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.WordPiece({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.add_special_tokens(["[CLS]", "[SEP]"])
    tokenizer.add_tokens(["noone"])
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=9)
    folder = _fast(tmp_path, tokenizer, "bert", pad_token="[PAD]", additional_special_tokens=["noone"])
    assert _text(folder).encode("The ferry. The ferry.").ids == [2, 5, 6, 7, 10, 5, 6, 7, 10, 3]
    assert text_tokenizer(Folder(folder)).truncation is None
    assert _text(folder).decode([2, 5, 0, 15, 3]) == "the"
    for name, ids in {"PreTrainedTokenizerFast": [2, 5, 6, 7, 3], "BertTokenizer": [2, 1, 6, 7, 3]}.items():
        edit_json(folder / "tokenizer_config.json", do_lower_case=False, tokenizer_class=name)
        assert transformers.AutoTokenizer.from_pretrained(folder)("The ferry").input_ids == ids
        assert _text(folder).encode("The ferry").ids == ids


def test_a_fast_unigram_tokenizer_matches_no_special_token_in_a_text(tmp_path: Path, unigram: bytes) -> None:
    (tmp_path / "slow").mkdir()
    theirs = CLASSES["xlm-roberta"].from_pretrained(write_folder("xlm-roberta", tmp_path / "slow", unigram).path)
    folder = _fast(tmp_path, theirs.backend_tokenizer, "mbart", eos_token="</s>", additional_special_tokens=["<mask>"])
    tokenizer = _source(folder)
    assert tokenizer.encode("so</s> be it").ids[-1] == 2
    assert 2 not in tokenizer.encode("so</s> be <s>it<unk>").ids[:-1]
    assert 0 not in tokenizer.encode("so</s> be <s>it").ids
    assert _ids(tokenizer, PLAIN) == {line: theirs(line)["input_ids"][1:] for line in PLAIN}


def test_other_files_mark_tokens_as_special(tmp_path: Path, unigram: bytes) -> None:
    (tmp_path / "slow").mkdir()
    theirs = CLASSES["mbart50"].from_pretrained(write_folder("mbart50", tmp_path / "slow", unigram).path)
    content = json.loads(theirs.backend_tokenizer.to_str())
    content["added_tokens"] = [token for token in content["added_tokens"] if token["content"] not in ("de_DE", "fr_XX")]
    content["added_tokens"] += [
        {**content["added_tokens"][0], "id": theirs.convert_tokens_to_ids("fr_XX"), "content": "fr_XX", "special": False}
    ]
    folder = _fast(tmp_path, Tokenizer.from_str(json.dumps(content)), "mbart", additional_special_tokens=["de_DE", "fr_XX"])
    tokenizer = _source(folder)
    assert tokenizer.decode([theirs.convert_tokens_to_ids(code) for code in ("de_DE", "fr_XX", "en_XX")]) == ""


def test_cut_patterns() -> None:
    assert cuts(["<s>", "</s>", "<pad>"], ["<", ">", "s", "/", "</", "p"]) == "<(?=s)|/(?=s)|<(?=p)"
    assert cuts([">>fra<<", ">>deu<<"], [">", "<", "f", "d", ">>", "<<"]) == ">(?=f)|>(?=d)"
    assert cuts(["<s>"], ["<s", "s>", "s"]) == "<(?=s>)"
    assert cuts(["x"], ["y"]) == ""


def test_a_piece_model_file(tmp_path: Path) -> None:
    (tmp_path / "a.model").write_bytes(
        train(SENTENCES, 500, BPE, byte_fallback=True, user_defined_symbols=["<x>"], control_symbols=["<y>"])
    )
    model = read_piece_model(tmp_path / "a.model")
    assert model.algorithm == BPE
    assert model.byte_fallback
    assert model.symbols == ("<x>",)
    assert [piece.kind for piece in model.pieces[:7]] == [
        PieceType.UNKNOWN, PieceType.CONTROL, PieceType.CONTROL, PieceType.CONTROL, PieceType.USER_DEFINED,
        PieceType.BYTE, PieceType.BYTE,
    ]  # fmt: skip


def test_unusable_files_are_rejected(tmp_path: Path, bpe: bytes, unigram: bytes) -> None:
    def rejected(message: str, folder: str = "") -> None:
        with pytest.raises(SourceError, match=message):
            translation_tokenizers(Folder(tmp_path / folder))

    write_json(tmp_path / "config.json", {"model_type": "llama"})
    rejected("no tokenizer is known for 'llama', expected one of AlbertTokenizer, ")
    write_json(tmp_path / "config.json", {"model_type": "bert"})
    write_json(tmp_path / "tokenizer_config.json", {"tokenizer_class": "BertJapaneseTokenizer"})
    rejected(r"tokenizer_class: 'BertJapaneseTokenizer' is not supported without tokenizer\.json; supported: AlbertTokenizer, ")
    (tmp_path / "tokenizer_config.json").unlink()
    saved = "; save the tokenizer of the training there with transformers: save_pretrained$"
    for kind, file in {"bert": r"vocab\.txt", "t5": r"spiece\.model"}.items():
        write_json(tmp_path / "config.json", {"model_type": kind})
        rejected(rf"no tokenizer, expected tokenizer\.json or {file}{saved}")
    (tmp_path / "spiece.model").write_bytes(b"no such thing")
    rejected(r"spiece\.model: not a SentencePiece model")
    (tmp_path / "spiece.model").write_bytes(train(SENTENCES, 60, "char"))
    rejected("SentencePiece model type char is not supported; supported: unigram, bpe")
    (tmp_path / "tokenizer.json").write_text("{}", encoding="utf-8")
    rejected(r"tokenizer\.json: not a tokenizer")
    write_folder("deberta", tmp_path / "lower", unigram)
    edit_json(tmp_path / "lower" / "tokenizer_config.json", do_lower_case=True)
    rejected(r"do_lower_case: true is not supported without tokenizer\.json; save the tokenizer with", "lower")
    write_folder("mbart", tmp_path / "order", train(SENTENCES, 300, **T5_IDS))
    rejected(r"begins with \['<pad>', '</s>', '<unk>'\], expected <unk>, <s>, </s>", "order")
    write_m2m100(tmp_path / "gap", bpe)
    edit_json(tmp_path / "gap" / "vocab.json", **{"<s>": 9999})
    rejected(r"vocab\.json: its \d+ ids must be 0 to \d+, each once", "gap")
    write_marian(tmp_path / "parts", bpe, unigram, without=[piece for piece in pieces_of(bpe) if len(piece) == 2])
    rejected(r"lacks the parts of \d+ SentencePiece pieces", "parts")
