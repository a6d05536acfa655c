"""Readers that several decoder-only families share: rotary positions, windows, and the order of attention's weights."""

from collections.abc import Callable, Mapping, Sequence
from math import isfinite, log
from typing import Any

import torch
from torch import Tensor

from triptych_export.huggingface.checkpoint.config import COMMON, activation, flag, integer
from triptych_export.huggingface.checkpoint.mapping import Change
from triptych_export.huggingface.folder import Folder, neutral
from triptych_training.models.gpt import ROTARY, GptConfig
from triptych_training.models.rotary import RotaryScaling

Rows = Callable[[int, int, int], tuple[Tensor, Tensor, Tensor]]  # by heads, heads of keys and values, and their size
LAYERS = "layers.{i}"
HUNYUAN = "hunyuan_v1_dense"
QUERY_KEY_VALUE = f"{LAYERS}.attention.query_key_value"
LOCAL, GLOBAL = "sliding_attention", "full_attention"
CONSTANTS = ("*.rotary_emb.inv_freq",)
DECODER = {**COMMON, **neutral(is_encoder_decoder=(False,))}
# Members of rope_parameters (formerly rope_scaling) by kind: their name in RotaryScaling.
SCALINGS: Mapping[str, Mapping[str, str]] = {
    "default": {},
    "linear": {"factor": "factor"},
    "llama3": {
        "factor": "factor",
        "low_freq_factor": "low",
        "high_freq_factor": "high",
        "original_max_position_embeddings": "original",
    },
    "longrope": {"short_factor": "divisors"},
    "ntk": {"alpha": "factor"},
    "yarn": {"factor": "factor", "original_max_position_embeddings": "original"},
}
PARTIAL = "partial_rotary_factor"
OLD_KINDS = {("phi3", "su"): "longrope", (HUNYUAN, "dynamic"): "ntk"}  # by model_type and name
# Members that a kind may have besides.
OPTIONAL: Mapping[str, Sequence[str]] = {
    "longrope": ("long_factor", "factor", "attention_factor", "original_max_position_embeddings"),
    "ntk": ("factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"),  # which change nothing
    "yarn": ("attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"),
}
LARGEST, MOST_LAYERS = 2**24, 1_000
BIASES = ("bias", "input_bias", "output_bias")  # of GptConfig, which many families have all or none


def positive(folder: Folder, name: str, default: int | None = None, most: int = LARGEST, least: int = 1) -> int:
    """Read an integer from `least` to `most`; raises ValueError, which names member, value and limit, if it is not."""
    if not least <= (value := integer(folder, name, default)) <= most:
        raise ValueError(f"{name}: {value} is {f'below {least}' if value < least else f'above {most:,}'}")
    return value


def positive_number(folder: Folder, name: str, default: float) -> float:
    """Read a number above 0; raises ValueError as `check_number` does."""
    value = folder.config.get(name)
    return check_number(name, default if value is None else value)


