"""Tokenizers of Hugging Face checkpoints, in the form that serving uses.

A tokenizer.json is used as it is. Without one, a tokenizer with the same ids is made from the older files; for SentencePiece
models the reference is the sentencepiece package.
"""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NoReturn

from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import BPE, WordPiece

from triptych_export.errors import SourceError
from triptych_export.huggingface.folder import Folder
from triptych_export.huggingface.tokenizers import language_codes
from triptych_export.huggingface.tokenizers.fast_tokenizer import NAME as FAST
from triptych_export.huggingface.tokenizers.fast_tokenizer import components, fast_tokenizer
from triptych_export.huggingface.tokenizers.piece_model import PieceModel, PieceType, read_piece_model
from triptych_export.huggingface.tokenizers.piece_tokenizer import Vocabulary, piece_tokenizer
from triptych_export.huggingface.tokenizers.special_tokens import CONFIG, SpecialTokens, read_special_tokens, special_token

PIECES = "sentencepiece.bpe.model"
SAVE_TOKENIZER = "save the tokenizer of the training there with transformers: save_pretrained"
EXTRA_IDS = 100  # of T5, unless tokenizer_config.json says otherwise

BERT = {"unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]", "cls_token": "[CLS]", "mask_token": "[MASK]"}
PLAIN = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
ALBERT = {**BERT, "unk_token": "<unk>", "pad_token": "<pad>"}
GPT2 = dict.fromkeys(("bos_token", "eos_token", "unk_token"), "<|endoftext|>")
FAIRSEQ = {**PLAIN, "bos_token": "<s>", "sep_token": "</s>", "cls_token": "<s>", "mask_token": "<mask>"}


@dataclass(frozen=True)
class TranslationTokenizers:
    """Tokenizers of a translation model."""

    source: Tokenizer  # tokenizer of sources; appends the end token, if the checkpoint's does
    target: Tokenizer | None = None  # tokenizer of targets, for encoding and decoding; None: the same as `source`
    frame: Sequence[int] = ()  # ids that the checkpoint's own tokenizer puts around a text
    bare: bool = False  # whether it puts none around it

    def before(self, folder: Folder, end: int) -> tuple[int, ...]:
        """Return the ids before a text of a model without languages, which ends with the id `end`, or has no end.

        Raises:
            SourceError: the checkpoint's tokenizer ends texts with another token.
        """
        *before, last = self.frame or [end]
        if last != end:
            raise SourceError(f"{folder.path}: the tokenizer ends texts with {last}, not with eos_token_id, {end}")
        return tuple(before)


@dataclass(frozen=True)
class Family:
    """Recipe for the tokenizers of one Hugging Face class."""

    make: Callable[[Folder, SpecialTokens], Tokenizer]
    roles: dict[str, str]  # special tokens unless a file names other ones


def text_tokenizer(folder: Folder) -> Tokenizer:
    """Make an encoder's tokenizer, which adds special tokens to a text or a pair, without truncation and padding.

    Raises:
        SourceError: there is no tokenizer in the folder, or one that cannot be used.
    """
    try:
        family = _family(folder)
    except SourceError:  # of ONNX files of other families, whose tokenizer.json may say all
        if not folder.has(FAST) or _adds_nothing(fast_tokenizer(folder, read_special_tokens(folder))):
            raise
        family = OTHER
    tokens = _special_tokens(folder, family)
    tokenizer = fast_tokenizer(folder, tokens) if folder.has(FAST) else family.make(folder, tokens)
    if _adds_nothing(tokenizer) and not _is_generic(folder):
        _frame_texts(tokenizer, folder, family, tokens)
    return tokenizer if _makes_types(folder) else _without_types(tokenizer)


def decoder_tokenizer(folder: Folder) -> Tokenizer:
    """Make the tokenizer of a decoder-only model, which adds what the checkpoint's adds to a prompt.

    Raises:
        SourceError: there is no tokenizer in the folder, or one that cannot be used.
    """
    if folder.has(FAST):
        return fast_tokenizer(folder, read_special_tokens(folder))
    tokens = read_special_tokens(folder, {role: special_token(name) for role, name in GPT2.items()})
    named = [name.removesuffix("Fast") for name in named_classes(folder)]
    if not (named[0] in GPT2_CLASSES if named else folder.model_type in GPT2_MODELS):
        _only_fast(folder, tokens)
    tokenizer = byte_level(folder, tokens)
    if folder.members(CONFIG).get("add_bos_token"):
        first = tokens.name("bos_token")
        pair, ids = [first, "$A", first, "$B"], [(first, token_id(tokenizer, folder, first))]
        tokenizer.post_processor = processors.TemplateProcessing(single=pair[:2], pair=pair, special_tokens=ids)
    return tokenizer


