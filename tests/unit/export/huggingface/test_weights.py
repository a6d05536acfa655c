"""Stored weights, and the rules that map them to our parameters."""

import pickle
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from triptych_export.errors import SourceError
from triptych_export.huggingface.checkpoint.mapping import Rule, load_rules
from triptych_export.huggingface.checkpoint.weights import StoredWeights, open_weights
from triptych_export.huggingface.folder import Folder, open_folder
from triptych_export.huggingface.tokenizers.piece_model import read_piece_model

from ....fixtures.json_files import write_json

ROWS, WIDTH, LAYERS = 7, 4, 2


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query_key = nn.Linear(WIDTH, 2 * WIDTH)
        self.norm = nn.LayerNorm(WIDTH)


class Model(nn.Module):
    """Small model with layers, stacked projections, a tied matrix and a cut table."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(ROWS, WIDTH)
        self.positions = nn.Parameter(torch.empty(5, WIDTH))
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.projection = nn.Linear(WIDTH, ROWS, bias=False)
        self.projection.weight = self.tokens.weight


RULES = (
    Rule("tokens.weight", "embed.weight", others=["head.weight"]),
    Rule("positions", "places.weight", change=lambda table: table[2:]),
    Rule("layers.{i}.query_key", "block.{i}.query", "block.{i}.key"),
    Rule("layers.{i}.norm", "block.{i}.LayerNorm"),
)


def tensors(**changes: Tensor | None) -> dict[str, Tensor]:
    """A checkpoint for `RULES`; dots are written as double underscores, None leaves a tensor out."""
    torch.manual_seed(5)
    shapes: dict[str, tuple[int, ...]] = {"embed.weight": (ROWS, WIDTH), "places.weight": (7, WIDTH)}
    for i in range(LAYERS):
        for name in ("query", "key"):
            shapes |= {f"block.{i}.{name}.weight": (WIDTH, WIDTH), f"block.{i}.{name}.bias": (WIDTH,)}
        shapes |= {f"block.{i}.LayerNorm.weight": (WIDTH,), f"block.{i}.LayerNorm.bias": (WIDTH,)}
    made = {name: torch.randn(shape) for name, shape in shapes.items()}
    for name, tensor in changes.items():
        made.pop(name.replace("__", "."), None)
        if tensor is not None:
            made[name.replace("__", ".")] = tensor
    return made


def write(folder: Path, stored: dict[str, Tensor], kind: str) -> StoredWeights:
    """Write weights in one of the four formats."""
    if kind == "safetensors":
        save_file(stored, folder / "model.safetensors")
    elif kind == "bin":
        torch.save(stored, folder / "pytorch_model.bin")
    else:
        suffix, stem = (kind.removeprefix("sharded-"), "model" if "safe" in kind else "pytorch_model")
        names = sorted(stored)
        placed = {name: f"{stem}-0000{1 + place % 3}-of-00003.{suffix}" for place, name in enumerate(names)}
        for file in set(placed.values()):
            part = {name: stored[name] for name in names if placed[name] == file}
            save_file(part, folder / file) if suffix == "safetensors" else torch.save(part, folder / file)
        index = {"metadata": {}, "weight_map": placed}
        write_json(folder / f"{stem}.{suffix}.index.json", index)
    return open_weights(folder)


def load(weights: StoredWeights, **options: Any) -> Model:
    with torch.device("meta"):
        model = Model()
    load_rules(model, weights, RULES, **options)
    return model


def fault(weights: StoredWeights, **options: Any) -> str:
    with pytest.raises(SourceError) as caught:
        load(weights, **options)
    return str(caught.value)


KINDS = ("safetensors", "bin", "sharded-safetensors", "sharded-bin")


@pytest.mark.parametrize("kind", KINDS)
def test_every_form_gives_the_same_model(tmp_path: Path, kind: str) -> None:
    stored = tensors()
    weights = write(tmp_path, stored, kind)
    assert {name: weights[name] for name in weights} == {name: tensor.shape for name, tensor in stored.items()}
    model = load(weights)
    assert not model.training
    assert torch.equal(model.tokens.weight, stored["embed.weight"])
    assert model.projection.weight is model.tokens.weight
    assert torch.equal(model.positions, stored["places.weight"][2:])
    for number, layer in enumerate(model.layers):
        assert isinstance(layer, Layer)
        parts = [stored[f"block.{number}.{name}.weight"] for name in ("query", "key")]
        assert torch.equal(layer.query_key.weight, torch.cat(parts))
        assert torch.equal(layer.norm.bias, stored[f"block.{number}.LayerNorm.bias"])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_weights_become_float32(tmp_path: Path, dtype: torch.dtype) -> None:
    weights = write(tmp_path, {name: tensor.to(dtype) for name, tensor in tensors().items()}, "safetensors")
    assert {parameter.dtype for parameter in load(weights).parameters()} == {torch.float32}


def test_pickles_from_before_pytorch_1_6_are_read(tmp_path: Path) -> None:
    torch.save(tensors(), tmp_path / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    assert torch.equal(load(open_weights(tmp_path)).tokens.weight, tensors()["embed.weight"])


def test_safetensors_take_precedence(tmp_path: Path) -> None:
    write(tmp_path, tensors(embed__weight=torch.zeros(ROWS, WIDTH)), "bin")
    assert load(write(tmp_path, tensors(), "safetensors")).tokens.weight.any()


def test_gamma_and_beta_are_weight_and_bias(tmp_path: Path) -> None:
    names = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    stored = {re.sub(r"LayerNorm\.\w+", lambda found: names[found[0]], name): each for name, each in tensors().items()}
    layer = load(write(tmp_path, stored, "bin")).layers[1]
    assert isinstance(layer, Layer)
    assert torch.equal(layer.norm.weight, stored["block.1.LayerNorm.gamma"])


def test_prefixes_are_optional(tmp_path: Path) -> None:
    stored = {f"model.{name}": tensor for name, tensor in tensors().items()}
    stored["embed.weight"] = stored.pop("model.embed.weight")
    weights = write(tmp_path, stored, "safetensors")
    assert torch.equal(load(weights, prefixes=("model.",)).tokens.weight, stored["embed.weight"])
    assert "missing places.weight" in fault(weights)


def test_a_tied_matrix_may_be_stored_under_either_name_or_both(tmp_path: Path) -> None:
    matrix = torch.randn(ROWS, WIDTH)
    for place, changes in enumerate(({"embed__weight": None, "head__weight": matrix}, {"embed__weight": matrix})):
        folder = tmp_path / str(place)
        folder.mkdir()
        assert torch.equal(load(write(folder, tensors(**changes), "safetensors")).tokens.weight, matrix)
    both = tensors(embed__weight=matrix, head__weight=matrix.clone())
    assert torch.equal(load(write(tmp_path, both, "bin")).tokens.weight, matrix)


def test_all_faults_are_listed_under_the_checkpoints_names(tmp_path: Path) -> None:
    stored = tensors(
        embed__weight=None,
        block__1__key__bias=None,
        block__0__LayerNorm__weight=torch.ones(WIDTH + 1),
        places__weight=torch.ones(6, WIDTH),
        block__0__query__weight=torch.ones(WIDTH + 2, WIDTH),
        position_ids=torch.ones(1),
        **{f"extra__{number:03}": torch.ones(1) for number in range(75)},
    )
    message = fault(write(tmp_path, stored, "safetensors"), ignored=("*position_ids",))
    assert message.startswith(f"{tmp_path} (model.safetensors): ")
    for expected in (
        "missing embed.weight, block.1.key.bias; misshapen places.weight [6, 4], together [4, 4], expected [5, 4]; ",
        "; block.0.LayerNorm.weight [5], expected [4]",
        "; block.0.query.weight [6, 4], block.0.key.weight [4, 4], together [10, 4], expected [8, 4]",
        "; unexpected extra.000, extra.001",
        "extra.011 and 63 more",
    ):
        assert expected in message
    assert "position_ids" not in message


@pytest.mark.parametrize(("prefix", "wrapper"), [("_orig_mod.", "torch.compile"), ("_fsdp_wrapped_module.", "FSDP")])
def test_a_wrapper_around_the_model_is_named(tmp_path: Path, prefix: str, wrapper: str) -> None:
    weights = write(tmp_path, {f"{prefix}{name}": tensor for name, tensor in tensors().items()}, "safetensors")
    expected = f"{tmp_path / 'model.safetensors'}: the names of all weights begin with {prefix!r}, of {wrapper}; "
    assert fault(weights).startswith(expected)


def test_a_parameter_without_a_rule_is_a_bug(tmp_path: Path) -> None:
    with torch.device("meta"):
        model = Model()
    with pytest.raises(ValueError, match=r"^no rule is about layers\.0\.norm\.weight$"):
        load_rules(model, write(tmp_path, tensors(), "safetensors"), RULES[:3])


class Malice:
    """Object whose pickle runs code."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("touched"),)


