"""A run folder: everything that one training leaves behind.

recipe.json               the options, the model's shape among them
tokenizer.json            the vocabulary
documents.npz             the tokenized text of a pre-training
metrics.jsonl             one line an epoch, one every 50 steps, one at the end
loss.png                  the same, drawn
checkpoints/epoch-0007/   weights after each epoch (a checkpoint folder)
state.pt                  all that a resumed training needs
model/                    the result: a checkpoint folder, averaged over the last epochs
"""

import json
import shutil
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from triptych_training.checkpoints.folder import WEIGHTS
from triptych_training.errors import CheckpointError, RecipeError
from triptych_training.loop.recipe import Recipe

# A resumed training may go on for longer, elsewhere, or report otherwise; anything else would make it another training.
# What an optimizer step is, accumulate x processes, must stay the same; the trainer sees to it.
CHANGEABLE = {
    *("epochs", "max_steps", "max_minutes", "pause_minutes", "average", "validate_every", "keep", "save_steps"),
    *("devices", "accumulate", "precision", "compile", "valid"),
}
ARCHITECTURES = ("transformer", "bert", "vit")


class RunFolder:
    """Paths and files of one run; nothing is written before `begin`.

    Args:
        root: the folder.
        recipe: the training's options.
        architecture: the model's, under which recipe.json has its shape.
        shape: a dataclass; its vocabulary's size is the tokenizer's affair, and left out.
        resume: go on with the training that the folder holds.

    Raises:
        RecipeError: the folder holds another training, or one to be resumed and `resume` is false.
    """

    def __init__(self, root: Path, recipe: Recipe, architecture: str, shape: Any, resume: bool) -> None:
        self.root = root
        self.options = root / "recipe.json"
        self.metrics = root / "metrics.jsonl"
        self.tokenizer = root / "tokenizer.json"
        self.documents = root / "documents.npz"
        self.plot = root / "loss.png"
        self.state = root / "state.pt"
        self.model = root / "model"
        if self.state.exists() and not resume:
            raise RecipeError(f"out: {root} holds a training already; pass --resume to go on with it, or name another folder")
        self.opened = time.monotonic()  # when this run began, seconds
        self._resume = resume
        self._settings = _settings(recipe, architecture, shape)
        if self.options.exists() and resume:
            _check_same(_read_settings(self.options), self._settings, architecture, root)

    def begin(self) -> None:
        """Write the options; remove what a training that is not resumed and never saved its state left behind."""
        self.root.mkdir(parents=True, exist_ok=True)
        if not self._resume:
            for path in (self.tokenizer, self.documents, self.metrics):
                path.unlink(missing_ok=True)
        _replace(self.options, json.dumps(self._settings, indent=2) + "\n")

    def epoch(self, number: int) -> Path:
        """The checkpoint folder of epoch `number`, counted from 1."""
        return self.root / "checkpoints" / f"epoch-{number:04d}"

    def saved(self) -> list[int]:
        """The epochs that have a whole checkpoint, ascending."""
        folders = (self.root / "checkpoints").glob(f"epoch-*/{WEIGHTS}")
        return sorted(int(path.parent.name.removeprefix("epoch-")) for path in folders)

    def prune(self, keep: int) -> None:
        """Remove all checkpoints but the newest `keep`; 0: none."""
        for number in self.saved()[:-keep] if keep else ():
            shutil.rmtree(self.epoch(number))

    def log(self, record: Mapping[str, Any]) -> None:
        """Append one line to metrics.jsonl."""
        with open(self.metrics, "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def note(self, what: str, count: int, limit: int) -> None:
        """Tell how many examples were left out because they are longer than `limit` tokens."""
        if count:
            self.log({"kind": "note", "step": 0, what: count, "longer_than_tokens": limit})

    def records(self) -> list[dict[str, Any]]:
        """All lines of metrics.jsonl."""
        if not self.metrics.exists():
            return []
        return [json.loads(line) for line in self.metrics.read_text(encoding="utf-8").splitlines()]

    def rewind(self, step: int) -> None:
        """Forget what metrics.jsonl tells of steps after `step`: they will be taken again; so will the final validation."""
        if not self.metrics.exists():
            return
        kept = []
        for line in self.metrics.read_text(encoding="utf-8").splitlines():
            try:
                record = json.loads(line)
            except ValueError:  # the line that a kill cut short
                continue
            if record["step"] <= step and record["kind"] != "final":
                kept.append(line + "\n")
        _replace(self.metrics, "".join(kept))

    def save_state(self, state: Mapping[str, Any]) -> None:
        """Replace state.pt in one move: a kill at any moment leaves the old or the new one whole."""
        partial = self.state.with_suffix(".partial")
        torch.save(dict(state), partial)
        partial.replace(self.state)

    def load_state(self) -> dict[str, Any] | None:
        """What `save_state` last wrote, or None in a new folder.

        Raises:
            CheckpointError: the file is damaged.
        """
        if not self.state.exists():
            return None
        try:
            state: dict[str, Any] = torch.load(self.state, map_location="cpu", weights_only=True)
        except Exception as error:  # pickle, zip and torch each raise their own
            raise CheckpointError(f"{self.state}: damaged ({error})") from error
        return state


def _settings(recipe: Recipe, architecture: str, shape: Any) -> dict[str, Any]:
    """The members of recipe.json."""
    described = {name: value for name, value in asdict(shape).items() if name != "vocabulary_size"}
    settings: dict[str, Any] = json.loads(json.dumps({**asdict(recipe), architecture: described}))
    return settings


def _read_settings(path: Path) -> dict[str, Any]:
    try:
        settings: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: damaged ({error})") from error
    return settings


def _check_same(before: Mapping[str, Any], now: Mapping[str, Any], architecture: str, root: Path) -> None:
    """Compare what both name: a release may have added options since."""
    # The first release trained nothing else, and did not write the shape down.
    if architecture != next((name for name in ARCHITECTURES if name in before), "transformer"):
        raise RecipeError(f"resume: {root} holds the training of another model, not of a {architecture}")
    before = {**before, **before.get(architecture, {})}
    changed = [
        f"{name} was {before[name]!r}, is {value!r}"
        for name, value in {**now, **now[architecture]}.items()
        if name in before and name not in {*CHANGEABLE, architecture} and before[name] != value
    ]
    if changed:
        raise RecipeError(f"resume: {root} was started otherwise: {'; '.join(changed)}")


def _replace(path: Path, text: str) -> None:
    """Write in one move: another process, or a kill, sees the old file or the new one."""
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)
