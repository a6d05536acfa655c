"""`triptych train`, `triptych distill` and `triptych checkpoint` on the command line."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result
from safetensors.torch import save_file

from triptych_cli.main import cli
from triptych_cli.training import train as train_module
from triptych_training.checkpoints.encoder import load_image_checkpoint
from triptych_training.checkpoints.translation import Checkpoint, load_checkpoint, save_checkpoint
from triptych_training.checkpoints.vae import load_vae_checkpoint
from triptych_training.data.corpus import read_pairs
from triptych_training.data.languages import ModelLanguages
from triptych_training.decoding.greedy import greedy
from triptych_training.models.pvt import Pvt
from triptych_training.models.resnet import ResNet
from triptych_training.models.swin import Swin

from .toy import PAIRS, TOKENIZER, make_model, write_pairs
from .toy_pictures import write_pictures
from .toy_text import write, write_documents, write_encoder, write_labelled, write_questions, write_words

BRIEF = "--epochs 1 --max-steps 2 --devices 1 --precision fp32"
PVT = "--patch-size 2 --widths 8 8 10 8 --depths 1 1 1 2 --reductions 4 2 1 1"
TINY = "--model-dim 16 --heads 2 --feedforward-dim 24"
WRITERS: dict[str, Callable[[Path], str]] = {
    "text-classification": write_labelled,
    "token-classification": write_words,
    "question-answering": write_questions,
}


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def assert_failed(result: Result, message: str) -> None:
    """Check that the command failed with a single line."""
    assert result.exit_code == 1, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("Error: ")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def train(task: str, folder: Path, *options: str) -> Result:
    """Train `task` on tiny data in the run folder `folder`/run."""
    match task:
        case "translation":
            data = write_pairs(folder / "pairs.tsv")
            fixed = f"{TINY} --source-language en --target-language xx --vocabulary-size 290 --batch-tokens 200"
            fixed += f" --encoder-layers 1 --decoder-layers 1 --max-positions 16 --valid {data}"
        case "bert":
            data = write_documents(folder / "text.txt", repeat=3)
            fixed = f"{TINY} --layers 1 --max-positions 48 --sequence-length 32 --batch-tokens 160 --vocabulary-size 120"
            fixed += f" --valid {data}"
        case "vit":
            data = write_pictures(folder / "pictures")
            fixed = "--image-size 8 --patch-size 4 --hold-out 6 --batch-images 4"
            fixed += "" if "--architecture" in options else f" {TINY} --layers 1"
        case "vae":
            data = write_pictures(folder / "pictures")
            fixed = "--image-size 8 --width 4 --latent-dim 5 --hold-out 6 --batch-images 4"
        case _:
            data = WRITERS[task](folder / "data")
            fixed = f"--encoder {write_encoder(folder / 'encoder')} --stride 4 --valid {data}"
    return invoke("train", task, "--train", data, "--out", folder / "run", *fixed.split(), *BRIEF.split(), *options)


def assert_trained(result: Result, folder: Path) -> Path:
    """Check that the training printed the path of its checkpoint; return the path."""
    assert result.exit_code == 0, result.output
    assert result.stdout == f"{folder / 'run/model'}\n"
    return folder / "run/model"


@pytest.mark.parametrize("task", train_module.command.commands)
def test_the_help_states_the_defaults_of_the_recipe(task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # An option that depends on others is None unless given, so that the recipe's default counts: the help only repeats it.
    ran: dict[str, Any] = {}
    monkeypatch.setattr(train_module, "_run", lambda _, recipe, *others: ran.update(recipe=recipe, options=others[-1]))
    given = {"--train": "a", "--valid": "b", "--out": tmp_path, **({"--encoder": "c"} if task in WRITERS else {})}
    result = invoke("train", task, *(part for option in given.items() for part in option))
    assert result.exit_code == 0, result.output
    defaults = {field.name: field.default for field in fields(ran["recipe"]) if f"--{field.name}" not in given}
    defaults = {name: value for name, value in defaults.items() if name in ran["options"] and value is not MISSING}
    assert {"epochs", "schedule", "learning_rate", "seed"} <= defaults.keys()
    helps = {option.name: getattr(option, "help", "") for option in train_module.command.commands[task].params}
    for name, default in defaults.items():
        stated = ran["options"][name]
        if stated is None:
            [stated] = re.findall(r"\[default: ([\w.-]+)", helps[name])
            stated = type(default)(stated)
        assert stated == default, name


def test_sizes_and_limits_choose_what_is_not_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    data = write_pairs(tmp_path / "pairs.tsv")
    fixed = f"--train {data} --valid {data} --out {tmp_path / 'run'} --source-language en --target-language xx"
    fixed += " --vocabulary-size 290 --batch-tokens 200 --max-positions 16 --devices 1 --max-steps 2"
    given = f"{fixed} --model-dim 16 --heads 2 --max-minutes 9"
    path = assert_trained(invoke("train", "translation", *given.split()), tmp_path)
    config, recipe = load_checkpoint(path).model.config, load_checkpoint(path).provenance["recipe"]
    assert (config.model_dim, config.feedforward_dim, config.encoder_layers) == (16, 512, 2)
    assert (recipe["schedule"], recipe["epochs"]) == ("linear", 1_000_000)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))  # continued on a larger machine, without the shape
    resumed = f"{fixed} --max-minutes 9 --resume"
    assert_trained(invoke("train", "translation", *resumed.split()), tmp_path)
    assert_failed(invoke("train", "translation", *resumed.split(), "--size", "small"), "model_dim was 16, is 256")


def test_a_training_from_a_checkpoint_has_its_shape(tmp_path: Path) -> None:
    options = ("--norm", "pre", "--activation", "gelu", "--no-tie-embeddings")
    first = assert_trained(train("translation", tmp_path, *options), tmp_path)
    shape = load_checkpoint(first).model.config
    assert (shape.norm, shape.activation, shape.tie_embeddings, shape.decoder_layers) == ("pre", "gelu", False, 1)
    data = write_pairs(tmp_path / "pairs.tsv")
    fixed = f"--train {data} --valid {data} --source-language en --target-language xx --initial {first} --max-steps 1"
    for folder, resume in (("second", ""), ("third", "--resume")):  # a script may always give it
        given = f"{fixed} --dropout 0.3 {resume} --out {tmp_path / folder}/run"
        path = assert_trained(invoke("train", "translation", *given.split()), tmp_path / folder)
        assert load_checkpoint(path).model.config == replace(shape, dropout=0.3)
    other = f"{fixed} --model-dim 32 --out {tmp_path / 'fourth'}"
    message = "initial: its weights do not fit a model of this shape; leave out options of the shape ("
    assert_failed(invoke("train", "translation", *other.split()), message)


@pytest.mark.parametrize(
    ("task", "shape", "fixed"),
    [
        ("gpt", "--style gpt2 --model-dim 16 --heads 2 --layers 1 --feedforward-dim 24", "--style gpt2 --sequence-length 16"),
        ("word2vec", "--model-dim 8", "--min-count 1"),
        ("elmo", "--direction-dim 8 --layers 1", "--sequence-length 16"),
        ("vae", "--image-size 8 --width 4 --latent-dim 5", "--hold-out 6 --batch-images 4"),
    ],
)
def test_other_trainings_from_a_checkpoint_have_its_shape_too(tmp_path: Path, task: str, shape: str, fixed: str) -> None:
    data = write_pictures(tmp_path / "pictures") if task == "vae" else write_documents(tmp_path / "text.txt", repeat=6)
    fixed += "" if task == "vae" else f" --valid {data} --vocabulary-size 300"
    command = ("train", task, "--train", data, *fixed.split(), *BRIEF.split())
    first = assert_trained(invoke(*command, *shape.split(), "--out", tmp_path / "run"), tmp_path)
    assert_trained(invoke(*command, "--resume", "--max-steps", 3, "--out", tmp_path / "run"), tmp_path)
    run = invoke(*command, "--initial", first.parent, "--out", tmp_path / "wrong/run")
    assert_failed(
        run, f"{first.parent}: not a checkpoint folder, missing config.json, model.safetensors; there is a checkpoint"
    )
    second = invoke(*command, "--initial", first, "--out", tmp_path / "second/run")
    shapes = [json.loads((path / "config.json").read_text()) for path in (first, assert_trained(second, tmp_path / "second"))]
    member = shapes[0]["architecture"].removeprefix("triptych-")
    assert shapes[0][member] == shapes[1][member]


@pytest.mark.parametrize(("task", "member"), [("translation", "transformer"), ("bert", "bert"), ("gpt", "gpt")])
def test_the_first_line_has_the_size_of_the_vocabulary(tmp_path: Path, task: str, member: str) -> None:
    if task == "gpt":
        data = write_documents(tmp_path / "text.txt", repeat=6)
        fixed = f"--train {data} --valid {data} --out {tmp_path / 'run'} --sequence-length 16 {TINY} --layers 1 {BRIEF}"
        result = invoke("train", "gpt", *fixed.split(), "--vocabulary-size", 5_000)
    else:
        result = train(task, tmp_path, "--vocabulary-size", "5000")
    size = json.loads((assert_trained(result, tmp_path) / "config.json").read_text())[member]["vocabulary_size"]
    assert size < 5_000
    assert f", vocabulary of {size}, at most " in result.stderr


def test_the_shape_is_not_that_of_a_checkpoint_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.json").write_text('{"vae": {"latent_dim": 7}}')
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    data = write_pictures(tmp_path / "pictures")
    fixed = f"--train {data} --image-size 8 --width 4 --hold-out 6 --batch-images 4 {BRIEF} --out {tmp_path / 'run'}"
    assert load_vae_checkpoint(assert_trained(invoke("train", "vae", *fixed.split()), tmp_path)).model.config.latent_dim == 128


@pytest.mark.parametrize(
    ("task", "options", "shape", "recipe"),
    [
        (
            "bert",
            "--norm pre --no-next-sentence --no-lowercase",
            {"norm": "pre", "layers": 1},
            {"next_sentence": False, "lowercase": False, "schedule": "linear"},
        ),
        *((head, "--dropout 0.2", {"dropout": 0.2}, {"head": head, "learning_rate": 5e-5}) for head in WRITERS),
        (
            "vit",
            "--stem convolution --cutmix 1 --no-flip",
            {"stem": "convolution", "classes": 3},
            {"flip": False, "cutmix": 1.0, "ema_decay": 0.999},
        ),
        ("vae", "--no-flip", {"latent_dim": 5}, {"flip": False, "kl_warmup_epochs": 10}),
    ],
)
def test_options_set_the_shape_and_the_recipe(
    tmp_path: Path, task: str, options: str, shape: Mapping[str, Any], recipe: Mapping[str, Any]
) -> None:
    path = assert_trained(train(task, tmp_path, *options.split()), tmp_path)
    config = json.loads((path / "config.json").read_text())
    assert shape.items() <= config[config["architecture"].removeprefix("triptych-")].items()
    assert recipe.items() <= config["provenance"]["recipe"].items()
    assert config.get("head") == {"bert": "pretraining", "vit": None, "vae": None}.get(task, task)


@pytest.mark.parametrize(
    ("shape", "kind", "foreign"),
    [
        ("--architecture resnet --widths 4 4 6 8 --depths 1 1 1 2 --drop-path 0.5", ResNet, ("--window-size", "--heads")),
        pytest.param(
            "--architecture swin --patch-size 1 --window-size 2 --model-dim 8 --depths 2 1 1 1 --optimizer muon",
            Swin,
            (),
            marks=pytest.mark.full,
        ),
        (f"--architecture pvt --version 1 {PVT}", Pvt, ("--layers", "--heads")),
        pytest.param(f"--architecture pvt {PVT} --optimizer muon --drop-path 0.5", Pvt, (), marks=pytest.mark.full),
    ],
)
def test_other_image_models_are_trained(tmp_path: Path, shape: str, kind: type, foreign: Sequence[str]) -> None:
    command = ("vit", tmp_path, "--image-size", "16", *shape.split())
    path = assert_trained(train(*command), tmp_path)
    checkpoint = load_image_checkpoint(path)
    assert isinstance(checkpoint.model, kind)
    assert checkpoint.model.config.classes == 3
    if "--version" in shape:
        assert getattr(checkpoint.model.config, "version", "") == "1"
        assert_trained(train(*command, "--resume", "--epochs", "2", "--max-steps", "4"), tmp_path)
    for name in foreign:
        other = train("vit", tmp_path, *shape.split()[:2], name, "2")
        assert (other.exit_code, f"{name} is not an option of --architecture" in other.stderr) == (2, True)


@pytest.mark.parametrize(
    ("task", "options", "message"),
    [
        ("translation", "--heads 3", "heads: 3 does not divide model_dim 16"),
        ("text-classification", "--train {bad}", "bad:2: 1 tab-separated fields"),
        ("text-classification", "--encoder none", "none: not a checkpoint folder, missing config.json, model.safetensors"),
        ("vit", "--valid nowhere", "nowhere: no such folder"),
        ("vae", "--image-size 12", "image_size: 12 is not a multiple of 8"),
        ("vae", "--compile", "compile: not supported for this kind of model"),
    ],
)
def test_training_errors_are_printed_as_one_line(tmp_path: Path, task: str, options: str, message: str) -> None:
    bad = write(tmp_path / "bad", "one\tyes\ntwo\n")
    assert_failed(train(task, tmp_path, *options.format(bad=bad).split()), message)


@pytest.mark.parametrize("task", ["vae", "word2vec", "question-answering"])
def test_losses_that_are_never_smoothed_have_no_option_for_it(task: str) -> None:
    assert "No such option" in invoke("train", task, "--label-smoothing", 0.1).stderr


def test_a_folder_with_a_training_needs_resume(tmp_path: Path) -> None:
    assert train("bert", tmp_path).exit_code == 0
    assert_failed(train("bert", tmp_path), "contains a training; continue it with --resume")
    assert train("bert", tmp_path, "--resume", "--epochs", "2", "--max-steps", "4").exit_code == 0
    other = train("bert", tmp_path, "--resume", "--learning-rate", "0.5")
    assert_failed(other, "was started with other options: learning_rate was ")
    recipe = next(tmp_path.rglob("recipe.json"))
    for text in ("[]", '{"bert": 5}'):
        recipe.write_text(text)
        assert_failed(train("bert", tmp_path, "--resume"), "recipe.json: damaged (not a JSON object with data, run)")


@pytest.fixture
def teacher(tmp_path: Path) -> Path:
    save_checkpoint(Checkpoint(make_model(vocabulary_size=290), TOKENIZER, "en", "de"), tmp_path / "teacher")
    return tmp_path / "teacher"


def test_distillation_prints_the_path_of_its_pairs(tmp_path: Path, teacher: Path) -> None:
    pairs, out = write_pairs(tmp_path / "pairs.tsv"), tmp_path / "out.tsv"
    result = invoke("distill", teacher, "--pairs", pairs, "--out", out, "--beam-size", 2, "--max-length", 9, "--chunk", 20)
    assert result.exit_code == 0, result.output
    assert result.stdout == f"{out}\n"
    assert result.stderr.splitlines()[-1].startswith(f"{len(read_pairs([str(out)]))} pairs, ")
    assert set(PAIRS) <= set(read_pairs([str(out)]))


def test_only_the_last_shard_prints_the_path(tmp_path: Path, teacher: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ("distill", teacher, "--pairs", write_pairs(tmp_path / "pairs.tsv"), "--out", tmp_path / "out.tsv", "--chunk", 20)
    command = (*command, "--beam-size", 1, "--max-length", 6, "--pick", "best")
    first = invoke(*command, "--shard", "1/2")
    assert (first.exit_code, first.stdout) == (0, "")
    assert first.stderr.splitlines()[-1] == "1 of 3 chunks done; the others belong to other processes"
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert invoke(*command).stdout == f"{tmp_path / 'out.tsv'}\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--shard 2/2", "shard: 2 is outside 0 to 1"),
        ("--shard 0/0", "shard: 0/0 has no parts; write 0/1 for all of the work"),
        ("--beam-size 0", "beam_size: 0 is below 1"),
    ],
)
def test_distillation_errors_are_printed_as_one_line(tmp_path: Path, teacher: Path, options: str, message: str) -> None:
    command = ("distill", teacher, "--pairs", write_pairs(tmp_path / "pairs.tsv"), "--out", tmp_path / "out.tsv")
    assert_failed(invoke(*command, *options.split()), message)
    malformed = invoke(*command, "--shard", "half")
    assert malformed.exit_code == 2
    assert "'half' is not of the form 0/4" in malformed.stderr


@pytest.mark.parametrize("out", ["-", "/dev/stdout"])
def test_distillation_does_not_write_to_standard_output(
    tmp_path: Path, teacher: Path, monkeypatch: pytest.MonkeyPatch, out: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = invoke("distill", teacher, "--pairs", write_pairs(tmp_path / "pairs.tsv"), "--out", out)
    assert result.exit_code == 2
    assert f"{out}: finished parts are kept beside the output; name a file" in " ".join(result.stderr.split())
    assert not (tmp_path / "-").exists()


def test_checkpoints_are_packed_and_joined(tmp_path: Path, teacher: Path) -> None:
    packed = invoke("checkpoint", "pack", teacher, tmp_path / "small", "--piece-mib", "0.01")
    assert packed.exit_code == 0, packed.output
    listing, *pieces = packed.stdout.splitlines()
    assert listing == str(tmp_path / "small.json")
    assert len(pieces) > 1
    joined = invoke("checkpoint", "join", listing, tmp_path / "joined")
    assert joined.stdout == f"{tmp_path / 'joined'}\n"
    before, after = (load_checkpoint(path).model.projection.weight for path in (teacher, tmp_path / "joined"))
    assert torch.allclose(before, after, rtol=1e-3, atol=1e-6)
    assert_failed(invoke("checkpoint", "join", listing, tmp_path / "joined"), "exists already")
    assert_failed(invoke("checkpoint", "pack", tmp_path, tmp_path / "x"), "not a checkpoint folder")


def test_checkpoints_are_scored_in_both_conventions(tmp_path: Path, teacher: Path) -> None:
    pairs, out = write_pairs(tmp_path / "pairs.tsv", PAIRS[:9]), tmp_path / "out.txt"
    result = invoke("checkpoint", "score", teacher, pairs, "--beam-size", 1, "--out", out, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found.keys() == {"bleu", "signature", "sentences", "chrf", "chrf_signature", "literature", "literature_signature"}
    assert found["sentences"] == 9
    texts = TOKENIZER.decode_batch(
        greedy(load_checkpoint(teacher).model, [TOKENIZER.encode(source).ids for source, _ in PAIRS[:9]], 31)
    )
    assert out.read_text() == "".join(f"{' '.join(text.split())}\n" for text in texts)
    shown = invoke("checkpoint", "score", teacher, pairs, "--beam-size", 1).stdout.splitlines()
    assert shown[0] == f"BLEU {found['bleu']:.2f}  (9 sentences; {found['signature']})"
    assert shown[1] == f"BLEU {found['literature']:.2f}  ({found['literature_signature']})"


def test_scored_and_distilled_pairs_may_name_their_languages(tmp_path: Path) -> None:
    teacher, languages = tmp_path / "teacher", ModelLanguages(("en",), {"de": 4, "fr": 5})
    save_checkpoint(Checkpoint(make_model(vocabulary_size=290), TOKENIZER, "en", "de", languages=languages), teacher)
    pairs = write_pairs(tmp_path / "pairs.tsv", PAIRS[:3])
    distill = ("distill", teacher, "--out", tmp_path / "out.tsv", "--beam-size", 1, "--pairs", f"en:fr={pairs}")
    assert_failed(invoke(*distill, "--pairs", f"en:de={pairs}"), "target_language: fr, de are several")
    assert invoke(*distill).exit_code == 0
    score = ("checkpoint", "score", teacher, "--beam-size", 1, "--json")
    named, given = invoke(*score, f"en:fr={pairs}"), invoke(*score, pairs, "--target-language", "fr")
    assert (named.exit_code, named.stdout) == (0, given.stdout)
    assert_failed(invoke(*score, f"en:fr={pairs}", "--target-language", "de"), "target_language: de, fr are several")
    other = ("distill", teacher, "--out", tmp_path / "other.tsv", "--pairs", f"fr:de={pairs}")
    for command in ((*score, f"fr:de={pairs}"), other):
        assert_failed(invoke(*command), "source_language: the model does not translate from 'fr', but from en")


def test_scoring_errors_are_printed_as_one_line(tmp_path: Path, teacher: Path) -> None:
    long = write_pairs(tmp_path / "long.tsv", [(" ".join(["three"] * 40), "long")])
    assert_failed(invoke("checkpoint", "score", teacher, long), "the model takes at most 32")
    out = invoke("checkpoint", "score", teacher, long, "--out", tmp_path / "none/out.txt")
    assert (out.exit_code, "none/out.txt" in out.stderr) == (1, True)
    save_file({"x": torch.zeros(1)}, str(teacher / "model.safetensors"))
    assert_failed(invoke("checkpoint", "score", teacher, write_pairs(tmp_path / "pairs.tsv")), "unexpected x")