NO_WEIGHTS = r"pytorch_model\.bin does not map names to tensors; .* its tokenizer with save_pretrained$"
RUNS_CODE = r"pytorch_model\.bin holds more than weights, or is damaged: .* its tokenizer with save_pretrained$"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"embed.weight": torch.ones(2), "other": Malice()}, RUNS_CODE),
        (Malice(), RUNS_CODE),
        ([torch.ones(2)], NO_WEIGHTS),
        ({"model": {"embed.weight": torch.ones(2)}, "epoch": 3}, NO_WEIGHTS),
    ],
)
def test_pickles_of_other_objects_are_rejected_and_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: object, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    if isinstance(content, Malice):
        (tmp_path / "pytorch_model.bin").write_bytes(pickle.dumps(content))
    else:
        torch.save(content, tmp_path / "pytorch_model.bin")
    with pytest.raises(SourceError, match=message):
        open_weights(tmp_path)
    assert not (tmp_path / "touched").exists()


@pytest.mark.parametrize("kind", ["safetensors", "bin"])
@pytest.mark.parametrize("kept", [0.0, 0.4, 0.98])
def test_a_truncated_file_is_named(tmp_path: Path, kind: str, kept: float) -> None:
    write(tmp_path, tensors(), kind)
    path = next(path for path in tmp_path.iterdir())
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content))])
    with pytest.raises(SourceError, match=rf"^{re.escape(str(tmp_path))}: {path.name} (is|holds)"):
        open_weights(tmp_path)


