"""Generation settings: generation_config.json translated to members of a bundle's manifest.

Settings without an equivalent are listed for the model card.
Source: https://huggingface.co/docs/transformers/main_classes/text_generation
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from triptych_export.errors import SourceError
from triptych_export.huggingface.folder import CONFIG, Folder, neutral
from triptych_serving.bundle.manifest import Generation
from triptych_serving.bundle.search_params import range_fault

FILE = "generation_config.json"
EARLY_STOPPING = {False: "heuristic", True: "full", "never": "never"}
# Settings that differ only in name: theirs -> ours.
SAME = {
    "num_beams": "beam_size",
    "num_return_sequences": "num_hypotheses",
    "length_penalty": "length_penalty",
    "repetition_penalty": "repetition_penalty",
    "no_repeat_ngram_size": "no_repeat_ngram_size",
}
WHOLE = ("num_beams", "num_return_sequences", "no_repeat_ngram_size")
DEFAULTS: Mapping[str, object] = {  # the manifest's, and those of the graphs
    **{field.name: field.default for field in fields(Generation)},
    **{"suppressed_tokens": [], "renormalize": False},
}
# Unsupported settings that change the output, each with the values that have no effect.
UNSUPPORTED: Mapping[str, tuple[object, ...]] = {
    "num_beam_groups": (1,),
    "diversity_penalty": (0.0,),
    "encoder_no_repeat_ngram_size": (0,),
    "encoder_repetition_penalty": (1.0,),
    "exponential_decay_length_penalty": (),
    "begin_suppress_tokens": ([],),
    "forced_decoder_ids": ([],),
    "sequence_bias": ({}, []),
    "force_words_ids": ([],),
    "constraints": ([],),
    "penalty_alpha": (0.0,),
    "guidance_scale": (1.0,),
    "stop_strings": ([],),
    "max_time": (),
    "token_healing": (False,),
    "dola_layers": (),
    "watermarking_config": (),
}
# Settings that only matter for sampling; here the request chooses them.
SAMPLING: Mapping[str, tuple[object, ...]] = {
    "do_sample": (False,),
    "temperature": (1.0,),
    "top_k": (0,),
    "top_p": (1.0,),
    "min_p": (),
    "top_h": (),
    "typical_p": (1.0,),
    "epsilon_cutoff": (0.0,),
    "eta_cutoff": (0.0,),
}

# Members that only translation follows. transformers' min_length counts the prompt.
TRANSLATION = ("min_length", "forced_bos_token_id", "forced_eos_token_id")

# Members of config.json that belong to generation: read here, or superseded by generation_config.json.
MEMBERS = (
    *SAME,
    *UNSUPPORTED,
    *SAMPLING,
    *("max_length", "max_new_tokens", "min_length", "min_new_tokens", "early_stopping", "bad_words_ids", "suppress_tokens"),
    *("forced_bos_token_id", "forced_eos_token_id", "force_bos_token_to_be_generated", "renormalize_logits"),
    *("remove_invalid_values", "output_scores", "return_dict_in_generate"),
)
# Special ids, and members of generation_config.json that say how to compute or what else to return, not which tokens.
KNOWN = neutral(
    " ".join(MEMBERS)
    + """
    bos_token_id eos_token_id pad_token_id decoder_start_token_id
    transformers_version _from_model_config _commit_hash output_attentions output_hidden_states output_logits
    use_cache cache_implementation cache_config return_legacy_cache max_cache_len compile_config disable_compile low_memory
    prefill_chunk_size continuous_batching_config is_assistant num_assistant_tokens num_assistant_tokens_schedule
    assistant_confidence_threshold assistant_early_exit assistant_ensemble_weight assistant_lookbehind target_lookbehind
    prompt_lookup_num_tokens max_matching_ngram_size speculation_type use_mtp
    """,
    generation_kwargs=({},),
)


@dataclass(frozen=True)
class GenerationSettings:
    """Special ids, and members of the manifest's `generation`."""

    pad: int  # id that pads sources
    start: int | None  # id of the decoder's first input; None only in decoder-only models
    ends: tuple[int, ...]  # ids of the end of a sentence: one, but in decoder-only models any number
    members: Mapping[str, Any]  # members of the manifest that differ from its defaults
    unsupported: str  # settings without an equivalent, for the model card; empty if there are none
    first_token: int | None = None  # id with which every output begins; None: any token

    @property
    def forced(self) -> tuple[int, ...]:
        """The first token as the start of a translation, which may be empty."""
        return () if self.first_token is None else (self.first_token,)

    def check_suppressed(self, folder: Folder, rows: int) -> None:
        """Check that a model with `rows` tokens has those that it must not generate; raises SourceError if it does not."""
        for run in self.members.get("suppressed_tokens", ()):
            if max(run) >= rows:
                problem = f"{max(run):,} is outside the vocabulary of {rows:,}; remove it"
                raise SourceError(f"{folder.path}: bad_words_ids or suppress_tokens: {problem}")


