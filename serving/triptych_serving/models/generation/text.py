"""The text of generated tokens: whole, or in pieces that can no longer change."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from triptych_serving.models.generation.tools import ToolCall, before_calls, find_calls, overlap
from triptych_serving.scheduling.request import Finish, Row, TokenLogProbability
from triptych_serving.text.tokenizers import Tokenizer
from triptych_serving.text.translation_tokenizer import REPLACEMENT
from triptych_serving.text.vocabulary import Vocabulary

TAIL = 8  # tokens of the prompt that are decoded with the text, because some decoders treat the first one otherwise


@dataclass(frozen=True)
class PreparedPrompt:
    """One prompt of a request, and its rows: a beam search, or a row for each sample."""

    rows: tuple[Row, ...]
    stop: tuple[str, ...] = ()
    echo: str | None = None  # the prompt's text, if the results begin with it
    tools: frozenset[str] = frozenset()  # names of functions that the text may call

    @property
    def tokens(self) -> int:
        """Number of the prompt's tokens."""
        return self.rows[0].prompt + 1


@dataclass(frozen=True)
class PreparedGeneration:
    """A checked and tokenized request, whose rows go to the engine."""

    prompts: tuple[PreparedPrompt, ...]

    @cached_property
    def rows(self) -> list[Row]:
        """Rows of all prompts."""
        return [row for prompt in self.prompts for row in prompt.rows]

    def part(self, index: int) -> "PreparedGeneration":
        """Return one of the prompts."""
        return PreparedGeneration((self.prompts[index],))


@dataclass(frozen=True)
class GeneratedChoice:
    """One text or image that was generated."""

    text: str
    finish: Finish
    token_count: int  # without the end of the text
    stop_sequence: str = ""  # that occurred
    score: float | None = None  # None if it was not requested
    log_probabilities: tuple[TokenLogProbability, ...] = ()
    image: bytes = b""  # PNG file
    tool_calls: tuple[ToolCall, ...] = ()

    @property
    def finish_reason(self) -> str:
        """Why it ended."""
        return self.finish.value


@dataclass(frozen=True)
class Generation:
    """The results of one prompt."""

    choices: tuple[GeneratedChoice, ...]
    prompt_token_count: int
    cached_token_count: int

    @property
    def text(self) -> str:
        """The first choice."""
        return self.choices[0].text


class StopCheck:
    """Tells whether the tokens of a row end with a stop sequence, from their bytes.

    Args:
        stop: the sequences.
        prompt: number of tokens at the start that belong to the prompt.
        vocabulary: bytes of each token.
        begins: see LogitsProcessor.
    """

    def __init__(self, stop: Sequence[str], prompt: int, vocabulary: Vocabulary, begins: bool = True) -> None:
        self._stop = [text.encode() for text in stop]
        self._size = max(map(len, self._stop))
        self._prompt, self._vocabulary, self._strips = prompt, vocabulary, begins and vocabulary.strips

    def __call__(self, tokens: Sequence[int]) -> bool:
        if len(tokens) <= self._prompt:
            return False
        last = self._vocabulary.bytes_of(tokens[-1])
        recent = tokens[max(self._prompt, len(tokens) - self._size - TAIL) :]
        tail = self._vocabulary.tail(recent, self._size + len(last) - 1, self._strips) or b""
        return any(stop in tail for stop in self._stop)


