"""Rerankers of sentence-transformers that are language models, such as Qwen3-Reranker (Zhang et al. 2025).

A pair of texts is written as a chat with the roles "query" and "document", and its score is the logit of one token that could
follow, or its distance to another's. Source: https://sbert.net/docs/cross_encoder/usage/custom_models.html
"""

import re
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any, cast

from jinja2 import TemplateError
from tokenizers import Tokenizer, processors
from torch import Tensor

from triptych_export.errors import SourceError
from triptych_export.huggingface.chat import read_chat
from triptych_export.huggingface.checkpoint.config import integer
from triptych_export.huggingface.checkpoint.mapping import Change
from triptych_export.huggingface.checkpoint.sentence_transformers import (
    KNOWN_OF_TRANSFORMER,
    MODULES,
    SCORE_OF_TOKENS,
    TRANSFORMER_FILES,
    read_modules,
    read_prompts,
)
from triptych_export.huggingface.folder import Folder, one_line
from triptych_serving.bundle.manifest.text import PLACES
from triptych_serving.models.generation.chat import ABSENT, compile_template
from triptych_serving.text.bert_tokenizer import fill_pair
from triptych_serving.text.tokenizers import make_tokenizer

Scored = tuple[int, int | None]  # tokens that mean "yes" and, if the score is a distance, "no"
MESSAGE, CHAT = "message", "chat_template"
FORMATS = ("flat", "structured")  # of a message's content: a text, or a list of parts
# Ends of texts, with which different characters of what follows may become one token.
ENDS = ("0", "1 2 3 4", "a", "?", "a.", "a)", "a ", "a\n", "\u4e2d")
BEFORE, BETWEEN, AFTER = "[BEFORE]", "[BETWEEN]", "[AFTER]"  # names of the special tokens around a pair, in tokenizer.json


def read_scored_tokens(folder: Folder) -> Scored | None:
    """Read which tokens' logits are the score of a language model; None if the folder's model has no such score.

    Raises:
        SourceError: the file of the module is missing or damaged.
    """
    place = dict(read_modules(folder)).get(SCORE_OF_TOKENS)
    if place is None:
        return None
    file = f"{place}/config.json"
    members = (
        folder.read_closed(file, {"true_token_id": (), "false_token_id": (), "module_input_name": ("causal_logits",)}) or {}
    )
    yes, no = members.get("true_token_id"), members.get("false_token_id")
    size = integer(folder, "vocab_size")
    for name, token in (("true_token_id", yes), ("false_token_id", 0 if no is None else no)):
        if type(token) is not int or not 0 <= token < size:
            raise SourceError(f"{folder.path / file}: {name}: {token!r:.60}, expected the number of a token, below {size:,}")
    return cast(Scored, (yes, no))


def score_rows(scored: Scored) -> Change:
    """Return what makes the weights of the score, `[1, E]` or `[1]`, of those of all tokens, `[V, E]` or `[V]`."""
    yes, no = scored

    def rows(weight: Tensor) -> Tensor:
        return (weight[yes] if no is None else weight[yes] - weight[no])[None]

    return rows


def reads_chats(folder: Folder) -> bool:
    """Tell whether a cross-encoder's pairs become messages of a chat."""
    return MESSAGE in (folder.members(TRANSFORMER_FILES[0]).get("modality_config") or {})


def read_pair_template(folder: Folder, tokenizer: Tokenizer) -> tuple[str, ...]:
    """Read how a pair of texts is tokenized, see TextManifest; none if it is not a chat.

    The special tokens that the chat template writes become those that the tokenizer adds.

    Raises:
        SourceError: the folder has no chat template for pairs, or one whose tokens depend on the texts in other ways.
    """
    if not (read_modules(folder) and reads_chats(folder)):
        return ()
    rendered = _render(folder)
    special = [token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special]
    before, between, after = re.split("|".join(map(re.escape, PLACES)), rendered)
    cut = re.compile("|".join(map(re.escape, sorted(special, key=len, reverse=True))) or "(?!)")
    plain = Tokenizer.from_str(tokenizer.to_str())
    plain.no_truncation()
    plain.no_padding()

    def ids(text: str) -> list[int]:
        encoded: list[int] = plain.encode(text, add_special_tokens=False).ids
        return encoded

    start = max((found.end() for found in cut.finditer(before)), default=0)
    inner = [found.span() for found in cut.finditer(between)]
    fixed = _fixed_tokens(plain, before + PLACES[0] + between, after)
    frame = {BEFORE: ids(before[:start]), AFTER: ids(after[fixed:])}
    if inner:
        frame[BETWEEN] = ids(between[inner[0][0] : inner[-1][1]])
        pair = before[start:] + PLACES[0] + between[: inner[0][0]], between[inner[-1][1] :] + PLACES[1] + after[:fixed]
    template = pair if inner else (before[start:] + PLACES[0] + between + PLACES[1] + after[:fixed],)
    tokenizer.post_processor = _post_processor(plain, frame)
    _check(folder, rendered, template, ids, tokenizer)
    return template


