"""Languages that a checkpoint offers, the tokens that select them, and the user's choice."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

from triptych_export.errors import SourceError
from triptych_export.huggingface.architectures.registry import load
from triptych_export.huggingface.checkpoint.languages import is_known, model_name, single
from triptych_export.huggingface.folder import Folder
from triptych_export.huggingface.tokenizers.tokenizer import limit_tokens
from triptych_export.translation_source import TranslationSource
from triptych_serving.bundle.manifest import SourceFrame, TargetFrame

from ....fixtures.huggingface import small_model
from ....fixtures.json_files import edit_json, write_json

MODELS = ("marian tied", "marian languages", "bart tied", "mbart50 tied", "mbart25 tied", "m2m100 tied", "nllb tied")
MODELS = (*MODELS, "t5 translator", "t5 languages")


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoints")
    for name in MODELS:
        family, variant = name.split()
        small_model(family, variant, folder / name)
    return folder


@pytest.fixture
def copy(checkpoints: Path, tmp_path: Path) -> Any:
    """A copy of a checkpoint, by its name, under another name."""

    def make(name: str, to: str = "copy") -> Path:
        return Path(shutil.copytree(checkpoints / name, tmp_path / to))

    return make


def languages(folder: Path, source: str = "", target: str = "") -> TranslationSource:
    loaded = load(Folder(folder), source, target)
    assert isinstance(loaded, TranslationSource)
    return loaded


def test_the_tokenizer_names_the_pair(copy: Any) -> None:
    loaded = languages(copy("marian tied", "opus-mt-fi-sv"))
    assert (dict(loaded.sources), dict(loaded.targets)) == ({"eng": SourceFrame()}, {"deu": TargetFrame()})
    assert (loaded.splits, loaded.family) == (True, "marian")
    assert loaded.provenance == {"checkpoint": "opus-mt-fi-sv", "architecture": "MarianMTModel"}


@pytest.mark.parametrize(
    ("name", "pair"),
    [
        ("opus-mt-fi-sv", ("fi", "sv")),
        ("opus-mt-tc-big-fi-zle", ("fi", "und")),
        ("opus-mt-tc-bible-big-mul-deu", ("und", "deu")),
        ("opus-mt-ROMANCE-en", ("und", "en")),
        ("models--Helsinki-NLP--opus-mt-en-pt_BR/snapshots/0123abc", ("en", "pt_BR")),
        ("my-model", ("und", "und")),
        ("opus-mt-en-de-finetuned", ("und", "und")),
    ],
)
def test_otherwise_the_models_name_names_the_pair(name: str, pair: tuple[str, str], copy: Any) -> None:
    folder = copy("marian tied", name)
    edit_json(folder / "tokenizer_config.json", source_lang=None, target_lang=None)
    loaded = languages(folder)
    assert (*loaded.sources, *loaded.targets) == pair
    assert loaded.splits


def test_language_groups_are_undetermined_until_the_user_names_languages(copy: Any) -> None:
    folder = copy("marian tied")
    for source, target in (("gmw", "multi"), (5, ["de"])):
        edit_json(folder / "tokenizer_config.json", source_lang=source, target_lang=target)
        for given, expected in (((), ("und", "und")), (("nl", "af"), ("nl", "af"))):
            loaded = languages(folder, *given)
            assert (*loaded.sources, *loaded.targets) == expected


@pytest.mark.parametrize(
    ("code", "known", "expected"),
    [
        ("en", True, "en"),
        ("pt_br", True, "pt_br"),
        ("zho_Hans", True, "zho_Hans"),
        ("roa", True, "und"),
        ("ber_Latn", True, "und"),
        ("mul", True, "und"),
        ("multi", False, "und"),
        ("ROMANCE", False, "und"),
        ("xyz9", False, "und"),
        ("", False, "und"),
    ],
)
def test_language_and_group_codes(code: str, known: bool, expected: str) -> None:
    assert (is_known(code), single(code)) == (known, expected)


def test_each_target_has_a_token(checkpoints: Path) -> None:
    loaded = languages(checkpoints / "marian languages")
    ids = {code: loaded.tokenizer.token_to_id(f">>{code}<<") for code in ("fra", "pt_br", "ces")}
    assert dict(loaded.targets) == {code: TargetFrame(before=(number,)) for code, number in ids.items()}
    assert loaded.provenance["language_tokens_not_offered"] == "xyz9"
    chosen = languages(checkpoints / "marian languages", target="fr")
    assert dict(chosen.targets) == {"fra": TargetFrame(before=(ids["fra"],))}
    assert list(chosen.sources) == ["eng"]


@pytest.mark.parametrize(
    ("name", "codes", "count", "name_of_token"),
    [
        ("nllb tied", ("deu_Latn", "eng_Latn"), 4, "{}"),
        ("m2m100 tied", ("en", "ha"), 8, "__{}__"),
        ("mbart50 tied", ("ar_AR", "sl_SI"), 52, "{}"),
    ],
)
def test_many_to_many(name: str, codes: tuple[str, str], count: int, name_of_token: str, checkpoints: Path) -> None:
    loaded = languages(checkpoints / name)
    assert len(loaded.sources) == len(loaded.targets) == count
    for code in codes:
        token = loaded.tokenizer.token_to_id(name_of_token.format(code))
        assert loaded.sources[code] == SourceFrame(before=(token,))
        assert loaded.targets[code] == TargetFrame(forced=(token,))
    chosen = languages(checkpoints / name, *codes)
    assert (*chosen.sources, *chosen.targets) == codes
    assert chosen.targets[codes[1]] == loaded.targets[codes[1]]


def test_a_language_token_without_an_embedding_is_rejected(copy: Any) -> None:
    folder = copy("nllb tied")
    rows = languages(folder).tokenizer.token_to_id("fra_Latn")
    weights = load_file(folder / "model.safetensors")
    weights["model.shared.weight"] = weights["model.shared.weight"][:rows].clone()
    save_file(weights, folder / "model.safetensors")
    edit_json(folder / "config.json", vocab_size=rows)
    with pytest.raises(SourceError, match=rf"the token of 'fra_Latn' is number {rows}, and the model has {rows} embeddings$"):
        languages(folder)
    assert list(languages(folder, "en", "de").targets) == ["deu_Latn"]


def test_a_forced_first_token_leaves_one_target_unless_the_user_chooses_another(copy: Any) -> None:
    folder = copy("nllb tied")
    token = languages(folder).tokenizer.token_to_id("fra_Latn")
    edit_json(folder / "generation_config.json", forced_bos_token_id=token)
    loaded = languages(folder)
    assert dict(loaded.targets) == {"fra_Latn": TargetFrame(forced=(token,))}
    assert len(loaded.sources) == 4
    assert list(languages(folder, "en", "de").targets) == ["deu_Latn"]


@pytest.mark.parametrize("name", ["nllb tied", "m2m100 tied", "mbart50 tied"])
def test_a_forced_first_token_that_is_no_language_is_rejected(copy: Any, name: str) -> None:
    folder = copy(name)
    edit_json(folder / "generation_config.json", forced_bos_token_id=17)
    with pytest.raises(SourceError, match=r"forced_bos_token_id: 17 is no language's token; languages: .*\. Remove it"):
        languages(folder)
    assert next(iter(languages(folder, "en", "zh").targets)).startswith("zh")


def test_the_card_says_that_spaces_before_punctuation_stay(copy: Any) -> None:
    folder = copy("marian tied")
    edit_json(folder / "tokenizer_config.json", clean_up_tokenization_spaces=True)
    assert languages(folder).provenance["decoding_not_carried_over"] == "clean_up_tokenization_spaces = True"
    edit_json(folder / "tokenizer_config.json", clean_up_tokenization_spaces=False)
    assert "decoding_not_carried_over" not in languages(folder).provenance


@pytest.mark.parametrize("name", ["marian tied", "marian languages"])
def test_a_forced_first_token_of_marian_begins_all_translations(copy: Any, name: str) -> None:
    folder = copy(name)
    edit_json(folder / "generation_config.json", forced_bos_token_id=17)
    loaded = languages(folder)
    assert {frame.forced for frame in loaded.targets.values()} == {(17,)}
    written = (loaded.target_tokenizer or loaded.tokenizer).id_to_token(17)
    assert loaded.provenance["forced_tokens_not_in_texts"] == repr(written)  # no special token, which texts lack anyway


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"forced_bos_token_id": 0}, "forced_bos_token_id: 0 is the end of the sentence; remove it$"),
        ({"bad_words_ids": [[5, 99999]]}, "bad_words_ids or suppress_tokens: 99,999 is outside the vocabulary of 301"),
    ],
)
def test_tokens_that_cannot_begin_or_occur_are_rejected(copy: Any, changes: dict[str, Any], message: str) -> None:
    folder = copy("marian tied")
    edit_json(folder / "generation_config.json", **changes)
    with pytest.raises(SourceError, match=message):
        languages(folder)


BYTES = ("<pad>", "<s>", "</s>", "<unk>", "<mask>", *sorted(pre_tokenizers.ByteLevel.alphabet()))
WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "man", "##s", ".")
ROBERTA, BERT = transformers.RobertaTokenizer, transformers.BertTokenizer


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize(
    ("name", "tokenizer_class", "words", "begin", "end"),
    [("t5 translator", ROBERTA, BYTES, 1, 2), ("bart tied", BERT, WORDS, 2, 3)],  # as CodeT5 and BART of Chinese have them
)
def test_a_tokenizer_of_another_family_frames_texts_as_in_transformers(
    copy: Any, name: str, tokenizer_class: Any, words: tuple[str, ...], begin: int, end: int, fast: bool
) -> None:
    folder = copy(name)
    for file in ("spiece.model", "vocab.json", "merges.txt", "tokenizer.json", "tokenizer_config.json"):
        (folder / file).unlink(missing_ok=True)
    vocabulary = {word: number for number, word in enumerate(words)}
    theirs = tokenizer_class(vocabulary, **({"merges": []} if tokenizer_class is ROBERTA else {}))
    theirs.save_pretrained(folder)
    if not fast:
        (folder / "tokenizer.json").unlink()
        write_json(folder / "vocab.json", vocabulary)
        (folder / "merges.txt").write_text("#version: 0.2\n")
        (folder / "vocab.txt").write_text("\n".join(words))
    ids = {"pad_token_id": 0, "eos_token_id": end, "decoder_start_token_id": 0, "forced_eos_token_id": None}
    for file in ("config.json", "generation_config.json"):
        edit_json(folder / file, **ids)
    loaded = languages(folder, "und" if name == "t5 translator" else "")
    assert dict(loaded.sources) == {"und": SourceFrame(before=(begin,))}
    assert [begin, *loaded.tokenizer.encode("a mans.").ids] == theirs("a mans.").input_ids
    edit_json(folder / "generation_config.json", eos_token_id=4)
    with pytest.raises(SourceError, match=f"copy: the tokenizer ends texts with {end}, not with eos_token_id, 4$"):
        languages(folder)


def test_source_tokens_after_the_text(copy: Any, checkpoints: Path) -> None:
    folder = copy("nllb tied")
    edit_json(folder / "tokenizer_config.json", legacy_behaviour=True)
    loaded = languages(folder)
    assert loaded.sources["fra_Latn"] == SourceFrame(after=(loaded.tokenizer.token_to_id("fra_Latn"),))
    mbart = languages(checkpoints / "mbart25 tied")
    assert mbart.sources["en_XX"] == SourceFrame(after=(mbart.tokenizer.token_to_id("en_XX"),))
    assert dict(mbart.targets) == {"ro_RO": TargetFrame()}  # with which the decoder starts
    assert mbart.model.config.bos_id == mbart.tokenizer.token_to_id("ro_RO")


def test_mbart_whose_decoder_does_not_start_with_a_language(copy: Any) -> None:
    folder = copy("mbart25 tied")
    edit_json(folder / "generation_config.json", decoder_start_token_id=2)
    loaded = languages(folder)
    assert len(loaded.targets) == 25
    assert loaded.targets["de_DE"].forced == (loaded.tokenizer.token_to_id("de_DE"),)


def test_mbart_without_a_start_token_starts_with_the_target_that_the_user_names(copy: Any) -> None:
    folder = copy("mbart25 tied")
    for file in ("config.json", "generation_config.json"):
        edit_json(folder / file, decoder_start_token_id=None)
    with pytest.raises(SourceError, match=r"decoder_start_token_id: missing; .* name it with --target-language$"):
        languages(folder)
    loaded = languages(folder, target="de")
    assert (dict(loaded.targets), len(loaded.sources)) == ({"de_DE": TargetFrame()}, 25)
    assert loaded.model.config.bos_id == loaded.tokenizer.token_to_id("de_DE")


def test_text_to_text_models_are_undetermined_until_the_user_names_languages(checkpoints: Path) -> None:
    loaded = languages(checkpoints / "bart tied")
    assert dict(loaded.sources) == {"und": SourceFrame(before=(0,))}
    assert dict(loaded.targets) == {"und": TargetFrame(forced=(0,))}
    assert not loaded.splits
    named = languages(checkpoints / "bart tied", "en", "de")
    assert dict(named.sources) == {"en": SourceFrame(before=(0,))}
    assert dict(named.targets) == {"de": TargetFrame(forced=(0,))}
    assert named.splits
    assert not languages(checkpoints / "bart tied", "und", "und").splits


def test_t5_targets_have_an_instruction(checkpoints: Path) -> None:
    loaded = languages(checkpoints / "t5 translator")
    assert list(loaded.sources) == ["en"]
    assert dict(loaded.targets) == {
        "de": TargetFrame("translate English to German: "),
        "fr": TargetFrame("translate English to French: "),
    }
    assert loaded.splits
    assert (loaded.generation["beam_size"], loaded.generation["early_stopping"]) == (4, "full")  # as all its tasks want it
    assert list(languages(checkpoints / "t5 translator", target="fr").targets) == ["fr"]
    plain = languages(checkpoints / "t5 translator", "und", "und")
    assert (dict(plain.targets), plain.splits) == ({"und": TargetFrame()}, False)
    assert "beam_size" not in plain.generation


@pytest.mark.parametrize("by_class", [True, False])
def test_small100_puts_the_target_before_the_source(by_class: bool, copy: Any) -> None:
    folder = copy("m2m100 tied", "finetuned" if by_class else "small100")
    if by_class:
        edit_json(folder / "tokenizer_config.json", tokenizer_class="SMALL100Tokenizer")
    loaded = languages(folder)
    number = loaded.tokenizer.token_to_id("__de__")
    assert loaded.targets["de"] == TargetFrame(before=(number,))
    assert dict(loaded.sources) == dict.fromkeys(loaded.targets, SourceFrame())


def test_t5_targets_have_a_token(checkpoints: Path, copy: Any) -> None:
    loaded = languages(checkpoints / "t5 languages")
    assert dict(loaded.targets) == {code: TargetFrame(f"<2{code}> ") for code in ("de", "fr", "zh", "sr_Latn")}
    assert dict(loaded.sources) == dict.fromkeys(loaded.targets, SourceFrame())
    assert loaded.splits
    assert loaded.provenance["language_tokens_not_offered"] == "translit"
    assert list(languages(checkpoints / "t5 languages", "de", "fr").targets) == ["fr"]
    assert list(languages(checkpoints / "t5 languages", "und").targets) == ["und"]
    folder = copy("t5 languages")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.add_special_tokens(["<2de>"])  # not found in texts, so it is added to their ids
    tokenizer.save(str(folder / "tokenizer.json"))
    targets = languages(folder).targets
    assert targets["de"] == TargetFrame(before=(tokenizer.token_to_id("<2de>"),))
    assert targets["fr"] == TargetFrame("<2fr> ")


def test_t5_with_tasks_from_several_source_languages_is_text_to_text(copy: Any) -> None:
    folder = copy("t5 translator")
    tasks = {f"translation_{pair}": {"prefix": f"{pair}: "} for pair in ("en_to_de", "de_to_en")}
    edit_json(folder / "config.json", task_specific_params=tasks)
    loaded = languages(folder)
    assert (*loaded.sources, *loaded.targets, loaded.splits) == ("und", "und", False)


@pytest.mark.parametrize(
    ("name", "pair", "message"),
    [
        ("nllb tied", ("sw", ""), r"source_language: 'sw' is not among the model's languages: deu_Latn, eng_Latn, .*"),
        ("mbart50 tied", ("", "cy"), r"target_language: 'cy' is not among the model's languages: .* \(52 in all\)"),
        ("marian tied", ("", "fr"), r"target_language: 'fr' is not among the model's languages: deu"),
        ("t5 translator", ("de", ""), r"source_language: 'de' is not among the model's languages: en"),
        ("bart tied", ("English!", ""), r"source_language: 'English!' is not a language code such as de, de-DE or deu_Latn"),
    ],
)
def test_languages_that_the_model_lacks_are_rejected(name: str, pair: tuple[str, str], message: str, checkpoints: Path) -> None:
    with pytest.raises(SourceError, match=f"^{message}$"):
        languages(checkpoints / name, *pair)


def test_model_names_are_those_of_the_hub() -> None:
    cached = Path("/cache/models--facebook--nllb-200-distilled-600M/snapshots/f8d333a")
    assert model_name(Folder(cached)) == "facebook/nllb-200-distilled-600M"
    assert model_name(Folder(Path("/models/mine"))) == "mine"


def words(*names: str) -> Tokenizer:
    tokenizer = Tokenizer(models.WordLevel({name: number for number, name in enumerate(names)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return tokenizer


def test_added_tokens_without_an_embedding_become_text(checkpoints: Path) -> None:
    tokenizer = words("<unk>", "a", "mask")
    tokenizer.add_special_tokens([AddedToken("<mask>"), AddedToken("<end>")])
    assert limit_tokens(tokenizer, 5) is tokenizer
    limited = limit_tokens(tokenizer, 3)
    assert tokenizer.encode("a <mask>").ids == [1, 3]
    assert limited.encode("a <mask> <end>").tokens == ["a", "<unk>", "mask", "<unk>", "<unk>", "<unk>", "<unk>"]
    with pytest.raises(SourceError, match=r"^tokenizer: 'b' is number 2, and the model has 2 embeddings$"):
        limit_tokens(words("<unk>", "a", "b"), 2)
    # BART fine-tuned on summaries lacks the last row, that of <mask>.
    bart = languages(checkpoints / "bart tied").tokenizer
    rows = bart.token_to_id("<mask>")
    assert max(limit_tokens(bart, rows).encode("one <mask> two").ids) < rows
    assert limit_tokens(bart, rows).encode("one two").ids == bart.encode("one two").ids