def translation_tokenizers(folder: Folder) -> TranslationTokenizers:
    """Make a translation model's tokenizers, which append the end token; language tokens are left to the caller.

    Sources of a checkpoint whose own tokenizer adds nothing have no end token.

    Raises:
        SourceError: there is no tokenizer in the folder, or one that cannot be used.
    """
    family = _family(folder)
    tokens = _special_tokens(folder, family)
    if family is FAMILIES["MarianTokenizer"] and folder.has("source.spm"):  # a tokenizer.json could only serve one side
        separate = folder.members(CONFIG).get("separate_vocabs", folder.has("target_vocab.json"))
        target = _marian(folder, tokens, "target.spm", "target_vocab.json" if separate else "vocab.json")
        made = TranslationTokenizers(_marian_source(folder, tokens), target)
    elif folder.has(FAST):
        made = TranslationTokenizers(fast_tokenizer(folder, tokens))
        if is_bare(folder, made.source):
            made = TranslationTokenizers(made.source, fast_tokenizer(folder, tokens), bare=True)
    else:
        made = TranslationTokenizers(family.make(folder, tokens))
    framed = tokens.name("cls_token") and family is not BLENDERBOT  # whose sources have an end token only
    if _adds_nothing(made.source) and not made.bare and framed:
        _frame_texts(made.source, folder, family, tokens)
    frame = made.source.encode("").ids
    end = tokens.name("eos_token") or tokens.name("sep_token")  # of BERT's tokenizers, which some BART models have
    for tokenizer in (None if made.bare else made.source, made.target):
        if tokenizer is not None:
            end_texts(tokenizer, end, token_id(tokenizer, folder, end))
    return replace(made, frame=frame)


def _marian_source(folder: Folder, tokens: SpecialTokens) -> Tokenizer:
    """Pieces of source.spm with the ids of vocab.json, which may be shared by both languages."""
    return _marian(folder, tokens, "source.spm", "vocab.json")


def _marian(folder: Folder, tokens: SpecialTokens, pieces: str, ids: str) -> Tokenizer:
    names = read_names(folder, ids)
    if (unknown := tokens.name("unk_token")) not in names:
        raise SourceError(f"{folder.path / ids}: lacks the unknown token {unknown}")
    languages = [special_token(name) for name in names if name.startswith(">>") and name.endswith("<<")]
    special = [*tokens.within(names), *languages]
    return piece_tokenizer(_read(folder, pieces), Vocabulary(names, unknown, special, tokens.behind(names)), strips=True)


def _m2m100(folder: Folder, tokens: SpecialTokens) -> Tokenizer:
    names = read_names(folder, "vocab.json")
    config = folder.members(CONFIG)
    codes = language_codes.WMT21 if config.get("language_codes") == "wmt21" else language_codes.M2M100
    behind = tokens.behind(names, _languages(tokens, [f"__{code}__" for code in codes]))
    vocabulary = Vocabulary(names, tokens.name("unk_token"), tokens.within(names), behind)
    return piece_tokenizer(_read(folder, PIECES), vocabulary, strips=True)


def _fairseq(codes: Sequence[str] = ()) -> Callable[[Folder, SpecialTokens], Tokenizer]:
    """Pieces with fairseq's ids: four special tokens instead of SentencePiece's three, then languages and the mask."""

    def make(folder: Folder, tokens: SpecialTokens) -> Tokenizer:
        model = _read(folder, PIECES)
        if [piece.kind for piece in model.pieces[:3]] != [PieceType.UNKNOWN, PieceType.CONTROL, PieceType.CONTROL]:
            first = [piece.text for piece in model.pieces[:3]]
            raise SourceError(f"{folder.path / PIECES}: the model begins with {first}, expected <unk>, <s>, </s>")
        first = [tokens.name(role) for role in ("bos_token", "pad_token", "eos_token", "unk_token")]
        names = [*first, *(piece.text for piece in model.pieces[3:])]
        family = [*_languages(tokens, codes), tokens.name("mask_token"), *(token.content for token in tokens.additional)]
        return _tokenizer(folder, model, tokens, family, names)

    return make