def _render(folder: Folder) -> str:
    """Render the chat template with the names of their places as texts."""
    members = folder.read_closed(TRANSFORMER_FILES[0], _known(folder)) or {}
    content_format = members["modality_config"][MESSAGE].get("format", FORMATS[0])
    settings = (members.get("processing_kwargs") or {}).get(CHAT) or {}
    chat, (prompt, _) = read_chat(folder), read_prompts(folder)
    if not chat.template:
        raise SourceError(f"{folder.path}: no chat template, {MODULES} names a model that reads pairs of texts as chats")
    roles = {**({"system": prompt} if prompt else {}), "query": PLACES[0], "document": PLACES[1]}
    messages = [
        {"role": role, "content": text if content_format == FORMATS[0] else [{"type": "text", "text": text}]}
        for role, text in roles.items()
    ]
    try:
        rendered = compile_template(chat.template).render(**chat.variables, **ABSENT, **settings, messages=messages)
    except TemplateError as error:
        raise SourceError(f"{folder.path}: the chat template rejects a query and a document: {one_line(error)}") from error
    if re.findall("|".join(map(re.escape, PLACES)), rendered) != [*PLACES]:
        problem = "the chat template does not write query and document once each, in this order"
        raise SourceError(f"{folder.path}: {problem}; save one that does (roles 'query' and 'document')")
    return rendered


def _known(folder: Folder) -> Mapping[str, Any]:
    """Return the known members of the file about the transformer, with those of chats."""
    modalities = folder.members(TRANSFORMER_FILES[0])["modality_config"]
    fields = [{"method": "forward", "method_output_name": "logits"}]
    fields += [{**fields[0], "format": name} for name in FORMATS]
    fits = isinstance(modalities, dict) and all(each in fields for each in modalities.values())
    kwargs = folder.members(TRANSFORMER_FILES[0]).get("processing_kwargs") or {}
    own = isinstance(kwargs, dict) and kwargs.keys() <= {CHAT}
    return {
        **KNOWN_OF_TRANSFORMER,
        "transformer_task": ("text-generation", "sequence-classification"),
        "modality_config": () if fits else ({},),
        "module_output_name": ("causal_logits", "scores"),
        "processing_kwargs": () if own else ({},),
    }


def _fixed_tokens(tokenizer: Tokenizer, before: str, after: str) -> int:
    """Return where in the text after the document the tokens begin that do not depend on it."""
    encodings = [tokenizer.encode(before + end + after, add_special_tokens=False) for end in ENDS]
    columns = zip(*(reversed(encoding.ids) for encoding in encodings), strict=False)
    shared = len([*takewhile(lambda column: len(set(column)) == 1, columns)])
    starts = [
        encoding.offsets[len(encoding.ids) - shared][0] if shared else len(before + end + after)
        for end, encoding in zip(ENDS, encodings, strict=True)
    ]
    places = [start - len(before) - len(end) for start, end in zip(starts, ENDS, strict=True)]
    return max(0, *places)


def _post_processor(tokenizer: Tokenizer, frame: Mapping[str, Sequence[int]]) -> processors.TemplateProcessing:
    """Make the step that adds the special tokens to one text, or to two."""
    tokens = [
        {"id": name, "ids": [*ids], "tokens": [tokenizer.id_to_token(number) for number in ids]}
        for name, ids in frame.items()
        if ids
    ]
    single = [name for name in (BEFORE, "$A", AFTER) if name == "$A" or frame[name]]
    pair = [name for name in (BEFORE, "$A", BETWEEN, "$B:0", AFTER) if name[0] == "$" or frame.get(name)]
    return processors.TemplateProcessing(single=single, pair=pair, special_tokens=tokens)


def _check(folder: Folder, rendered: str, template: Sequence[str], ids: Any, tokenizer: Tokenizer) -> None:
    """Compare the tokens of pairs with those of whole chats; raises SourceError if they differ."""
    ours = make_tokenizer(tokenizer.to_str())
    for query, document in zip(ENDS, reversed(ENDS), strict=True):
        wanted = ids(rendered.replace(PLACES[0], query).replace(PLACES[1], document))
        if ours.encode_batch([fill_pair(template, query, document)])[0].ids != wanted:
            problem = f"the tokens of the chat template around {query!r} and {document!r} depend on them"
            raise SourceError(f"{folder.path}: {problem}, which is not supported")
