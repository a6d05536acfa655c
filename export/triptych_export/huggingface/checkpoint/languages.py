"""Languages of a translation checkpoint, with the tokens that select them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from langcodes import Language
from tokenizers import Tokenizer

from triptych_export.errors import SourceError
from triptych_export.huggingface.folder import Folder
from triptych_serving.bundle.manifest import SourceFrame, TargetFrame
from triptych_serving.errors import InvalidInputError
from triptych_serving.text.languages import find_language, list_languages
from triptych_text.languages import UNDETERMINED, is_language

Framing = TypeVar("Framing", SourceFrame, TargetFrame)

# Codes of language groups (ISO 639-5) and of no particular language: they may occur in a model's name, but no text is in them.
GROUP_CODES = """
aav afa alg alv apa aqa aql art ath auf aus awd azc bad bai bat ber bih bnt btk cai cau cba ccn ccs cdc cdd cel cmc cpe cpf cpp
crp csu cus day dmn dra egx esx euq fiu fox gem gme gmq gmw grk hmx hok hyx iir ijo inc ine ira iro itc jpx kar kdo khi kro map
mis mkh mno mul mun myn nah nai ngf nic nub omq omv oto paa phi plf poz pqe pqw pra qwe roa sai sal sdv sem sgn sio sit sla smi
son sqj ssa syd tai tbq trk tup tut tuw und urj wak wen xgn xnd ypk zhx zle zls zlw znd zxx
"""
GROUPS = frozenset(GROUP_CODES.split())


@dataclass(frozen=True)
class CheckpointLanguages:
    """Source and target frames by language code, in order."""

    sources: Mapping[str, SourceFrame]  # tokens around a source of each language
    targets: Mapping[str, TargetFrame]  # instruction or tokens that select each target language
    splits: bool = True  # whether the model translates sentence by sentence
    notes: Mapping[str, Any] = field(default_factory=dict)  # further rows of the model card

    def choose(self, source_language: str, target_language: str) -> "CheckpointLanguages":
        """Restrict to the given languages, if any; a given code also names an undetermined language.

        Raises:
            SourceError: a code is malformed, or the model does not have the language.
        """
        sources = _choose(self.sources, source_language, "source_language")
        targets = _choose(self.targets, target_language, "target_language")
        named = {*sources, *targets} != {UNDETERMINED} and bool(source_language or target_language)
        return replace(self, sources=sources, targets=targets, splits=self.splits or named)


def text_to_text(before: Sequence[int] = (), first: int | None = None) -> CheckpointLanguages:
    """Make the languages of a text-to-text model: undetermined on both sides.

    Every source has the tokens `before` it; every output begins with the token `first`.
    """
    forced = () if first is None else (first,)
    sources, targets = {UNDETERMINED: SourceFrame(before=tuple(before))}, {UNDETERMINED: TargetFrame(forced=forced)}
    return CheckpointLanguages(sources, targets, splits=False)


def language_tokens(tokenizer: Tokenizer, pattern: str) -> dict[str, int]:
    """Map language codes, the pattern's first group, to token ids, sorted by id."""
    names = sorted(tokenizer.get_vocab(with_added_tokens=True).items(), key=lambda item: item[1])
    return {found[1]: number for name, number in names if (found := re.fullmatch(pattern, name))}


def offered_tokens(tokenizer: Tokenizer, pattern: str) -> tuple[dict[str, int], dict[str, str]]:
    """Return the tokens whose codes are known, as `language_tokens` does, and a row of the model card about the others."""
    tokens = language_tokens(tokenizer, pattern)
    offered = {code: number for code, number in tokens.items() if is_known(code)}
    skipped = ", ".join(code for code in tokens if code not in offered)
    return offered, {"language_tokens_not_offered": skipped} if skipped else {}


def is_known(code: str) -> bool:
    """Tell whether a code names an existing language or language group."""
    return is_language(code) and Language.get(code).is_valid()


def single(code: str | None) -> str:
    """Return the code if it names a single language, else "und"."""
    return code if code and is_known(code) and Language.get(code).language not in GROUPS else UNDETERMINED


def model_name(folder: Folder) -> str:
    """Return the checkpoint's name on the hub, or its folder's name."""
    cached = next((part for part in folder.path.parts if part.startswith("models--")), "")
    return cached.removeprefix("models--").replace("--", "/") or folder.path.absolute().name


def _choose(offered: Mapping[str, Framing], code: str, name: str) -> Mapping[str, Framing]:
    if not code:
        return offered
    try:
        found = find_language(code, tuple(offered), name)
    except InvalidInputError as error:
        raise SourceError(f"{name}: {code!r} is not a language code such as de, de-DE or deu_Latn") from error
    if found is None:
        raise SourceError(f"{name}: {code!r} is not among the model's languages: {list_languages(tuple(offered))}")
    return {code if found == UNDETERMINED else found: offered[found]}
