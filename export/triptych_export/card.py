"""Model cards: MODEL_CARD.md with architecture, training, quality and parity."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from triptych_serving.bundle.manifest import Manifest, runs_on


@dataclass(frozen=True)
class Description:
    """Description of a model by its family: one sentence, and rows about its shape."""

    sentence: str
    rows: Mapping[str, object] = field(default_factory=dict)


def write_card(name: str, description: Description, manifest: Manifest, checkpoint: Mapping[str, Any], notes: str) -> str:
    """Compose the card. `notes` is the author's Markdown about data, licence and intended use."""
    facts = {key: value for key, value in checkpoint.items() if not isinstance(value, dict)}
    recipe = {key: value for key, value in checkpoint.get("recipe", {}).items() if key not in ("train", "valid", "devices")}
    sections = [
        f"# {name}",
        description.sentence,
        notes.strip(),
        "## Model\n\n" + _table(_model(description, manifest)),
        "## Training\n\n" + _table({**facts, **recipe, **facts}),  # completed epochs, not the limit
        "## Quality\n\n" + _table(_flatten(manifest.metrics)),
        "## Parity with PyTorch\n\n" + _table(_flatten(manifest.parity)),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _model(description: Description, manifest: Manifest) -> dict[str, object]:
    for_cuda = [precision for precision in manifest.precisions if "cuda" in runs_on(precision)]
    return {
        "architecture": manifest.family,
        **description.rows,
        "precisions": ", ".join(manifest.precisions),
        **({"for GPUs (CUDA)": ", ".join(for_cuda)} if for_cuda else {}),
        **{key: value for key, value in manifest.provenance.items() if not isinstance(value, dict)},
    }


def _flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, object]:
    flat: dict[str, object] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat.update(_flatten(value, f"{prefix}{key}: "))
        else:
            flat[prefix + key] = value
    return flat


def _table(rows: Mapping[str, object]) -> str:
    if not rows:
        return "Not recorded."
    cells = {key.replace("_", " "): " ".join(str(value).split()).replace("|", "\\|") for key, value in rows.items()}
    lines = [f"| {name} | {cell} |" for name, cell in cells.items()]
    return "\n".join(["| | |", "|---|---|", *lines])
