"""bundle.json: every fault at once."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from triptych_serving.bundle.manifest import (
    FILE_NAME,
    FORMAT,
    Framing,
    Generation,
    Manifest,
    TranslationManifest,
    read_manifest,
)
from triptych_serving.errors import BundleError
from triptych_serving.repository.repository import UNREADABLE, stamp_of

from ....fixtures.toy import BUNDLE

Edit = Callable[[dict[str, Any]], object]
MANIFESTS = Path(__file__).parents[3] / "fixtures/manifests"


@pytest.fixture
def read(tmp_path: Path) -> Callable[[Edit], Manifest]:
    """Reads the toy's manifest after a change."""

    def read_edited(edit: Edit) -> Manifest:
        raw = json.loads((BUNDLE / FILE_NAME).read_text(encoding="utf-8"))
        edit(raw)
        (tmp_path / FILE_NAME).write_text(json.dumps(raw), encoding="utf-8")
        return read_manifest(tmp_path)

    return read_edited


def faults_of(read: Callable[[Edit], Manifest], edit: Edit) -> list[str]:
    with pytest.raises(BundleError) as error:
        read(edit)
    assert all(fault in str(error.value) for fault in error.value.faults)
    return list(error.value.faults)


def test_the_toy_manifest_is_read(read: Callable[[Edit], Manifest]) -> None:
    manifest = read(lambda raw: raw["generation"].update(beam_size=4, num_hypotheses=2, length_penalty=0, patience=2))
    assert isinstance(manifest, TranslationManifest)
    assert manifest.task == "translation"
    assert (manifest.source_languages, manifest.target_languages) == (("en",), ("de",))
    assert (manifest.limits.max_source_tokens, manifest.limits.max_target_tokens) == (64, 64)
    assert manifest.precisions.keys() == {"fp32", "int8"}
    assert manifest.files["tokenizer.json"].bytes == (BUNDLE / "tokenizer.json").stat().st_size
    assert manifest.generation == Generation(4, 2.0, 2, 0.0, max_length=63)


def test_defaults_of_decoding_have_the_ranges_of_a_request(read: Callable[[Edit], Manifest]) -> None:
    values = {"beam_size": 0, "patience": 0, "num_hypotheses": 3, "length_penalty": "1", "repetition_penalty": 1e9}
    values |= {"no_repeat_ngram_size": -1, "min_length": 64}
    assert faults_of(read, lambda raw: raw["generation"].update(values)) == [
        "generation.length_penalty is '1', expected float",
        "generation.beam_size: 0 is out of range, it must be at least 1",
        "generation.patience: 0.0 is out of range, it must be above 0 and at most 1,000",
        "generation.repetition_penalty: 1000000000.0 is out of range, it must be at least 0.001 and at most 1,000",
        "generation.no_repeat_ngram_size: -1 is out of range, it must be at least 0",
        "generation.num_hypotheses 3 is above beam_size 0",
        "generation.min_length 64 is above max_length 63",
    ]


def test_every_fault_is_listed_at_once(read: Callable[[Edit], Manifest]) -> None:
    def edit(raw: dict[str, Any]) -> None:
        del raw["family"]
        raw["source_languages"] = "en"
        raw["target_languages"] = []
        raw["tokens"]["end"] = "2"
        raw["limits"]["max_source_tokens"] = 0
        raw["decoder"] = None
        raw["precisions"]["int8"]["step"] = "lost.onnx"
        raw["precisions"]["fp32"]["encoder"] = ""
        raw["default_precision"] = "fp16"
        raw["generation"]["max_length"] = 64
        raw["files"]["weights.int8.bin"]["bytes"] = True
        raw["files"]["../outside"] = {"sha256": "", "bytes": 0}

    expected = {
        "family is missing, expected str",
        "source_languages is 'en', expected a list of strings",
        "target_languages is empty",
        "tokens.end is '2', expected int",
        "limits.max_source_tokens is 0, expected at least 1",
        "decoder is not an object",
        "files lists no 'lost.onnx'",
        "precisions.fp32.encoder is empty",
        "default_precision 'fp16' is not among precisions ['fp32', 'int8']",
        "generation.max_length 64 is not below limits.max_target_tokens 64",
        "files.weights.int8.bin.bytes is True, expected int",
        "files: '../outside' is not a plain file name",
    }
    assert expected <= set(faults_of(read, edit))