def _camembert(folder: Folder, tokens: SpecialTokens) -> Tokenizer:
    model = _read(folder, PIECES)
    first = ["<s>NOTUSED", tokens.name("pad_token"), "</s>NOTUSED", tokens.name("unk_token"), "<unk>NOTUSED"]
    names = [*first, *(piece.text for piece in model.pieces[1:])]
    unused = [special_token(name) for name in first if name.endswith("NOTUSED")]
    tokens = replace(tokens, additional=(*tokens.additional, *unused))
    return _tokenizer(folder, model, tokens, [tokens.name("mask_token")], names)


def _deberta(folder: Folder, tokens: SpecialTokens) -> Tokenizer:
    for name in ("do_lower_case", "split_by_punct"):
        if folder.members(CONFIG).get(name):
            remedy = f"save the tokenizer with transformers, which writes {FAST}"
            raise SourceError(f"{folder.path / CONFIG}: {name}: true is not supported without {FAST}; {remedy}")
    model = _read(folder, "spm.model")
    return _tokenizer(folder, model, tokens, [tokens.name("mask_token")])


def _albert(folder: Folder, tokens: SpecialTokens) -> Tokenizer:
    config, model = folder.members(CONFIG), _read(folder, "spiece.model")
    tokenizer = _tokenizer(folder, model, tokens, [tokens.name("mask_token")])
    steps: list[normalizers.Normalizer] = [normalizers.Replace(quotes, '"') for quotes in ("``", "''")]
    if not config.get("keep_accents", False):
        steps += [normalizers.NFKD(), normalizers.StripAccents()]
    if config.get("do_lower_case", True):
        steps.append(normalizers.Lowercase())
    tokenizer.normalizer = normalizers.Sequence([*steps, tokenizer.normalizer])
    return tokenizer


def _t5(folder: Folder, tokens: SpecialTokens) -> Tokenizer:
    model = _read(folder, "spiece.model")
    config = folder.members(CONFIG)
    extra = [f"<extra_id_{number}>" for number in reversed(range(config.get("extra_ids", EXTRA_IDS)))]
    return _tokenizer(folder, model, tokens, extra)


def _only_fast(folder: Folder, _tokens: SpecialTokens) -> NoReturn:
    """Raise SourceError about a folder without the only file that says how its tokenizer cuts texts."""
    raise SourceError(f"{folder.path}: no {FAST}; {SAVE_TOKENIZER}")


def _pegasus(folder: Folder, tokens: SpecialTokens) -> Tokenizer:
    model = _read(folder, "spiece.model")
    unused = ["<mask_1>", "<mask_2>", *(f"<unk_{number}>" for number in range(2, folder.members(CONFIG).get("offset", 103)))]
    names = [tokens.name("pad_token"), tokens.name("eos_token"), *unused, *(piece.text for piece in model.pieces[2:])]
    tokens = replace(tokens, additional=(*tokens.additional, *map(special_token, unused)))
    return _tokenizer(folder, model, tokens, (), names)


def _tokenizer(
    folder: Folder, model: PieceModel, tokens: SpecialTokens, family: Sequence[str], names: Sequence[str] = ()
) -> Tokenizer:
    """Make a tokenizer; `names` are the vocabulary's, if they are not those of the pieces, and `family` follows them."""
    names = names or [piece.text for piece in model.pieces]
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise SourceError(f"{folder.path}: token {twice[0]!r} is both a special token and a piece")
    return piece_tokenizer(
        model, Vocabulary(names, tokens.name("unk_token"), tokens.within(names), tokens.behind(names, family))
    )


def _languages(tokens: SpecialTokens, codes: Sequence[str]) -> Sequence[str]:
    """Language tokens in the order of the folder's list, or of the family's if the folder has none."""
    listed = [token.content for token in tokens.additional]
    return listed if set(listed).intersection(codes) else codes


def _read(folder: Folder, name: str) -> PieceModel:
    _need(folder, name)
    return read_piece_model(folder.path / name)


