"""The language of a text, among those of the loaded models. The detector is loaded on first use: 80 MB, half a second."""

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache

import grpc
from langcodes import Language

from triptych_serving.gateway.call import HttpCall, no_temporary_file
from triptych_serving.rpc.direct_calls import RpcError
from triptych_serving.rpc.event_loop import ANY_SIZE
from triptych_text.languages import UNDETERMINED, primary_language
from triptych_text.steps import Steps

READ_CHARACTERS = 2_000  # of a text, which take about 2 ms
TAGGED_CHARACTERS = 4 * READ_CHARACTERS  # of a text with tags
TAG = re.compile(r"<[^<>]*>")  # without "<" inside: otherwise many of them would take time in the square of their number


@dataclass(frozen=True)
class Detected:
    """A language that a text may have."""

    code: str
    confidence: float  # from 0 to 1; 0 also where nothing was detected
    is_target: bool = False  # the text is in the language into which it is to be translated


async def detect(
    call: HttpCall, texts: Sequence[str], codes: Collection[str], html: bool = False, target: str = ""
) -> list[list[Detected]]:
    """Rank languages for each text, the most probable one first.

    Args:
        texts: only their first characters are read.
        codes: of the languages to choose from; those that the detector does not know are left out.
        html: tags are not read.
        target: another language to choose from, into which the texts are to be translated; "" for none.

    Raises:
        RpcError: the detector is not installed, or knows none of the languages.
        ClientDisconnect: nobody waits for the response.
    """
    return await call.while_connected(call.parts.threads.run_steps(ANY_SIZE, None, _rank(texts, codes, html, target)))


def _rank(texts: Sequence[str], codes: Collection[str], html: bool, target: str) -> Steps[list[list[Detected]]]:
    try:
        from py3langid import rank  # noqa: PLC0415 - not at start-up
    except ImportError:
        message = "no language detector is installed: name the source language, or run pip install py3langid on the server"
        raise RpcError.of(grpc.StatusCode.UNIMPLEMENTED, message) from None
    found = []
    for text in texts:
        yield
        read = (TAG.sub(" ", text[:TAGGED_CHARACTERS]) if html else text)[:READ_CHARACTERS]
        try:
            scores = dict(rank(read))  # log-likelihoods
        except OSError as error:  # it unpacks its model into one
            raise no_temporary_file("language detection (70 MB)", error) from None
        known = {code: scores[name] for code in codes if (name := _name(code, scores))}
        if not known:
            message = f"the detector knows none of the languages {', '.join(sorted(codes))}: name the source language"
            raise RpcError.of(grpc.StatusCode.UNIMPLEMENTED, message)
        if name := _name(target, scores):
            known[target] = scores[name]
        # The features of a text are not independent: unscaled, long texts would always have a confidence of 1.
        scale, best = math.sqrt(len(read.encode(errors="surrogatepass")) or 1), max(known.values())
        weights = {code: math.exp((score - best) / scale) for code, score in known.items()}
        total = sum(weights.values())
        ranked = sorted(weights, key=lambda code: -weights[code])
        found.append([Detected(code, weights[code] / total, code == target) for code in ranked])
    return found


def _name(code: str, known: Collection[str]) -> str:
    """Return the detector's name of a language, which may be that of its macrolanguage (`no` for nb); "" if it knows none."""
    primary = primary_language(code)
    return primary if primary in known else name if (name := _macrolanguage(primary)) in known else ""


@lru_cache(maxsize=1024)  # for each of many texts
def _macrolanguage(code: str) -> str:
    return Language.get(code).prefer_macrolanguage().language or UNDETERMINED
