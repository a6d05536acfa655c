"""Run folder: the files of one training.

recipe.json               the options, including the model's shape; the run's id and the digests of its data
tokenizer.json            the vocabulary
documents.npz, pairs/     tokenized text (pre-training, translation)
metrics.jsonl             one line per epoch, one every 50 steps, one at the end
loss.png                  plot of metrics.jsonl
checkpoints/epoch-0007/   weights after each epoch (a checkpoint folder)
state.pt                  everything that resuming needs
model/                    the result: a checkpoint folder, averaged over the last epochs

Checkpoints and state name the run that they belong to.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import asdict
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch
from lightning_fabric import Fabric
from tokenizers import Tokenizer

from triptych_training.checkpoints.folder import CONFIG, RESULT, WEIGHTS, check_initial
from triptych_training.data.corpus import digest
from triptych_training.data.documents import Documents, encode_documents, load_documents, save_documents
from triptych_training.data.files import replace_text, replacing
from triptych_training.data.languages import undirected_files
from triptych_training.data.tokenizer import load_tokenizer, save_tokenizer
from triptych_training.errors import CheckpointError, RecipeError
from triptych_training.loop.recipe import Recipe

# Options that may change on resuming: they concern how long, where and with which reports a training runs. The trainer checks
# that accumulate x processes, the size of an optimizer step, stays the same.
CHANGEABLE = {
    *("epochs", "max_steps", "max_minutes", "pause_minutes", "average", "validate_every", "keep", "save_steps"),
    *("devices", "accumulate", "precision", "compile", "valid"),
}

IDENTITY = {"run", "data"}  # members of recipe.json beside the options

_locked: set[Path] = set()  # run folders that this process keeps open and locked until its end


class RunFolder:
    """Paths and files of a run; nothing is written before `begin`.

    `architecture` is recipe.json's member for `shape`, a dataclass whose vocabulary size is ignored.

    Raises:
        RecipeError: the folder contains another training, one with other training files, or one that could be resumed and
            `resume` is false; or its name is not UTF-8.
        CheckpointError: recipe.json is missing beside a state, or the checkpoint to start from is of another kind of model.
        CorpusError: a training file cannot be read.
    """

    def __init__(self, root: Path, recipe: Recipe, architecture: str, shape: Any, resume: bool) -> None:
        self.root = root
        self.options = root / "recipe.json"
        self.metrics = root / "metrics.jsonl"
        self.tokenizer = root / "tokenizer.json"
        self.documents = root / "documents.npz"
        self.pairs = root / "pairs"
        self.plot = root / "loss.png"
        self.state = root / "state.pt"
        self.model = root / RESULT
        if str(root).encode(errors="replace") != os.fsencode(root):
            raise RecipeError(f"out: {root} is not UTF-8, so weights could not be read there; name another folder")
        if self.state.exists() and not resume:
            raise RecipeError(f"out: {root} contains a training; continue it with --resume, or use another folder")
        if recipe.initial and not self.state.exists():
            check_initial(Path(recipe.initial), architecture, recipe.kind)
        self.opened = recipe.now()  # start of this run, seconds
        self._settings = _settings(recipe, architecture, shape)
        self._files = recipe.files
        self._before = _read_settings(self.options) if self.options.exists() and resume else None
        if resume and self.state.exists() and self._before is None:
            raise CheckpointError(f"{self.options}: missing; {self.state.name} cannot be resumed without it")
        if self._before is not None:
            try:
                if renamed := self._before.get("train") != self._settings["train"]:
                    renamed = self._contents(self._before) == self._contents()
                _check_same(self._before, self._settings, architecture, root, {"train"} if renamed else set())
                if not renamed:
                    self._check_data(self._before["data"])
            except RecipeError:
                if self.state.exists():
                    raise
                self._before = None  # nothing was trained yet: begin anew

    @property
    def run(self) -> str:
        """Id of the run, once it has begun."""
        return str(_read_settings(self.options)["run"])

    def digest(self, *others: object) -> str:
        """Identify what is made of the training files, the tokenizer and `others`."""
        made_of = [list(_read_settings(self.options)["data"].values()), self.tokenizer.read_text(encoding="utf-8"), others]
        return sha256(json.dumps(made_of).encode()).hexdigest()

    def begin(self) -> None:
        """Write options, id and data digests; unless resuming, remove files of an earlier training that never saved its state.

        Raises:
            CorpusError: a training file cannot be read.
            RecipeError: another process trains in this folder.
        """
        run = uuid4().hex[:12] if self._before is None else self._before["run"]
        self.root.mkdir(parents=True, exist_ok=True)
        _lock(self.root.resolve())
        if self._before is None:
            for path in (self.tokenizer, self.documents, self.metrics):
                path.unlink(missing_ok=True)
            shutil.rmtree(self.pairs, ignore_errors=True)
        replace_text(self.options, json.dumps({**self._settings, "run": run, "data": self._digests}, indent=2) + "\n")

    @cached_property
    def _digests(self) -> dict[str, str]:
        return {path: digest(path) for path in self._files}

    def _contents(self, before: Mapping[str, Any] | None = None) -> list[str]:
        """List the training files, of an earlier run or this one, as languages and digests: files may have been moved."""
        settings, digests = (self._settings, self._digests) if before is None else (before, before["data"])
        paths = ((given, given if given in digests else undirected_files([given])[0]) for given in settings.get("train", ()))
        return [given.removesuffix(path) + digests.get(path, "") for given, path in paths]

    def _check_data(self, known: Mapping[str, str]) -> None:
        if changed := [path for path, value in self._digests.items() if known.get(path) != value]:
            raise RecipeError(
                f"resume: {', '.join(changed)}: changed since the training in {self.root} began; restore the old contents, "
                f"or start a new training from its weights: --initial {self.model} and another --out"
            )

    def prepare_tokenizer(self, fabric: Fabric, make: Callable[[], Tokenizer], known: str = "") -> Tokenizer:
        """Begin the run; the first process saves the tokenizer if there is none, and all processes load it.

        It is that of the file `known`, or else made by `make`.
        """
        if fabric.is_global_zero:
            made = None
            if self._before is None or not self.tokenizer.exists():
                made = load_tokenizer(Path(known)) if known else make()
            self.begin()
            if made is not None:
                save_tokenizer(made, self.tokenizer)
        fabric.barrier()
        return load_tokenizer(self.tokenizer)

    def prepare_documents(self, fabric: Fabric, tokenizer: Tokenizer, read: Callable[[], Iterator[list[str]]]) -> Documents:
        """Tokenize the training text in the first process, once; the other processes and resumed runs load its file."""
        if fabric.is_global_zero and not self.documents.exists():
            save_documents(encode_documents(tokenizer, read()), self.documents)
        fabric.barrier()
        return load_documents(self.documents)

    def epoch(self, number: int) -> Path:
        """Return the checkpoint folder of epoch `number`, counted from 1."""
        return self.root / "checkpoints" / f"epoch-{number:04d}"

    def saved(self, last: int) -> list[int]:
        """List the epochs up to `last` with a complete checkpoint of this run, ascending."""
        run, folders = self.run, (self.epoch(number) for number in range(1, last + 1))
        return [
            number
            for number, folder in enumerate(folders, start=1)
            if (folder / WEIGHTS).exists() and _read_settings(folder / CONFIG, {"provenance"})["provenance"].get("run") == run
        ]

    def prune(self, last: int, keep: int) -> None:
        """Remove all checkpoints of this run up to epoch `last` except the newest `keep`; 0: keep all."""
        for number in self.saved(last)[:-keep] if keep else ():
            (self.epoch(number) / WEIGHTS).unlink()  # first: a folder with weights is complete, also after a kill
            shutil.rmtree(self.epoch(number))

    def log(self, record: Mapping[str, Any]) -> None:
        """Append a line to metrics.jsonl; raises CheckpointError if it cannot be written."""
        try:
            with open(self.metrics, "a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
        except OSError as error:
            raise CheckpointError(f"{self.metrics}: cannot be written ({error.strerror})") from error

    def note(self, what: str, count: int, limit: int) -> None:
        """Log how many examples were left out because they have more than `limit` tokens, instead of an earlier run's count."""
        notes = [{"kind": "note", "step": 0, what: count, "longer_than_tokens": limit}] if count else []
        before = self.records()
        if [record for record in before if what in record] != notes:
            self._rewrite([*notes, *(record for record in before if what not in record)])

    def left_out(self) -> list[str]:
        """Describe the counts that `note` logged."""
        notes = (record for record in self.records() if record["kind"] == "note" and "longer_than_tokens" in record)
        return [
            f"{name.replace('_', ' ')}: {count:,}, longer than {note['longer_than_tokens']:,} tokens"
            for note in notes
            for name, count in note.items()
            if name.endswith("left_out")
        ]

    def records(self) -> list[dict[str, Any]]:
        """Read all lines of metrics.jsonl; skip a line that a kill cut short, and one of another program."""
        records = []
        for line in self.metrics.read_text(encoding="utf-8").splitlines() if self.metrics.exists() else ():
            with suppress(ValueError):
                record = json.loads(line)
                if isinstance(record, dict) and {"kind", "step"} <= record.keys():
                    records.append(record)
        return records

    def rewind(self, step: int, epoch: int) -> None:
        """Remove the records of steps after `step`, epochs after `epoch` and the final validation: all will be repeated."""
        if self.metrics.exists():
            kept = (r for r in self.records() if r["step"] <= step and r["kind"] != "final")
            self._rewrite([r for r in kept if r["kind"] != "epoch" or r["epoch"] <= epoch])

    def _rewrite(self, records: Sequence[Mapping[str, Any]]) -> None:
        replace_text(self.metrics, "".join(json.dumps(record) + "\n" for record in records))

    def save_state(self, state: Mapping[str, Any]) -> None:
        """Replace state.pt in one move: a kill at any moment leaves the old or the new file complete."""
        with replacing(self.state) as partial:
            torch.save({**state, "run": self.run}, partial)

    def load_state(self) -> dict[str, Any] | None:
        """Read the last saved state; None in a new folder.

        Raises:
            CheckpointError: the file is damaged, or of another run.
        """
        if not self.state.exists():
            return None
        try:
            state: dict[str, Any] = torch.load(self.state, map_location="cpu", weights_only=True)
        except Exception as error:  # pickle, zipfile and torch raise many types
            raise CheckpointError(f"{self.state}: damaged ({error})") from error
        if not isinstance(state, dict) or "run" not in state:
            raise CheckpointError(f"{self.state}: damaged (not a dictionary with run)")
        if state["run"] != self.run:
            raise CheckpointError(
                f"{self.state}: of run {state['run']!r}, {self.options.name} of {self.run!r}; restore this run's state"
            )
        return state