def _need(folder: Folder, name: str) -> None:
    """Raise SourceError if a folder without tokenizer.json lacks the file `name`, too."""
    if not folder.has(name):
        raise SourceError(f"{folder.path}: no tokenizer, expected {FAST} or {name}; {SAVE_TOKENIZER}")


def word_piece(folder: Folder, tokens: SpecialTokens) -> Tokenizer:
    """Load the tokenizer of vocab.txt (one token per line), without post-processor.

    Raises:
        SourceError: vocab.txt is missing, cannot be read, or lacks the unknown token.
    """
    _need(folder, "vocab.txt")
    path = folder.path / "vocab.txt"
    try:
        names = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"{path}: cannot be read: {error}") from error
    if (unknown := tokens.name("unk_token")) not in names:
        raise SourceError(f"{path}: lacks the unknown token {unknown}")
    config = folder.members(CONFIG)
    tokenizer = Tokenizer(WordPiece({name: index for index, name in enumerate(names)}, unk_token=unknown))
    tokenizer.normalizer = normalizers.BertNormalizer(
        handle_chinese_chars=config.get("tokenize_chinese_chars", True),
        strip_accents=config.get("strip_accents"),  # None: where letters become small
        lowercase=config.get("do_lower_case", True),
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_tokens([*tokens.within(names), *tokens.behind(names)])
    return tokenizer


def byte_level(folder: Folder, tokens: SpecialTokens, spaced: bool = False) -> Tokenizer:
    """Load the tokenizer of vocab.json and merges.txt, without post-processor.

    With `spaced`, it puts a space before a text unless a file forbids it.

    Raises:
        SourceError: a file cannot be read.
    """
    names = read_names(folder, "vocab.json")
    try:
        model = BPE.from_file(str(folder.path / "vocab.json"), str(folder.path / "merges.txt"))
    except Exception as error:  # tokenizers raises bare Exception
        raise SourceError(f"{folder.path}: vocab.json and merges.txt do not make a tokenizer: {error}") from error
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=adds_space(folder, spaced))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens([*tokens.within(names), *tokens.behind(names)])
    return tokenizer


def adds_space(folder: Folder, default: bool = False) -> bool:
    """Tell whether a space is put before a text's first word."""
    return bool(folder.members(CONFIG).get("add_prefix_space", default))


def read_names(folder: Folder, file: str) -> list[str]:
    """Read the tokens of a JSON vocabulary in the order of their ids.

    Raises:
        SourceError: it is missing, or its ids are not 0, 1, ... without gaps.
    """
    ids = folder.read_json(file)
    if ids is None:
        raise SourceError(f"{folder.path}: missing {file}; {SAVE_TOKENIZER}")
    if sorted(ids.values()) != list(range(len(ids))):
        raise SourceError(f"{folder.path / file}: its {len(ids):,} ids must be 0 to {len(ids) - 1:,}, each once")
    return sorted(ids, key=ids.__getitem__)