def test_integers_are_those_that_messages_and_caches_can_have(read: Callable[[Edit], Manifest]) -> None:
    def edit(raw: dict[str, Any]) -> None:
        raw["limits"] = {"max_source_tokens": 10**30, "max_target_tokens": 2**31}
        raw["decoder"] |= {"layers": 2**31 - 1, "heads": 10**30}

    assert faults_of(read, edit) == [
        f"decoder.layers is {2**31 - 1}, expected at most 10,000",
        f"decoder.heads is {10**30}, expected at most 10,000",
        f"limits.max_source_tokens is {10**30}, expected at most 2,147,483,647",
        f"limits.max_target_tokens is {2**31}, expected at most 2,147,483,647",
    ]


def test_what_lacks_format_and_task_lacks_nothing_else(read: Callable[[Edit], Manifest]) -> None:
    assert faults_of(read, dict.clear) == ["format is missing, expected int", "task is missing, expected str"]


def test_members_of_a_missing_object_are_not_missing(read: Callable[[Edit], Manifest]) -> None:
    assert faults_of(read, lambda raw: raw.pop("tokens")) == ["tokens is not an object"]


def test_a_shortlist_needs_all_graphs(read: Callable[[Edit], Manifest]) -> None:
    def edit(raw: dict[str, Any]) -> None:
        raw["precisions"]["int8"] |= {"shortlist": "shortlist.npz", "projection": "projection.npz"}

    assert set(faults_of(read, edit)) == {
        "files lists no 'projection.npz'",
        "files lists no 'shortlist.npz'",
        "precisions.int8 has a part of a shortlist, but no short_step, short_search",
    }


def test_a_manifest_frames_the_texts_of_each_language(read: Callable[[Edit], Manifest]) -> None:
    def edit(raw: dict[str, Any]) -> None:
        raw["tokens"] = {"pad": 0, "start": 2, "end": 2}  # as in BART
        raw["source_languages"], raw["target_languages"] = ["eng_Latn", "und"], ["fra_Latn", "und"]
        raw["frames"] = {
            "sources": {"eng_Latn": {"before": [9], "after": [7, 8]}},
            "targets": {"fra_Latn": {"before": [5], "forced": [6]}, "und": {"text": "summarize: "}},
        }

    manifest = read(edit)
    assert isinstance(manifest, TranslationManifest)
    assert manifest.frames.of("eng_Latn", "fra_Latn") == Framing("", (5, 9), (7, 8), (6,))
    assert manifest.frames.of("und", "und") == Framing("summarize: ")
    assert (manifest.tokens.start, manifest.tokens.end) == (2, 2)


def test_rules_of_transformers_are_read(read: Callable[[Edit], Manifest]) -> None:
    rules = {
        "rules": "transformers",
        "early_stopping": "never",
        "forced_end": True,
        "suppressed_tokens": [[0], [5, 6]],
        "length_penalty": 2,
    }
    manifest = read(lambda raw: raw["generation"].update(rules))
    assert isinstance(manifest, TranslationManifest)
    expected = {**rules, "suppressed_tokens": ((0,), (5, 6)), "length_penalty": 2.0}
    assert {name: getattr(manifest.generation, name) for name in rules} == expected


