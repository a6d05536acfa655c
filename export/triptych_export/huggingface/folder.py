"""Hugging Face checkpoint folders, local or from the hub."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import cached_property
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, snapshot_download
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled
from huggingface_hub.errors import HTTPError as TransportError  # type: ignore[attr-defined]

from triptych_export.errors import SourceError

CONFIG = "config.json"
TIMM_WRAPPER = "timm_wrapper"
# Files to download. Safetensors are preferred; a model's pickles are fetched only if there are none.
WANTED = ("*.json", "*.jinja", "*.txt", "*.model", "*.spm", "*.safetensors", "1_Pooling/*", "*_Dense/pytorch_model.bin")
ADAPTER = "adapter_config.json"
# Where a checkpoint may be in a folder that is none itself: Trainer's folders, and the hub's cache.
PLACES = [f"{place}/{name}" for place in ("*", "snapshots/*") for name in (CONFIG, ADAPTER)]
REMEDIES = {  # of folders without weights, by a file
    ADAPTER: "it holds a PEFT adapter: merge it into its base model (merge_and_unload), and save that with its tokenizer",
    "tf_model.h5": "load it in transformers 4 with from_tf=True, and save it",
    "flax_model.msgpack": "load it in transformers 4 with from_flax=True, and save it",
    "zero_to_fp32.py": "DeepSpeed's weights are put together by this script",
    "pytorch_model_fsdp_0": "FSDP's shards are put together by accelerate merge-weights",
}
PICKLED = (".ckpt", ".pt", ".pth")  # suffixes of what torch.save writes, such as Lightning's checkpoints
STATES = ("optimizer", "scheduler", "scaler", "rng_state")  # of the Trainer, beside a model's weights
PICKLED_REMEDY = "load it where it was made, and save the model, without a wrapper, and its tokenizer with save_pretrained"
ROUTER = "router_config.json"  # of a folder of sentence-transformers
ROUTER_REMEDY = (
    "one model for queries and another for documents is not supported; save each route as a model: "
    'SentenceTransformer(modules=[*model[0].sub_modules["query"], *list(model)[1:]])'
)
VARIANTS = ("model.*.safetensors", "model.*.safetensors.index.json")  # save_pretrained(variant="fp16")
FILE_REMEDIES = {  # by suffix
    **dict.fromkeys(PICKLED, PICKLED_REMEDY),
    ".argosmodel": "it is a package of Argos Translate: unpack it with unzip, and name its folder",
    ".ort": "it is in ONNX Runtime's own format, which cannot be checked: name the .onnx file of which it was made",
}
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
NO_ANSWER = (TransportError, ConnectionError, TimeoutError, OfflineModeIsEnabled, LocalEntryNotFoundError)
PICKLES = ("pytorch_model*.bin",)
# Fetched only if there are no weights.
OTHERS = ("model.onnx*", "onnx/model.onnx*", "onnx/model_quantized.onnx*", "model.bin", "adapter_model.bin")
GGUF = ".gguf"  # suffix of files that hold a whole model
LFS = b"version https://git-lfs.github.com/"
Neutral = Mapping[str, tuple[object, ...]]  # by name: the values that change no result; none: all of them


def neutral(names: str = "", **values: tuple[object, ...]) -> Neutral:
    """Make a table of neutral members: `names`, with any value, and those with the given values only."""
    return dict.fromkeys(names.split(), ()) | values


class Members(Mapping[str, Any]):
    """Members of a JSON object that know which of them were read by name; `whole` reads none."""

    def __init__(self, whole: Mapping[str, Any]) -> None:
        self.whole = whole
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return self.whole[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.whole)

    def __len__(self) -> int:
        return len(self.whole)

    @property
    def unread(self) -> dict[str, Any]:
        """Members that were not read."""
        return {name: value for name, value in self.whole.items() if name not in self.read}


@dataclass(frozen=True)
class Folder:
    """Files of one checkpoint."""

    path: Path
    # For the manifest: which commit of the hub it is, and what was ignored.
    origin: Mapping[str, str] = field(default_factory=dict)
    ignored: Sequence[str] = ()  # unsupported members of its JSON files that the user accepts
    inner: str = ""  # member of config.json whose members `config` has
    # Other files than config.json whose members have to be known: name, members, and those that are known.
    closed: list[tuple[str, Mapping[str, Any], Neutral]] = field(default_factory=list)

    @cached_property
    def config(self) -> Members:
        """Members of config.json; raises SourceError if it is missing, or not a JSON object."""
        config = self.read_json(CONFIG)
        if config is None:
            raise SourceError(f"{self.path}: not a checkpoint folder, missing {CONFIG}{self.elsewhere()}")
        members = config.get(self.inner) or {} if self.inner else config
        if not isinstance(members, dict):
            raise self.config_error(f"{self.inner}: {members!r:.40}, expected an object")
        return Members(members)

    @property
    def model_type(self) -> str:
        """`model_type` of config.json, or that of transformers' wrapper for folders of timm; empty if absent."""
        return str(self.config.get("model_type", TIMM_WRAPPER if "pretrained_cfg" in self.config.whole else ""))

    @property
    def architecture(self) -> str:
        """Saved class, such as "BertForMaskedLM"; empty if config.json names none."""
        names = self.config.get("architectures") or [""]
        return str(names[0] if isinstance(names, list) else names)

    @property
    def architecture_fault(self) -> str:
        """Say that the saved class is not supported, or missing, for an error."""
        named = self.architecture
        return f"{named} is not supported" if named else "architectures: missing, name the model's class"

    def elsewhere(self) -> str:
        """Say what a folder without a model's config.json is instead, for an error."""
        if self.has(ADAPTER):
            return f"; {REMEDIES[ADAPTER]}"
        if self.has(ROUTER):
            return f", but {ROUTER}: {ROUTER_REMEDY}"
        if self.has("modules.json"):
            return ", as sentence-transformers wrote it before version 2.0: load and save it with a newer version"
        places = sorted({place.parent for pattern in PLACES for place in self.path.glob(pattern)})
        return f"; there is a checkpoint in: {', '.join(map(str, places))}" if places else file_remedy(self.path)

    def config_error(self, problem: str) -> SourceError:
        """Make an error about a member of config.json."""
        return SourceError(f"{self.path / CONFIG}: {problem}")

    def has(self, name: str) -> bool:
        """Tell whether the folder has a file."""
        return (self.path / name).is_file()

    def read_json(self, name: str) -> dict[str, Any] | None:
        """Read a JSON file's members; None if the file is absent.

        Raises:
            SourceError: the file is not a JSON object.
        """
        if not self.has(name):
            return None
        try:
            members = json.loads((self.path / name).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            remedy = pointer_remedy(self.path / name)
            raise SourceError(f"{self.path / name}: cannot be read as JSON: {error}{remedy}") from error
        if not isinstance(members, dict):
            raise SourceError(f"{self.path / name}: not a JSON object")
        return members

    def members(self, name: str) -> dict[str, Any]:
        """Read a JSON file like `read_json`; no members if the file is absent."""
        return self.read_json(name) or {}

    def read_closed(self, name: str, known: Neutral) -> dict[str, Any] | None:
        """Read a JSON file like `read_json`; `check_members` rejects members that are not among `known`."""
        members = self.read_json(name)
        self.closed.append((name, members or {}, known))
        return members


def open_folder(name: str, revision: str = "") -> Folder:
    """Open a local folder or, if there is none and the name has the form `owner/model`, download that model from the hub.

    A path whose first part is a local folder is treated as a typing error and not sent to the hub. `revision` is a commit, tag
    or branch of the hub.

    Raises:
        SourceError: there is neither a folder nor a model of that name.
    """
    path = Path(name)
    if path.is_dir():
        if revision:
            raise SourceError(f"revision: {revision!r} applies to models on the Hugging Face hub, {path} is a local folder")
        return Folder(path)
    if path.exists() or not HUB_NAME.fullmatch(name) or path.parent.exists():
        remedy = FILE_REMEDIES.get(path.suffix, f"it is a file: name its folder, {path.parent}")
        known = "not a folder, nor a model's name on the Hugging Face hub like Helsinki-NLP/opus-mt-en-de"
        raise SourceError(f"{name}: {known}; {remedy}" if path.is_file() else f"{name}: {known}")
    return _download(name, revision)


def _download(name: str, revision: str) -> Folder:
    """Download the needed files at one commit. Only if the hub does not answer, a copy in the local cache is used."""
    try:
        try:
            info = HfApi().model_info(name, revision=revision or None)
            files = [file.rfilename for file in info.siblings or ()]
            usable = any(file.endswith(".safetensors") and "/" not in file for file in files)  # in folders are other models
            pickled, others = (any(fnmatch(file, each) for file in files for each in kind) for kind in (PICKLES, OTHERS))
            if not (usable or pickled or others) and (found := [file for file in files if file.endswith(GGUF)]):
                remedy = f"fetch one, and name it: hf download {name} {found[0]} --local-dir ."
                raise SourceError(f"{name}: holds GGUF files, each of them a model; {remedy}")
            patterns = [*WANTED, *(() if usable else PICKLES if pickled else OTHERS)]
            path = snapshot_download(name, revision=info.sha, allow_patterns=patterns)
            return Folder(Path(path), {"checkpoint_revision": f"{name}@{info.sha}"})
        except NO_ANSWER as error:
            if isinstance(error, HfHubHTTPError):  # an answer, such as 401
                raise
            patterns = [*WANTED, *PICKLES, *OTHERS]
            cached = Path(snapshot_download(name, revision=revision or None, allow_patterns=patterns, local_files_only=True))
            source = f"cached copy, since the hub did not answer: {one_line(error)}"
            return Folder(cached, {"checkpoint_revision": f"{name}@{cached.name}", "checkpoint_source": source})
    except SourceError:
        raise
    except Exception as error:  # whatever the hub's client raises
        cause = error.__context__ if isinstance(error.__context__, NO_ANSWER) else error
        raise SourceError(f"{name}: not a folder, and not available from the Hugging Face hub: {one_line(cause)}") from error


def file_remedy(folder: Path) -> str:
    """Say what to do about files of a folder without weights that can be read, for an error; empty if there are none."""
    if known := next((name for name in REMEDIES if (folder / name).exists()), ""):
        return f"; {known}: {REMEDIES[known]}"
    if variants := sorted(path.name for pattern in VARIANTS for path in folder.glob(pattern)):
        return f"; {variants[0]}: load the model with this variant, and save it without"
    for kind, places in {"serve an ONNX": ("*.onnx", "onnx/*.onnx"), "read a GGUF": (f"*{GGUF}",)}.items():
        if names := sorted(str(path.relative_to(folder)) for place in places for path in folder.glob(place)):
            return f"; to {kind} file, name it instead of the folder: {', '.join(names)}"
    pickled = sorted(path for path in folder.glob("*") if path.suffix in PICKLED and path.stem not in STATES)
    return f"; {pickled[0].name}: {PICKLED_REMEDY}" if pickled else ""


def pointer_remedy(path: Path) -> str:
    """Say what to do about a file that cannot be read, if it is a pointer of git-lfs; otherwise nothing."""
    with suppress(OSError), path.open("rb") as file:
        if file.read(len(LFS)) == LFS:
            return "; it is only a pointer of git-lfs, fetch the file: git lfs pull"
    return ""


def one_line(error: BaseException) -> str:
    """Return an error's message in one line, or its class if it has none."""
    return " ".join(str(error).split()) or type(error).__name__