SMALL100 = "SMALL100Tokenizer"  # a class that comes with the model
BLENDERBOT = Family(partial(byte_level, spaced=True), FAIRSEQ)
FAMILIES = {
    **dict.fromkeys(
        ("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer", "SqueezeBertTokenizer"), Family(word_piece, BERT)
    ),
    "MPNetTokenizer": Family(word_piece, {**FAIRSEQ, "unk_token": "[UNK]"}),
    "DebertaV2Tokenizer": Family(_deberta, BERT),
    "AlbertTokenizer": Family(_albert, ALBERT),
    "BigBirdTokenizer": Family(_only_fast, ALBERT),
    **dict.fromkeys(("RobertaTokenizer", "BartTokenizer", "MvpTokenizer"), Family(byte_level, FAIRSEQ)),
    "BlenderbotTokenizer": BLENDERBOT,
    "XLMRobertaTokenizer": Family(_fairseq(), FAIRSEQ),
    "CamembertTokenizer": Family(_camembert, FAIRSEQ),
    "MBartTokenizer": Family(_fairseq(language_codes.MBART), FAIRSEQ),
    "MBart50Tokenizer": Family(_fairseq(language_codes.MBART50), FAIRSEQ),
    "NllbTokenizer": Family(_fairseq(language_codes.NLLB), FAIRSEQ),
    **dict.fromkeys(("M2M100Tokenizer", SMALL100), Family(_m2m100, {**PLAIN, "bos_token": "<s>"})),
    "MarianTokenizer": Family(_marian_source, PLAIN),
    "PegasusTokenizer": Family(_pegasus, {**PLAIN, "mask_token": "<mask_2>"}),
    **dict.fromkeys(("T5Tokenizer", "MT5Tokenizer"), Family(_t5, PLAIN)),
}
OTHER = Family(_only_fast, {})
GENERIC = ("PreTrainedTokenizerFast", "TokenizersBackend", "GPT2Tokenizer", "GPT2TokenizerFast")
GPT2_CLASSES = ("GPT2Tokenizer", "CodeGenTokenizer")
GPT2_MODELS = ("gpt2", "gpt_neo", "gptj", "codegen", "opt")  # whose tokenizers are of these classes
# Model types by the class of their tokenizers, where the files name none.
BERT_TYPES = "bert distilbert electra ernie megatron-bert squeezebert roformer nomic_bert"
BERT_TYPES += " modernbert"  # whose special tokens it has; its vocabulary is in tokenizer.json
TYPES = {
    "AlbertTokenizer": "albert",
    "BartTokenizer": "bart mvp",
    "BertTokenizer": BERT_TYPES,
    "BigBirdTokenizer": "big_bird",
    "BlenderbotTokenizer": "blenderbot",
    "CamembertTokenizer": "camembert",
    "DebertaV2Tokenizer": "deberta-v2",
    "MBartTokenizer": "mbart",
    "MPNetTokenizer": "mpnet",
    "MarianTokenizer": "marian",
    "PegasusTokenizer": "pegasus",
    "RobertaTokenizer": "roberta roberta-prelayernorm ibert data2vec-text",
    "T5Tokenizer": "t5 mt5 umt5",
    "XLMRobertaTokenizer": "xlm-roberta xlm-roberta-xl gte new jina_embeddings_v3",
}
CLASSES = {kind: name for name, kinds in TYPES.items() for kind in kinds.split()}


def _family(folder: Folder) -> Family:
    """Find the family by the tokenizer class in the files or, for generic classes, by the architecture."""
    named, kind = [name.removesuffix("Fast") for name in named_classes(folder)], folder.model_type
    if named and named[0] not in (*FAMILIES, "PreTrainedTokenizer") and not folder.has(FAST):  # it may cut texts in another way
        known = ", ".join(sorted(FAMILIES))
        raise SourceError(f"{folder.path}: tokenizer_class: {named[0]!r} is not supported without {FAST}; supported: {known}")
    if kind == "m2m_100":  # M2M100 or NLLB
        named.append("M2M100Tokenizer" if folder.has("vocab.json") else "NllbTokenizer")
    for name in (*named, CLASSES.get(kind, "")):
        if name in FAMILIES:
            return FAMILIES[name]
    found = " or ".join(repr(name) for name in (*named, kind) if name)
    raise SourceError(
        f"{folder.path}: no tokenizer is known for {found or 'this folder'}, expected one of {', '.join(sorted(FAMILIES))}"
    )


def is_bare(folder: Folder, tokenizer: Tokenizer) -> bool:
    """Tell whether texts of the checkpoint have no special tokens around them; `tokenizer` is that of its tokenizer.json."""
    return _adds_nothing(tokenizer) and _is_generic(folder)


def _adds_nothing(tokenizer: Tokenizer) -> bool:
    return bool(tokenizer.num_special_tokens_to_add(False) == 0)


def _is_generic(folder: Folder) -> bool:
    """Tell whether the checkpoint's tokenizer is nothing but its tokenizer.json, which says alone what it adds to texts."""
    return folder.has(FAST) and bool(named := named_classes(folder)) and named[0] in GENERIC


def named_classes(folder: Folder) -> list[str]:
    """Return the tokenizer classes that the files name: first that of the tokenizer's own, which precedes."""
    return [str(name) for file in (folder.members(CONFIG), folder.config) if (name := file.get("tokenizer_class"))]


