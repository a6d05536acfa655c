"""Mapping of a checkpoint's tensors to our parameters: one list of rules per family.

A model is built on PyTorch's meta device, without memory for its weights; `load_rules` then assigns the checkpoint's weights,
one tensor at a time. An error lists all faults at once, under the checkpoint's own names.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor, nn

from triptych_export.errors import WeightsError
from triptych_export.huggingface.checkpoint.weights import WRAPPERS, StoredWeights
from triptych_export.huggingface.folder import Folder, one_line

Model = TypeVar("Model", bound=nn.Module)
Change = Callable[[Tensor], Tensor]
Join = Callable[[tuple[Tensor, ...]], Tensor]
NUMBER = re.compile(r"\{(\w+)\}")
SHOWN_FAULTS = 12  # of a kind


class Rule:
    """Origin of one of our parameters, or of all parameters of a module."""

    def __init__(
        self, ours: str, *theirs: str, change: Change | None = None, others: Sequence[str] = (), join: Join = torch.cat
    ) -> None:
        self.ours = ours  # name of a parameter ("class_token") or module ("encoder.layers.{i}.norm"); `{i}` matches any number
        self.theirs = theirs  # the checkpoint's name; several tensors are joined
        self.change = change  # applied to the joined tensor; must work on tensors of PyTorch's meta device too
        self.others = others  # alternative names under which the checkpoint may store the same tensor
        self.join = join  # concatenates along the first dimension unless it says otherwise; a single tensor is not joined

    def changed(self, change: Change | None) -> "Rule":
        """Return the rule with another change."""
        return Rule(self.ours, *self.theirs, change=change, others=self.others, join=self.join)

    def under(self, module: str) -> "Rule":
        """Return the rule for a model that is a part of another."""
        return Rule(f"{module}.{self.ours}", *self.theirs, change=self.change, others=self.others, join=self.join)

    def found(self, stored: Mapping[str, str]) -> tuple[str, ...] | None:
        """Return the checkpoint's tensors of these names, or None if one is missing."""
        for names in (self.theirs, *((other,) for other in self.others)):
            if all(name in stored for name in names):
                return names
        return None

    def make(self, parts: Sequence[Tensor]) -> Tensor:
        """Compute the parameter."""
        whole = parts[0] if len(parts) == 1 else self.join(tuple(parts))
        return self.change(whole) if self.change else whole


def block_rules(
    ours: str,
    theirs: str,
    query_key_value: Sequence[str],
    output: str,
    attention_norm: str,
    expand: str,
    contract: str,
    feedforward_norm: str,
) -> tuple[Rule, ...]:
    """Rules of one encoder block: `ours` is its name, `theirs` the checkpoint's, under which the other names are found."""
    return (
        Rule(f"{ours}.attention.query_key_value", *(f"{theirs}.{name}" for name in query_key_value)),
        Rule(f"{ours}.attention.output", f"{theirs}.{output}"),
        Rule(f"{ours}.attention_residual.norm", f"{theirs}.{attention_norm}"),
        Rule(f"{ours}.feedforward.expand", f"{theirs}.{expand}"),
        Rule(f"{ours}.feedforward.contract", f"{theirs}.{contract}"),
        Rule(f"{ours}.feedforward_residual.norm", f"{theirs}.{feedforward_norm}"),
    )


def split_rules(theirs: str, *ours: str) -> tuple[Rule, ...]:
    """Rules of modules whose weights are equal parts of one tensor; they precede other rules of the same modules."""

    def part(rows: Tensor, index: int) -> Tensor:
        return rows.chunk(len(ours))[index]

    return tuple(Rule(name, theirs, change=partial(part, index=index)) for index, name in enumerate(ours))


def scaled_rules(ours: str, theirs: str, scale: str) -> tuple[Rule, ...]:
    """Rules of a projection whose outputs are multiplied by a vector, which goes into its weight and bias."""

    def multiply(parts: tuple[Tensor, ...]) -> Tensor:
        own, factors = parts
        return own * factors.reshape(-1, *[1] * (own.dim() - 1))

    return tuple(Rule(f"{ours}.{name}", f"{theirs}.{name}", scale, join=multiply) for name in ("weight", "bias"))


def make_model(folder: Folder, make: Callable[[], Model]) -> Model:
    """Call `make`, which builds a model from members of config.json, on the meta device.

    Raises:
        SourceError: a member is missing or out of range.
    """
    try:
        with torch.device("meta"):
            return make()
    except KeyError as error:
        raise folder.config_error(f"{error.args[0]} is missing") from error
    except (TypeError, ValueError) as error:
        raise folder.config_error(str(error)) from error


def is_one_matrix(weights: StoredWeights, rules: Sequence[Rule]) -> bool:
    """Tell whether an embedding and the output that is tied to it are one: as in transformers 5, not if two differ.

    `rules` are those of both; they, or their modules, give all names under which one may be stored.
    """
    names = {f"{name.removesuffix('.weight')}.weight" for rule in rules for name in (*rule.theirs, *rule.others)}
    tables = [weights.tensor(name) for name in weights if name.endswith(tuple(names))]
    return all(torch.equal(tables[0], table) for table in tables[1:])