@pytest.mark.parametrize("kind", ["sharded-safetensors", "sharded-bin"])
def test_missing_and_damaged_shards_are_all_named(tmp_path: Path, kind: str) -> None:
    write(tmp_path, tensors(), kind)
    first, second, _ = sorted(path for path in tmp_path.iterdir() if "-of-" in path.name)
    first.unlink()
    second.write_bytes(b"nothing")
    with pytest.raises(SourceError, match=rf"{re.escape(first.name)} is missing; {re.escape(second.name)} (is|holds)"):
        open_weights(tmp_path)


@pytest.mark.parametrize("index", ["", "[]", "{}", '{"weight_map": {}}', '{"weight_map": {"a": "../secret.safetensors"}}'])
def test_a_malformed_index_is_rejected(tmp_path: Path, index: str) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(index, encoding="utf-8")
    with pytest.raises(SourceError, match=r"model\.safetensors\.index\.json: "):
        open_weights(tmp_path)


def test_other_formats_are_reported_with_the_files_found(tmp_path: Path) -> None:
    (tmp_path / "tf_model.h5").write_bytes(b"")
    with pytest.raises(
        SourceError, match=r"holds no weights; supported: model\.safetensors .*; there are: tf_model\.h5; .*from_tf"
    ):
        open_weights(tmp_path)