def test_every_fault_of_frames_and_rules_is_listed_at_once(read: Callable[[Edit], Manifest]) -> None:
    def edit(raw: dict[str, Any]) -> None:
        raw["tokens"]["pad"] = -1
        raw["splits"] = "no"
        raw["target_tokenizer"] = "target.json"
        raw["frames"] = {
            "sources": {"en": {"before": list(range(62)), "after": [True]}, "fr": {}},
            "targets": {"de": {"before": [-1], "text": 3, "forced": [2]}, "nl": {"forced": "x"}, "en": 1},
        }
        raw["generation"] = {
            "max_length": 1,
            "rules": "fairseq",
            "early_stopping": True,
            "forced_end": 1,
            "suppressed_tokens": [[1], [], [-1, 2]],
        }

    assert faults_of(read, edit) == [
        "tokens.pad is -1, expected at least 0",
        "generation.rules is 'fairseq', expected one of ctranslate2, transformers",
        "generation.early_stopping is True, expected one of heuristic, full, never",
        "generation.forced_end is 1, expected bool",
        "generation.suppressed_tokens[1] is [], expected a list of ids, at least one",
        "generation.suppressed_tokens[2] is [-1, 2], expected a list of ids, at least one",
        "generation.early_stopping is not among the rules of ctranslate2",
        "frames.sources.en.after is [True], expected a list of ids",
        "frames.targets.en is not an object",
        "frames.targets.de.text is 3, expected str",
        "frames.targets.de.before is [-1], expected a list of ids",
        "frames.targets.nl.forced is 'x', expected a list of ids",
        "splits is 'no', expected bool",
        "files lists no 'target.json'",
        "frames.sources.fr: 'fr' is none of source_languages",
        "frames.targets.nl: 'nl' is none of target_languages",
        "frames.targets.en: 'en' is none of target_languages",
        "frames.targets.de.forced: 1 ids leave no room in generation.max_length 1",
        "frames.targets.de.forced: 2 is the end of the sentence",
    ]


def test_frames_must_leave_room_for_a_text(read: Callable[[Edit], Manifest]) -> None:
    def edit(around: int) -> Edit:
        frames = {"sources": {"en": {"before": [5] * around, "after": [6]}}, "targets": {"de": {"before": [7]}}}
        return lambda raw: raw.update(frames=frames)

    read(edit(60))
    assert faults_of(read, edit(61)) == ["frames: 63 ids around a source leave no room in limits.max_source_tokens 64"]


def test_contradictory_rules_are_rejected(read: Callable[[Edit], Manifest]) -> None:
    rules = {"rules": "transformers", "patience": 2.0, "suppressed_tokens": [[2], [2, 5]]}
    assert faults_of(read, lambda raw: raw["generation"].update(rules)) == [
        "generation.patience is not among the rules of transformers",
        "generation.suppressed_tokens: 2 is the end of the sentence",
    ]


@pytest.mark.parametrize("code", ["english!", "", "de--DE", "d", "__de__"])
def test_language_codes_are_checked(read: Callable[[Edit], Manifest], code: str) -> None:
    faults = faults_of(read, lambda raw: raw.update(source_languages=["en", code]))
    assert faults == [f"source_languages: {code!r} is not a language code"]


THIS = f"this release reads format {FORMAT}"
NEWER = f"format {FORMAT + 1} is too new, {THIS}: serve it with %s, or export it with this one"


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        *[({"format": FORMAT + 1, "provenance": one}, NEWER % "a later one") for one in ({"exporter": 7}, {}, [], None)],
        (
            {"format": FORMAT + 1, "provenance": {"exporter": "triptych 4.5.6"}},
            NEWER % "triptych 4.5.6, which wrote it, or a later one",
        ),
        *[({"format": number}, f"format {number} is too old, {THIS}: export it again") for number in (0, -1)],
    ],
)
def test_another_format_is_rejected_with_a_remedy(tmp_path: Path, raw: dict[str, Any], expected: str) -> None:
    (tmp_path / FILE_NAME).write_text(json.dumps(raw))
    with pytest.raises(BundleError) as error:
        read_manifest(tmp_path)
    assert error.value.faults == (expected,)