def _special_tokens(folder: Folder, family: Family) -> SpecialTokens:
    lstrip = family.roles.get("mask_token") == "<mask>"  # BERT's mask leaves the space
    defaults = {role: special_token(name, lstrip and role == "mask_token") for role, name in family.roles.items()}
    return read_special_tokens(folder, defaults)


def _frame_texts(tokenizer: Tokenizer, folder: Folder, family: Family, tokens: SpecialTokens) -> None:
    """Add special tokens around a text or a pair."""
    first, last = tokens.name("cls_token"), tokens.name("sep_token")
    ids = [(name, token_id(tokenizer, folder, name)) for name in (first, last)]
    if family.roles in (BERT, ALBERT):
        single, pair = [f"{first}:0", "$A:0", f"{last}:0"], ["$B:1", f"{last}:1"]
        tokenizer.post_processor = processors.TemplateProcessing(single=single, pair=[*single, *pair], special_tokens=ids)
    elif family.make is byte_level:
        tokenizer.post_processor = processors.RobertaProcessing(ids[1], ids[0], add_prefix_space=adds_space(folder))
    else:
        single = [first, "$A", last]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=single, pair=[*single, last, "$B", last], special_tokens=ids
        )


def _makes_types(folder: Folder) -> bool:
    """Tell whether the checkpoint's tokenizer tells the second text of a pair from the first (`token_type_ids`)."""
    members = folder.members(CONFIG)
    names = members.get("model_input_names")
    if names is None:
        # Of transformers 5, whose tokenizers make none. PreTrainedTokenizerFast did in 4, with which such models were trained.
        return members.get("tokenizer_class") != "TokenizersBackend"
    if not isinstance(names, list):
        raise SourceError(f"{folder.path / CONFIG}: model_input_names: {names!r:.60}, expected a list")
    return "token_type_ids" in names


def _without_types(tokenizer: Tokenizer) -> Tokenizer:
    """Give all tokens the type 0."""
    content = json.loads(tokenizer.to_str())
    for part in components(content["post_processor"]):
        if "type_id" in part:
            part["type_id"] = 0
        if part.get("type") == "BertProcessing":  # gives the second text the type 1
            (first, start), (last, end) = part["cls"], part["sep"]
            ids, single = [(first, start), (last, end)], [first, "$A", last]
            template = processors.TemplateProcessing(single=single, pair=[*single, "$B", last], special_tokens=ids)
            part.clear()
            part.update(json.loads(template.__getstate__()))
    return Tokenizer.from_str(json.dumps(content))


def end_texts(tokenizer: Tokenizer, end: str, number: int) -> None:
    """Append the end token to texts, and nothing else."""
    single, pair = ["$A", end], ["$A", "$B", end]
    tokenizer.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=[(end, number)])


def token_id(tokenizer: Tokenizer, folder: Folder, name: str) -> int:
    """Return the id of a special token; raises SourceError if it is not in the vocabulary."""
    if (found := tokenizer.token_to_id(name)) is None:
        raise SourceError(f"{folder.path}: the special token {name!r} is not in the tokenizer's vocabulary")
    return int(found)


def limit_tokens(tokenizer: Tokenizer, rows: int) -> Tokenizer:
    """Remove added tokens with ids of `rows` and above; a text that spells one out is ordinary text.

    Raises:
        SourceError: a token other than an added one has such an id and could be generated.
    """
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    if not any(number >= rows for number in vocabulary.values()):
        return tokenizer
    content = json.loads(tokenizer.to_str())
    beyond = {token["content"] for token in content["added_tokens"] if token["id"] >= rows}
    if found := sorted(name for name, number in vocabulary.items() if number >= rows and _may_be_made(name, content, beyond)):
        raise SourceError(f"tokenizer: {found[0]!r} is number {vocabulary[found[0]]:,}, and the model has {rows:,} embeddings")
    content["added_tokens"] = [token for token in content["added_tokens"] if token["content"] not in beyond]
    limited: Tokenizer = Tokenizer.from_str(json.dumps(content))
    return limited


def _may_be_made(name: str, content: dict[str, Any], beyond: set[str]) -> bool:
    """Tell whether a model can produce a token: a BPE needs merges for it, other models match every entry."""
    if name not in beyond:
        return True
    if name not in content["model"]["vocab"]:
        return False
    return content["model"]["type"] != "BPE" or any("".join(merge) == name for merge in content["model"]["merges"])