def test_files_of_torch_save_are_reported_with_a_remedy(tmp_path: Path) -> None:
    """Lightning's, for instance; the Trainer's states are none."""
    remedy = "load it where it was made, and save the model, without a wrapper, and its tokenizer with save_pretrained$"
    (tmp_path / "optimizer.pt").touch()
    with pytest.raises(SourceError, match=r"missing config\.json$"):
        _ = Folder(tmp_path).config
    (path := tmp_path / "epoch=3-step=40.ckpt").touch()
    for attempt in (lambda: open_weights(tmp_path), lambda: Folder(tmp_path).config):
        with pytest.raises(SourceError, match=f"; {path.name}: {remedy}"):
            attempt()
    with pytest.raises(SourceError, match=f"not a folder, .*; {remedy}"):
        open_folder(str(path))


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("pytorch_model_fsdp_0", "FSDP's shards are put together by accelerate merge-weights"),
        ("zero_to_fp32.py", "DeepSpeed's weights are put together by this script"),
        ("model.fp16.safetensors", "load the model with this variant, and save it without"),
        ("model.fp16.safetensors.index.json", "load the model with this variant, and save it without"),
    ],
)
def test_weights_in_other_forms_are_reported_with_a_remedy(name: str, remedy: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    for attempt in (lambda: open_weights(tmp_path), lambda: Folder(tmp_path).config):
        with pytest.raises(SourceError, match=f"; {name}: {remedy}$"):
            attempt()


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin", "tokenizer.json", "source.spm"])
def test_a_pointer_of_git_lfs_is_recognised(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 12345\n", encoding="utf-8")
    readers = {".json": lambda: Folder(tmp_path).read_json(name), ".spm": lambda: read_piece_model(path)}
    with pytest.raises(SourceError, match=rf"{re.escape(name)}.*; it is only a pointer of git-lfs, .*: git lfs pull$"):
        readers.get(path.suffix, lambda: open_weights(tmp_path))()


def test_a_folder_needs_a_valid_config(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r": not a checkpoint folder, missing config\.json$"):
        _ = Folder(tmp_path).config
    for place in ("checkpoint-500/config.json", "checkpoint-900/adapter_config.json", "snapshots/abc/config.json"):
        (tmp_path / place).parent.mkdir(parents=True)
        (tmp_path / place).write_text("{}", encoding="utf-8")
    with pytest.raises(SourceError, match=r"there is a checkpoint in: .*-500, .*checkpoint-900, .*snapshots.abc$"):
        _ = Folder(tmp_path).config
    (tmp_path / "adapter_config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(SourceError, match=r"missing config\.json; it holds a PEFT adapter: merge it"):
        _ = Folder(tmp_path).config
    for content in ("[]", "{", "\0"):
        (tmp_path / "config.json").write_text(content, encoding="utf-8")
        with pytest.raises(SourceError, match=r"config\.json: "):
            _ = Folder(tmp_path).config
    (tmp_path / "config.json").write_text('{"model_type": "t5", "architectures": null}', encoding="utf-8")
    folder = open_folder(str(tmp_path))
    assert (folder.model_type, folder.architecture) == ("t5", "")
    assert folder.read_json("generation_config.json") is None


@pytest.mark.parametrize("name", ["no/such/folder/here", "../up", "/nowhere", "a b", "{}/model.bin"])
def test_names_of_neither_a_folder_nor_a_hub_model_are_rejected(tmp_path: Path, name: str) -> None:
    (tmp_path / "model.bin").write_bytes(b"")
    with pytest.raises(SourceError, match="not a folder, nor a model's name on the Hugging Face hub"):
        open_folder(name.format(tmp_path))