def test_an_unknown_task_is_the_only_fault(read: Callable[[Edit], Manifest]) -> None:
    faults = faults_of(read, lambda raw: raw.update(task="speech", decoder=None))
    assert faults == [
        "task 'speech' is not supported; this release serves: translation, text-generation, fill-mask, text-classification, "
        "token-classification, question-answering, text-embedding, image-classification, image-generation, "
        "unconditional-image-generation, tensors"
    ]


IMAGES, LATENTS = "image-generation", "unconditional-image-generation"
TEXTS, ASKED = "text-generation", {"task": "translation", "languages": {"en": "English", "de": "German"}}


@pytest.mark.parametrize(
    ("task", "changes", "fault"),
    [
        (IMAGES, {"task": "text-generation"}, "colours: are not for text-generation, but for image-generation; export"),
        (IMAGES, {"colours": None}, "colours is not an object"),
        (IMAGES, {"colours": {"file": "clusters.npy", "height": 2, "width": 3}}, "too small for the start and 6 pixels"),
        (
            IMAGES,
            {"colours": {"file": "clusters.npy", "height": 1, "width": 1, "interpolation": "cubic"}},
            "expected one of nearest",
        ),
        (IMAGES, {"tokens": {"pad": 0, "ends": [1], "start": 9}}, "tokens: image-generation needs start, and no ends"),
        (TEXTS, {**ASKED, "chat": None}, "chat is not an object"),
        (TEXTS, ASKED, "chat: missing, it asks the model to translate"),
        (TEXTS, {**ASKED, "languages": {"en": "English"}}, "languages: has no pair to translate between"),
        (TEXTS, {**ASKED, "languages": {"en": "English", "!": "?"}}, "languages: '!' is not a language code"),
        (TEXTS, {**ASKED, "languages": {"en": "English", "de": 7}}, "languages.de is 7"),
        (LATENTS, {"latents": 0}, "latents is 0"),
        (LATENTS, {"precisions": {"fp32": {"encode": "encode.fp32.onnx"}}}, "precisions.fp32.decode is missing"),
        (
            LATENTS,
            {"image": {"height": 0, "width": 3, "resize": "stretch", "interpolation": "bilinear"}},
            "image.height is 0, it must be",
        ),
    ],
)
def test_an_incomplete_manifest_is_rejected(tmp_path: Path, task: str, changes: Any, fault: str) -> None:
    raw = json.loads((MANIFESTS / f"1/{task}-least.json").read_text(encoding="utf-8"))
    (tmp_path / FILE_NAME).write_text(json.dumps({**raw, **changes}), encoding="utf-8")
    with pytest.raises(BundleError) as error:
        read_manifest(tmp_path)
    assert any(fault in one for one in error.value.faults), error.value.faults


CONTENTS = [(content, "cannot be read") for content in (b"{", b"", b"\xff\xfe", b"[" * 10, b"[" * 100_000)]
CONTENTS += [(content, r"bundle\.json: the file is not an object$") for content in (b"[]", b"null", b'"bundle"', b"1")]
CONTENTS += [(b'{"format": 1, "format": 2}', "cannot be read: 'format' occurs twice in one object")]
CONTENTS += [(b'{"files": {"%s": 1}}' % rb"\ud800", "cannot be read: .*surrogates not allowed")]


@pytest.mark.parametrize(("content", "fault"), CONTENTS, ids=lambda value: f"{value!s:.12}")
def test_a_file_that_is_not_a_json_object_is_a_fault(tmp_path: Path, content: bytes, fault: str) -> None:
    with pytest.raises(BundleError, match=r"not a bundle, bundle\.json is missing"):
        read_manifest(tmp_path)
    (tmp_path / FILE_NAME).write_bytes(content)
    with pytest.raises(BundleError, match=fault):
        read_manifest(tmp_path)


def test_a_manifest_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / FILE_NAME).open("wb") as file:
        file.truncate(3 * 2**30)  # takes no room
    with pytest.raises(BundleError, match=r"cannot be read: 3,221,225,472 bytes, the maximum is 67,108,864"):
        read_manifest(tmp_path)
    assert stamp_of(tmp_path).manifest == UNREADABLE