def check_number(name: str, value: object) -> float:
    """Return a number above 0; raises ValueError, which names member and value, if it is not."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0 or not isfinite(value):
        raise ValueError(f"{name}: {value!r:.60} is not a number above 0")
    return float(value)


def but_each(interval: int, layers: int) -> list[int]:
    """List the layers that have a window where each `interval`-th one has none."""
    return [layer for layer in range(layers) if (layer + 1) % interval]


def windows(folder: Folder, layers: int, default: Sequence[int], always: bool = False) -> dict[str, Any]:
    """Read the sliding window and the layers that have it: those that the file lists, else those of `default`.

    With `always`, it applies whatever `use_sliding_window` says.
    """
    window = positive(folder, "sliding_window", 0, least=0)  # Qwen's files have one that they do not use
    window = window if always or flag(folder, "use_sliding_window", False) else 0
    kinds = folder.config.get("layer_types")
    if kinds is None:
        kinds = [LOCAL if (always or window) and layer in default else GLOBAL for layer in range(layers)]
    known = isinstance(kinds, list) and len(kinds) == layers and all(kind in (GLOBAL, LOCAL) for kind in kinds)
    if not known or (LOCAL in kinds and not window):
        raise ValueError(f"layer_types: {kinds!r:.80} do not fit {layers} layers with a sliding_window of {window}")
    return {"window": window, "window_layers": [layer for layer, kind in enumerate(kinds) if kind == LOCAL]}


def llama_members(
    folder: Folder,
    default_theta: float = 10_000.0,
    layers: str = "",
    rotated: float | None = None,
    former: tuple[str, str] = ("rope_theta", PARTIAL),
    epsilon: float = 1e-6,
    function: str = "silu",
    head_dim: int | None = None,
) -> dict[str, Any]:
    """Read the members of GptConfig that Llama has.

    Args:
        folder: of the checkpoint.
        default_theta: base of the rotary frequencies.
        layers: kind of layers whose rotary positions are read; empty: all have the same.
        rotated: default share of a head that is rotated; None: the family rotates whole heads.
        former: names of base and share in older files.
        epsilon: default of RMS norms.
        function: default of the activation, in transformers' terms.
        head_dim: default of a head's size; None: the width divided by the number of heads.
    """
    heads, width = positive(folder, "num_attention_heads"), positive(folder, "hidden_size")
    head_dim = positive(folder, "head_dim", width // heads if head_dim is None else head_dim)
    theta, scaling = rotary(folder, default_theta, layers, former[0], rotated is not None)
    most = positive(folder, "max_position_embeddings")
    biased = flag(folder, "attention_bias", False)
    return {
        "model_dim": width,
        "heads": heads,
        "kv_heads": positive(folder, "num_key_value_heads", heads),
        "head_dim": head_dim,
        "rotary_dim": 0 if rotated is None else _rotary_dim(folder, head_dim, rotated, former[1]),
        "feedforward_dim": positive(folder, "intermediate_size"),
        "layers": positive(folder, "num_hidden_layers", most=MOST_LAYERS),
        # With more positions, the frequencies of all would change: "longrope" has two sets of them.
        "max_positions": min(most, scaling.original) if scaling and scaling.kind == "longrope" else most,
        "activation": activation(folder, "hidden_act", function),
        "norm_epsilon": positive_number(folder, "rms_norm_eps", epsilon),
        "theta": theta,
        "scaling": scaling,
        "bias": flag(folder, "mlp_bias", False),
        "input_bias": biased,
        "output_bias": biased,
    }


def rotary(
    folder: Folder, default: float, layers: str = "", base: str = "rope_theta", partial: bool = False
) -> tuple[float, RotaryScaling | None]:
    """Read the base of the rotary frequencies and their scaling; if kinds of layers have their own, those of `layers`.

    `partial`: the family may rotate a part of each head, which `_rotary_dim` reads.

    Raises:
        SourceError: the scaling is not supported, or its members are missing or unknown.
    """
    given: Any = rope_parameters(folder, layers) or (layers != LOCAL and folder.config.get("rope_scaling")) or {}
    if not isinstance(given, dict):
        raise folder.config_error(f"rope_parameters: {given!r:.60}, expected members by name")
    given = dict(given)
    old, kind = given.pop("type", "default"), given.pop("rope_type", None)
    kind = old if kind is None else kind
    kind = OLD_KINDS.get((folder.model_type, str(kind)), str(kind))
    theta = given.pop("rope_theta", None)
    theta = folder.config.get(base, default) if theta is None else theta
    if kind not in SCALINGS:
        raise folder.config_error(f"rope_type: {kind!r} is not supported; supported: {', '.join(SCALINGS)}")
    if partial or given.get(PARTIAL) == 1.0:
        given.pop(PARTIAL, None)
    known = {*SCALINGS[kind], *OPTIONAL.get(kind, ())}
    if unknown := sorted(name for name in given.keys() - known if given[name] is not None):
        raise folder.config_error(f"rope_parameters: {', '.join(unknown)}: not supported with rope_type {kind!r}")
    if missing := sorted(SCALINGS[kind].keys() - given.keys()):
        raise folder.config_error(f"rope_parameters: {', '.join(missing)}: missing for rope_type {kind!r}")
    members: dict[str, Any] = {ours: _scaling(theirs, given[theirs]) for theirs, ours in SCALINGS[kind].items()}
    if kind == "longrope":
        members |= _longrope(folder, given)
    if kind == "yarn":
        members |= _yarn(given)
    return check_number(base, theta), RotaryScaling(kind, **members) if members else None


def rope_parameters(folder: Folder, layers: str = "") -> dict[str, Any]:
    """Read the members of the rotary positions, or of one kind of layers; raises SourceError if they are no members."""
    given: Any = folder.config.get("rope_parameters") or {}
    given = given.get(layers) or {} if layers and isinstance(given, dict) else given
    if not isinstance(given, dict):
        raise folder.config_error(f"rope_parameters: {given!r:.60}, expected members by name")
    return given


def _scaling(name: str, value: Any) -> Any:
    """Check a member of a scaling: a number above 0, or a list of them."""
    return [check_number(name, each) for each in value] if isinstance(value, list) else check_number(name, value)


def _longrope(folder: Folder, given: Mapping[str, Any]) -> dict[str, Any]:
    """Read the positions of the first training, and the amplitude that follows from the ratio of all positions to them."""
    name = "original_max_position_embeddings"
    original = given.get(name) or positive(folder, name, 4_096)
    if type(original) is not int or original < 2:
        raise ValueError(f"{name}: {original!r:.60} is not a whole number of at least 2")
    factor = check_number("factor", given.get("factor") or positive(folder, "max_position_embeddings") / original)
    usual = (1 + log(factor) / log(original)) ** 0.5 if factor > 1 else 1.0
    return {"original": original, "amplitude": check_number("attention_factor", given.get("attention_factor") or usual)}


def _yarn(given: Mapping[str, Any]) -> dict[str, Any]:
    """Read the limits of the mixture in turns, and the amplitude, which follows from the factor if it is not given."""
    limits = {"high": "beta_fast", "low": "beta_slow"}
    read = {ours: check_number(theirs, given[theirs]) for ours, theirs in limits.items() if given.get(theirs)}
    growth = 0.1 * log(given["factor"])
    both = [check_number(name, given[name]) for name in ("mscale", "mscale_all_dim") if given.get(name)]
    usual = (1 + both[0] * growth) / (1 + both[1] * growth) if len(both) > 1 else 1 + growth
    return {"high": 32.0, **read, "amplitude": check_number("attention_factor", given.get("attention_factor") or usual)}


def _rotary_dim(folder: Folder, head_dim: int, default: float, name: str) -> int:
    """Read how many of a head's dimensions are rotated, from the share in config.json; `name` is its former name."""
    given = rope_parameters(folder)
    share = folder.config.get(name, default) if given.get(PARTIAL) is None else given[PARTIAL]
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
        raise ValueError(f"{PARTIAL}: {share!r} is not a number above 0 and up to 1")
    return int(head_dim * share)