def _lock(root: Path) -> None:
    """Lock a run folder until this process ends; raises RecipeError if another process trains there."""
    if root in _locked:
        return
    folder = os.open(root, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(folder)
        raise RecipeError(f"out: another process trains in {root}; wait until it ends, or use another folder") from None
    except OSError:  # a file system without locks of folders, such as NFS
        pass
    _locked.add(root)


def _settings(recipe: Recipe, architecture: str, shape: Any) -> dict[str, Any]:
    """Make the members of recipe.json."""
    described = {name: value for name, value in asdict(shape).items() if name != "vocabulary_size"}
    settings: dict[str, Any] = json.loads(json.dumps({**asdict(recipe), architecture: described}))
    return settings


def _read_settings(path: Path, needed: Set[str] = IDENTITY) -> dict[str, Any]:
    try:
        settings: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: damaged ({error})") from error
    if not isinstance(settings, dict) or needed - settings.keys():
        raise CheckpointError(f"{path}: damaged (not a JSON object with {', '.join(sorted(needed))})")
    return settings


def _check_same(
    before: Mapping[str, Any], now: Mapping[str, Any], architecture: str, root: Path, others: Set[str] = frozenset()
) -> None:
    """Compare the options that both have, except `others`; a later release may have added some."""
    if architecture not in before:
        raise RecipeError(f"resume: {root} contains the training of another model, not of a {architecture}")
    before = {**before, **before[architecture]}
    held_out = "hold_out" in now and bool(before.get("valid")) != bool(now["valid"])  # images would change sides
    free = {*CHANGEABLE - ({"valid"} if held_out else set()), *others, architecture}
    changed = [
        f"{name} was {before[name]!r}, is {value!r}"
        for name, value in {**now, **now[architecture]}.items()
        if name in before and name not in free and before[name] != value
    ]
    if changed:
        raise RecipeError(f"resume: {root} was started with other options: {'; '.join(changed)}")