def load_rules(
    model: nn.Module, weights: StoredWeights, rules: Sequence[Rule], ignored: Sequence[str] = (), prefixes: Sequence[str] = ()
) -> None:
    """Load weights into a model on the meta device, as float32 on the CPU, and set evaluation mode; tied parameters stay tied.

    The first rule that matches a parameter applies. `ignored` are patterns of tensor names that are not needed, such as
    "*.position_ids"; `prefixes` are optional leading parts of the checkpoint's names, such as "bert.".

    Raises:
        WeightsError: lists every missing, unexpected and misshapen weight.
        ValueError: a parameter of the model has no rule.
    """
    for prefix, wrapper in WRAPPERS.items():
        if all(name.startswith(prefix) for name in weights):
            remedy = f"save the model that is in it, or remove {prefix!r}"
            raise WeightsError(f"{weights.paths[0]}: the names of all weights begin with {prefix!r}, of {wrapper}; {remedy}")
    stored = {_plain(name, prefixes): name for name in weights}
    sources = {name: _source(name, rules, prefixes) for name, _ in model.named_parameters()}
    used = {name for source in sources.values() for name in (*source.theirs, *source.others)}
    absent = [source for source in sources.values() if source.found(stored) is None]
    missing = [name for source in absent for name in source.theirs if name not in stored]
    parameters = [(sources[name], parameter.shape) for name, parameter in model.named_parameters()]
    misshapen = [each for source, shape in parameters for each in _misshapen(source, shape, weights, stored)]
    unexpected = sorted(
        name for plain, name in stored.items() if plain not in used and not any(fnmatchcase(name, each) for each in ignored)
    )
    if faults := [*_shown("missing", missing), *_shown("misshapen", misshapen, "; "), *_shown("unexpected", unexpected)]:
        places = ", ".join(path.name for path in weights.paths[:3]) + ("..." if len(weights.paths) > 3 else "")
        raise WeightsError(f"{weights.paths[0].parent} ({places}): {'; '.join(faults)}")
    _assign(model, sources, weights, stored)


def _source(parameter: str, rules: Sequence[Rule], prefixes: Sequence[str]) -> Rule:
    """Return the rule of one parameter, of the first rule that applies to it."""
    for rule in rules:
        parts = NUMBER.split(rule.ours)  # text, name, text, name, ...
        pattern = "".join(f"(?P<{part}>\\d+)" if index % 2 else re.escape(part) for index, part in enumerate(parts))
        if found := re.fullmatch(f"{pattern}(?P<_rest>\\.[^.]+)?", parameter):
            numbers, rest = found.groupdict(), found["_rest"] or ""
            names, others = (
                tuple(_plain(name.format(**numbers) + rest, prefixes) for name in each) for each in (rule.theirs, rule.others)
            )
            return Rule(parameter, *names, change=rule.change, others=others, join=rule.join)
    raise ValueError(f"no rule is about {parameter}")


def _shown(fault: str, weights: Sequence[str], separator: str = ", ") -> list[str]:
    """Describe the weights that have a fault in one text; empty if there are none."""
    more = f" and {len(weights) - SHOWN_FAULTS} more" if len(weights) > SHOWN_FAULTS else ""
    return [f"{fault} {separator.join(weights[:SHOWN_FAULTS])}{more}"] if weights else []


def _misshapen(source: Rule, shape: torch.Size, weights: StoredWeights, stored: Mapping[str, str]) -> Iterator[str]:
    names = source.found(stored)
    if names is None:
        return
    shapes = [weights[stored[name]] for name in names]
    try:
        made = source.make([torch.empty(each, device="meta") for each in shapes]).shape
    except (RuntimeError, IndexError, ValueError) as error:
        made = torch.Size()
        reason = f" ({one_line(error)})"
    else:
        reason = "" if len(names) == 1 and source.change is None else f", together {list(made)}"
    if made != shape:
        given = ", ".join(f"{stored[name]} {list(each)}" for name, each in zip(names, shapes, strict=True))
        yield f"{given}{reason}, expected {list(shape)}"


@torch.no_grad()
def _assign(model: nn.Module, sources: Mapping[str, Rule], weights: StoredWeights, stored: Mapping[str, str]) -> None:
    """Assign a parameter under all its names, so that tied parameters stay tied."""
    made: dict[int, nn.Parameter] = {}
    owners = [
        (owner, name, parameter) for owner in model.modules() for name, parameter in owner.named_parameters(recurse=False)
    ]
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    for owner, name, parameter in owners:
        if id(parameter) not in made:
            source = sources[names[id(parameter)]]
            tensor = source.make([weights.tensor(stored[each]) for each in source.found(stored) or ()]).contiguous()
            made[id(parameter)] = nn.Parameter(tensor, requires_grad=False)
        setattr(owner, name, made[id(parameter)])
    model.eval()


def _plain(name: str, prefixes: Sequence[str]) -> str:
    """Remove the first matching prefix of a name."""
    return next((name.removeprefix(prefix) for prefix in prefixes if name.startswith(prefix)), name)
