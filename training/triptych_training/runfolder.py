"""A run folder: everything that one training leaves behind.

recipe.json               the options
tokenizer.json            the vocabulary
metrics.jsonl             one line an epoch and one every few seconds of training
loss.png                  the same, drawn
checkpoints/epoch-0007/   weights after each epoch (a checkpoint folder)
state.pt                  all that a resumed training needs
model/                    the result: a checkpoint folder, averaged over the last epochs
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from triptych_training.errors import CheckpointError, RecipeError
from triptych_training.recipe import Recipe

# A resumed training may go on for longer, or report elsewhere; anything else would make it another training.
CHANGEABLE = {"epochs", "average", "save_steps", "devices", "precision", "valid"}


class RunFolder:
    """Paths and files of one run.

    Raises:
        RecipeError: the folder holds another training, or one to be resumed and `resume` is false.
    """

    def __init__(self, root: Path, recipe: Recipe, resume: bool) -> None:
        self.root = root
        self.metrics = root / "metrics.jsonl"
        self.tokenizer = root / "tokenizer.json"
        self.plot = root / "loss.png"
        self.state = root / "state.pt"
        self.model = root / "model"
        if self.state.exists() and not resume:
            raise RecipeError(f"out: {root} holds a training already; pass --resume to go on with it, or name another folder")
        if (root / "recipe.json").exists() and resume:
            _check_same(json.loads((root / "recipe.json").read_text(encoding="utf-8")), recipe, root)
        root.mkdir(parents=True, exist_ok=True)
        (root / "recipe.json").write_text(json.dumps(asdict(recipe), indent=2) + "\n", encoding="utf-8")

    def epoch(self, number: int) -> Path:
        """The checkpoint folder of epoch `number`, counted from 1."""
        return self.root / "checkpoints" / f"epoch-{number:04d}"

    def log(self, record: Mapping[str, Any]) -> None:
        """Append one line to metrics.jsonl."""
        with open(self.metrics, "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def records(self) -> list[dict[str, Any]]:
        """All lines of metrics.jsonl."""
        if not self.metrics.exists():
            return []
        return [json.loads(line) for line in self.metrics.read_text(encoding="utf-8").splitlines()]

    def save_state(self, state: Mapping[str, Any]) -> None:
        """Replace state.pt in one move: a kill at any moment leaves the old or the new one whole."""
        partial = self.state.with_suffix(".partial")
        torch.save(dict(state), partial)
        os.replace(partial, self.state)

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


def _check_same(before: dict[str, Any], recipe: Recipe, root: Path) -> None:
    now = json.loads(json.dumps(asdict(recipe)))
    changed = [f"{k} was {before.get(k)!r}, is {now[k]!r}" for k in now if k not in CHANGEABLE and before.get(k) != now[k]]
    if changed:
        raise RecipeError(f"resume: {root} was started otherwise: {'; '.join(changed)}")