def rotated_rows(config: GptConfig, neighbours: bool = False, rows: Rows | None = None) -> dict[str, Change]:
    """Order the weights of queries, keys and values as our attention needs them.

    Ours rotates a dimension together with that half a head further on. Others rotate the first `rotary_dim` dimensions, each
    with that half as many further on, or with its neighbour. Products of queries and keys do not depend on the order.

    Args:
        config: of the model.
        neighbours: dimensions 2i and 2i + 1 are rotated together.
        rows: gives the rows of the checkpoint's matrix with queries, keys and values; None: one after the other.
    """
    shape = config.attention
    size, rotated = shape.head_dim, config.rotary_dim or shape.head_dim
    order = torch.arange(size)
    if config.positions == ROTARY:
        first, rest = order[:rotated].view(-1, 2).T if neighbours else order[:rotated].view(2, -1), order[rotated:].view(2, -1)
        order = torch.cat((first, rest), dim=1).flatten()
    query, key, value = (rows or rows_apart)(config.heads, config.kv_heads or config.heads, size)
    every = torch.cat([part.flatten() for part in (query[:, order], key[:, order], value)])

    def ordered(weight: Tensor) -> Tensor:
        if len(weight) != len(every):  # on the meta device, no index is out of range
            raise ValueError(f"expected {len(every)} rows")
        return weight[every]

    return {QUERY_KEY_VALUE: ordered}


def first_rotated(_: Folder, config: GptConfig) -> Mapping[str, Change]:
    """Changes for families that rotate halves of the first dimensions."""
    return rotated_rows(config)


def neighbours_rotated(_: Folder, config: GptConfig) -> Mapping[str, Change]:
    """Changes for families that rotate neighbours."""
    return rotated_rows(config, neighbours=True)


def rows_apart(heads: int, shared: int, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the rows of all queries' heads `[H, D]`, all keys' and all values', `[K, D]` each."""
    rows = torch.arange((heads + 2 * shared) * size).view(-1, size)
    return rows[:heads], rows[heads:-shared], rows[-shared:]


def rows_by_group(heads: int, shared: int, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return rows as `rows_apart` does, where a head of keys follows the queries that share it, and precedes its values."""
    groups = torch.arange((heads + 2 * shared) * size).view(shared, -1, size)
    return groups[:, :-2].flatten(0, 1), groups[:, -2], groups[:, -1]
