"""Models of sentence-transformers that read texts as chats, and rerankers that are language models (Qwen3-Reranker).

A text is the message of a user; a pair of texts are messages with the roles "query" and "document". A score is the logit of one
token that could follow, or its distance to another's. Source: https://sbert.net/docs/cross_encoder/usage/custom_models.html
"""

import re
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import cast

from tokenizers import Tokenizer, processors
from torch import Tensor

from triptych_export.errors import SourceError
from triptych_export.huggingface.chat import read_chat
from triptych_export.huggingface.checkpoint.config import integer
from triptych_export.huggingface.checkpoint.mapping import Change
from triptych_export.huggingface.checkpoint.sentence_transformers import (
    CHAT,
    FORMATS,
    MESSAGE,
    MODULES,
    SCORE_OF_TOKENS,
    TRANSFORMER_FILES,
    read_modules,
    read_prompts,
    reads_chats,
)
from triptych_export.huggingface.folder import Folder, one_line
from triptych_serving.bundle.manifest.text import PAIR_PLACES, PLACE, TEXT_PLACE
from triptych_serving.models.generation.chat import ABSENT, compile_template
from triptych_serving.text.bert_tokenizer import fill_template
from triptych_serving.text.tokenizers import make_tokenizer

Scored = tuple[int, int | None]  # tokens that mean "yes" and, if the score is a distance, "no"
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


def read_template(folder: Folder, tokenizer: Tokenizer, vectors: bool) -> tuple[str, ...]:
    """Read how texts or pairs are tokenized, see TextManifest; none if they are no chats.

    The special tokens that the chat template writes become those that the tokenizer adds.

    Args:
        folder: of the checkpoint.
        tokenizer: without normalization or special tokens of bundles.
        vectors: the model makes vectors of single texts, which a user wrote.

    Raises:
        SourceError: the folder has no chat template for these roles, or one whose tokens depend on the texts in other ways.
    """
    if not reads_chats(folder):
        return ()
    roles = {"user": TEXT_PLACE} if vectors else dict(zip(("query", "document"), PAIR_PLACES, strict=True))
    rendered = _render(folder, roles)  # ends with the special tokens of an answer, and may have some between a pair's texts
    before, *between, after = re.split("|".join(map(re.escape, roles.values())), rendered)
    special = [token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special]
    cut = re.compile("|".join(map(re.escape, sorted(special, key=len, reverse=True))) or "(?!)")
    plain = Tokenizer.from_str(tokenizer.to_str())
    plain.no_truncation()
    plain.no_padding()

    def ids(text: str) -> list[int]:
        encoded: list[int] = plain.encode(text, add_special_tokens=False).ids
        return encoded

    start = max((found.end() for found in cut.finditer(before)), default=0)
    fixed = _fixed_tokens(plain, rendered.removesuffix(after), after)
    frame = {BEFORE: ids(before[:start]), AFTER: ids(after[fixed:])}
    text = rendered[start : len(rendered) - len(after) + fixed]
    inner = [found.span() for each in between for found in cut.finditer(each)]
    if inner:
        first, last = (len(before) - start + len(PAIR_PLACES[0]) + place for place in (inner[0][0], inner[-1][1]))
        frame[BETWEEN] = ids(text[first:last])
    template = (text[:first], text[last:]) if inner else (text,)
    tokenizer.post_processor = _post_processor(plain, frame)
    ours = make_tokenizer(tokenizer.to_str())
    for texts in zip(ENDS, reversed(ENDS), strict=True) if between else zip(ENDS, strict=True):
        whole = str(fill_template([rendered], *texts))
        if ours.encode_batch([fill_template(template, *texts)])[0].ids != ids(whole):
            problem = f"the tokens that the chat template writes around {' and '.join(map(repr, texts))} depend on them"
            raise SourceError(f"{folder.path}: {problem}, which is not supported")
    return template


def _render(folder: Folder, roles: Mapping[str, str]) -> str:
    """Render the chat template with the names of their places as texts of the roles."""
    members = folder.members(TRANSFORMER_FILES[0])
    form, settings = members["modality_config"][MESSAGE], members.get("processing_kwargs") or {}
    own = settings.get(CHAT) or {} if isinstance(settings, dict) else None
    if not isinstance(form, dict) or not isinstance(own, dict):
        problem = f"modality_config.{MESSAGE}: {form!r:.60}, processing_kwargs: {settings!r:.60}, expected members by name"
        raise SourceError(f"{folder.path / TRANSFORMER_FILES[0]}: {problem}")
    chat, (prompt, _) = read_chat(folder), read_prompts(folder)
    if not chat.template:
        raise SourceError(f"{folder.path}: no chat template, and {MODULES} names a model that reads texts as chats")
    messages = [
        {"role": role, "content": text if form.get("format", FORMATS[0]) == FORMATS[0] else [{"type": "text", "text": text}]}
        for role, text in {**({"system": prompt} if prompt else {}), **roles}.items()
    ]
    names = " and ".join(roles)
    try:
        rendered = compile_template(chat.template).render({**chat.variables, **ABSENT, **own, "messages": messages})
    except Exception as error:  # of any type: templates are foreign code
        raise SourceError(f"{folder.path}: the chat template rejects messages of {names}: {one_line(error)}") from error
    if PLACE.findall(rendered) != [*roles.values()]:
        problem = f"the chat template does not write the messages of {names} once each, in this order"
        raise SourceError(f"{folder.path}: {problem}; save one that does")
    return rendered


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