def read_generation(
    folder: Folder, limit: int, defaults: Mapping[str, Any], wanted: Mapping[str, Any] | None = None
) -> GenerationSettings:
    """Read generation_config.json, or config.json for checkpoints that predate it, of a decoder with `limit` positions.

    `defaults` are values for members missing in config.json, `wanted` for those missing in the file that is read.

    Raises:
        SourceError: a member is missing or out of range; names file, member and value.
    """
    return _Reader(folder, defaults, wanted or {}).read(limit)


def read_decoder_generation(folder: Folder, limit: int) -> GenerationSettings:
    """Read the settings of a decoder-only model with `limit` positions; raises SourceError as `read_generation` does."""
    return _Reader(folder, {}, {}).read_decoder(limit)


class _Reader:
    """Reader of members by name; None if a member is absent."""

    def __init__(self, folder: Folder, defaults: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
        own = folder.read_closed(FILE, KNOWN)
        self.place = folder.path / (CONFIG if own is None else FILE)
        self.config = {**defaults, **_present(folder.config.whole)}
        self.values = {**wanted, **(self.config if own is None else _present(own))}

    def read(self, limit: int) -> GenerationSettings:
        end = self._end()
        forced = self.values.get("forced_eos_token_id")
        if forced not in (None, end, [end]):
            raise self._fault("forced_eos_token_id", forced, f"expected the end token, {end}")
        members = {
            "rules": "transformers",
            "max_length": self._max_length(limit) - 1 - (forced is not None),
            "min_length": max(self._natural("min_new_tokens"), self._natural("min_length") - 1),  # this counts the start
            "early_stopping": self._early_stopping(),
            "forced_end": forced is not None,
            "renormalize": bool(self.values.get("renormalize_logits", False)),
            "suppressed_tokens": self._suppressed(end),
            **{ours: self._number(name) for name, ours in SAME.items() if name in self.values},
        }
        self._check(members)
        pad = self._id("pad_token_id", self._member("pad_token_id"))
        start = "decoder_start_token_id" if self._member("decoder_start_token_id") is not None else "bos_token_id"
        texts = _shown(members), _listed(dict(self._unsupported()))
        return GenerationSettings(pad, self._id(start, self._member(start)), (end,), *texts, self._first())

    def read_decoder(self, limit: int) -> GenerationSettings:
        end, start, pad = (self._member(name) for name in ("eos_token_id", "bos_token_id", "pad_token_id"))
        given = [] if end is None else end if isinstance(end, list) else [end]
        ends = tuple(dict.fromkeys(self._id("eos_token_id", each) for each in given))
        unsupported = dict(self._unsupported()) | {name: self.values[name] for name in TRANSLATION if self.values.get(name)}
        sampling = self._sampling(unsupported)
        known = [name for name in ("max_new_tokens", "max_length") if name in self.values]
        members = {
            **({"max_length": min(limit, self._natural(known[0]))} if known else {}),
            "min_length": self._natural("min_new_tokens"),
            "early_stopping": self._early_stopping(),
            "renormalize": bool(self.values.get("renormalize_logits", False)),
            "suppressed_tokens": [run for run in self._suppressed(-1) if len(run) > 1 or run[0] not in ends],
            **{ours: self._number(name) for name, ours in SAME.items() if name in self.values},
            **sampling,
        }
        self._check({"max_length": limit, **members})
        pad = self._id("pad_token_id", pad) if pad is not None else next(iter(ends), 0)
        start = None if start is None else self._id("bos_token_id", start)
        return GenerationSettings(pad, start, ends, _shown(members), _listed(unsupported))

    def _sampling(self, unsupported: dict[str, Any]) -> dict[str, float]:
        """Read how tokens are drawn by default, and remove that from what is not supported; without beams only."""
        if not self.values.get("do_sample") or self.values.get("num_beams", 1) != 1:
            return {}
        for name in ("do_sample", "temperature", "top_k", "top_p", "min_p"):
            unsupported.pop(name, None)
        members: dict[str, float] = {"sampling_topk": self._natural("top_k", 50)}
        for theirs, ours in (("temperature", "sampling_temperature"), ("top_p", "sampling_topp"), ("min_p", "sampling_minp")):
            if theirs in self.values:
                members[ours] = self._number(theirs)
        for name, value in members.items():
            if fault := range_fault(name, value):
                raise SourceError(f"{self.place}: {name}: {fault}")
        return members

    def _end(self) -> int:
        """Read the end token; equal duplicates count as one."""
        value = self._member("eos_token_id")
        if isinstance(value, list) and len(set(value)) > 1:
            raise self._fault("eos_token_id", value, "only one end token is supported")
        return self._id("eos_token_id", value[0] if isinstance(value, list) and value else value)

    def _first(self) -> int | None:
        first = self.values.get("forced_bos_token_id")
        if first is None and self.config.get("force_bos_token_to_be_generated"):  # the setting's former name
            first = self._member("bos_token_id")
        return None if first is None else self._id("forced_bos_token_id", first)

    def _max_length(self, limit: int) -> int:
        """Convert the maximum length, which counts start and end tokens.

        Without a setting `generate()` stops after 20 tokens, which cuts sentences; here the model's own limit applies.
        """
        given = self._natural("max_new_tokens") + 1 if "max_new_tokens" in self.values else self._natural("max_length", limit)
        if given < 2:
            raise self._fault("max_length", given, "expected at least 2: the start token and one more")
        return min(given, limit)

    def _early_stopping(self) -> str:
        value = self.values.get("early_stopping", False)
        if not isinstance(value, bool | str) or value not in EARLY_STOPPING:
            raise self._fault("early_stopping", value, 'expected true, false or "never"')
        return EARLY_STOPPING[value]

    def _suppressed(self, end: int) -> list[list[int]]:
        """Read suppressed token sequences; as in transformers, the end token alone is ignored."""
        runs = self.values.get("bad_words_ids") or []
        singles = self.values.get("suppress_tokens") or []
        if not isinstance(runs, list) or not all(_are_ids(run) and run for run in runs):
            raise self._fault("bad_words_ids", runs, "expected lists of ids")
        if not _are_ids(singles):
            raise self._fault("suppress_tokens", singles, "expected a list of ids")
        found = [*runs, *([token] for token in singles)]
        return [run for place, run in enumerate(found) if run != [end] and run not in found[:place]]

    def _unsupported(self) -> Iterator[tuple[str, Any]]:
        draws = bool(self.values.get("do_sample"))
        for name, inert in (*UNSUPPORTED.items(), *(SAMPLING.items() if draws else ())):
            if (value := self.values.get(name)) is not None and value not in inert:
                yield name, value
        ends = end if isinstance(end := self._member("eos_token_id"), list) else [end]
        if any(each in ends for each in self.values.get("suppress_tokens") or ()):
            yield "suppress_tokens", "the end of the sentence"

    def _check(self, members: Mapping[str, Any]) -> None:
        theirs = {ours: name for name, ours in SAME.items()}
        for name, value in members.items():
            if (ours := name) in theirs and (fault := range_fault(ours, value)):
                raise SourceError(f"{self.place}: {theirs[ours]}: {fault}")
        beams, texts = members.get("beam_size", 1), members.get("num_hypotheses", 1)
        if texts > beams:
            raise self._fault("num_return_sequences", texts, f"must not exceed num_beams, {beams}")
        if members["min_length"] > members["max_length"]:
            raise self._fault("min_length", self.values.get("min_length"), "must not exceed max_length")

    def _number(self, name: str) -> float:
        if name in WHOLE:
            return self._natural(name)
        value = self.values[name]
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._fault(name, value, "expected a number")
        return float(value)

    def _natural(self, name: str, default: int = 0) -> int:
        return self._id(name, self.values.get(name, default))

    def _member(self, name: str) -> Any:
        """Read a special id, which may be in either file."""
        return self.values.get(name, self.config.get(name))

    def _id(self, name: str, value: Any) -> int:
        if type(value) is not int or value < 0:
            raise self._fault(name, value, "expected a whole number of at least 0")
        return value

    def _fault(self, name: str, value: object, reason: str) -> SourceError:
        return SourceError(f"{self.place}: {name}: {value!r}; {reason}")


def _shown(members: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out the manifest's defaults."""
    return {name: value for name, value in members.items() if name not in DEFAULTS or value != DEFAULTS[name]}


def _listed(unsupported: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in unsupported.items())


def _present(members: Mapping[str, Any]) -> dict[str, Any]:
    """Treat null as absent."""
    return {name: value for name, value in members.items() if value is not None}


def _are_ids(value: object) -> bool:
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)