class TextBuilder:
    """Decodes a growing list of tokens, a few at a time, up to the first stop sequence.

    The text before the newest tokens is decoded again with them: what they add is the difference. An unfinished character is
    withheld, and what may be the beginning of a stop sequence. Where there are bytes that are no text, tokens are decoded one
    by one, so that the result does not depend on the pieces: a decoder with single bytes takes a run of them as a whole.

    Args:
        row: begins with its prompt.
        stop: the stop sequences.
    """

    def __init__(self, tokenizer: Tokenizer, row: Row, stop: Sequence[str]) -> None:
        self._tokenizer, self._stop = tokenizer, stop
        context = [*row.source, *row.prefix[: row.prompt]]
        self._before, self._new = context[-TAIL:], [0][:0]  # tokens whose text is known, and those after them
        self._known = self._decode(self._before)
        self._count = 0  # tokens given
        self._withheld = ""
        self.text = ""
        self.stopped = ""  # the sequence that ended the text

    def add(self, tokens: Sequence[int], is_last: bool = False) -> str:
        """Return the next piece of the text; may be empty.

        Args:
            tokens: all generated so far.
            is_last: there will be no more.
        """
        if self.stopped:
            return ""
        more = list(tokens[self._count :])
        self._count += len(more)
        one_by_one = len(more) > 1 and REPLACEMENT in self._decode(more)
        for part in [[token] for token in more] if one_by_one else [more]:
            self._read(part)
        if is_last and self._new:  # an unfinished character
            self._withheld += self._added()
            self._new = []
        piece = self._cut(is_last)
        self.text += piece
        return piece

    def _read(self, tokens: Sequence[int]) -> None:
        self._new += tokens
        added = self._added()
        if added.endswith(REPLACEMENT):
            return
        self._withheld += added
        if added or not self._known:  # else all are special tokens
            self._before, self._known = self._new, self._decode(self._new)
        self._new = []

    def _added(self) -> str:
        """Return what the new tokens add to the text."""
        whole = self._decode([*self._before, *self._new])
        return whole[len(self._known) :] if whole.startswith(self._known) else self._decode(self._new)

    def _cut(self, is_last: bool) -> str:
        """Return what can be shown of the withheld text."""
        found = [(place, stop) for stop in self._stop if (place := self._withheld.find(stop)) >= 0]
        if found:
            place, self.stopped = min(found)
            return self._withheld[:place]
        kept = 0 if is_last else max((overlap(self._withheld, stop) for stop in self._stop), default=0)
        shown = len(self._withheld) - kept
        piece, self._withheld = self._withheld[:shown], self._withheld[shown:]
        return piece

    def _decode(self, tokens: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(list(tokens))
        return text


class GrowingChoice:
    """One choice of a stream: pieces of the text of a row.

    Args:
        index: of the prompt in the request.
        choice: index of one of the prompt's rows.
    """

    def __init__(self, index: int, choice: int, prompt: PreparedPrompt, tokenizer: Tokenizer) -> None:
        self.index, self.choice, self.rows = index, choice, prompt.rows[choice : choice + 1]
        self._builder = TextBuilder(tokenizer, self.rows[0], prompt.stop)
        self._lead = prompt.echo or ""
        self._tools, self._built, self._shown = prompt.tools, "", ""
        self._sent = self._due = 0  # numbers of log-probabilities: returned, and of the tokens up to the last piece
        self.is_done = False

    def advance(self, _changed: Row | None = None) -> str:
        """Return the next piece after its row got more tokens or finished; often empty."""
        [row] = self.rows
        self.is_done = row.finish is not None
        tokens = row.hypotheses[0].tokens if self.is_done else tuple(row.tokens)
        piece = self._lead + self._builder.add(tokens[row.prompt :], self.is_done)
        self._lead = ""
        if self._tools:
            piece = self._without_calls(piece)
        if piece or self.is_done:
            self._due = len(row.first_log_probability) + len(row.log_probabilities)
        return piece

    def _without_calls(self, piece: str) -> str:
        """Return the next piece of the text without calls; what may be one is withheld until the end."""
        self._built += piece
        text = find_calls(self._built, self._tools)[0] if self.is_done else before_calls(self._built, self._tools)
        new, self._shown = text[len(self._shown) :], text
        return new

    def take_log_probabilities(self) -> Sequence[TokenLogProbability]:
        """Return the log-probabilities that have not been returned yet, of the tokens up to the last piece."""
        [row] = self.rows
        new = [*row.first_log_probability, *row.log_probabilities][self._sent : self._due]
        self._sent = self._due
        return new
