"""GPU recipes: the program accepts all of their commands, and whole rehearsals run."""

import gzip
import lzma
import os
import random
import subprocess
import sys
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import pytest

from triptych_cli.main import cli
from triptych_training.checkpoints.translation import load_checkpoint
from triptych_training.data.languages import ModelLanguages

from .toy_pictures import write_pictures

RECIPES = Path(__file__).parents[3] / "training/recipes/gpu"
NOUNS = {
    **{"dog": ("Hund", "chien"), "cat": ("Kater", "chat"), "man": ("Mann", "homme"), "bird": ("Vogel", "oiseau")},
    **{"cook": ("Koch", "cuisinier"), "king": ("König", "roi"), "son": ("Sohn", "fils"), "bear": ("Bär", "ours")},
}
VERBS = {
    **{"sleeps": ("schläft", "dort"), "eats": ("isst", "mange"), "runs": ("rennt", "court"), "sings": ("singt", "chante")},
    **{"laughs": ("lacht", "rit"), "waits": ("wartet", "attend")},
}
ADVERBS = {
    **{"now": ("jetzt", "maintenant"), "here": ("hier", "ici"), "there": ("dort", "là"), "today": ("heute", "aujourd'hui")},
    **{"often": ("oft", "souvent"), "alone": ("allein", "seul"), "too": ("auch", "aussi"), "again": ("wieder", "encore")},
}
HELD_OUT = 300  # sentences of the validation sets: export needs 200 of each language
# Arguments of each script, and the runs that it trains.
SCRIPTS = {
    "en-de.sh": ((), ["en-de-teacher", "en-de-student"]),
    "teacher.sh": ((), ["teacher"]),
    "pair.sh": (("en-fr",), ["en-fr"]),
    "multilingual.sh": ((), ["multilingual"]),
    "base.sh": ((), ["base"]),
    "multi30k.sh": ((), ["multi30k-1", "multi30k-2", "multi30k-3"]),
    "bert-en.sh": ((), ["bert-en"]),
    "vit-cifar10.sh": ((), ["mixed", "vit-cifar10"]),
}
# Fake program: logs its arguments, tabs between them, and writes the files that the recipes look for.
FAKE = """#!/usr/bin/env bash
(IFS=$'\\t'; echo "$*") >>{log}
arguments=("$@")
for ((i = 0; i < $#; i++)); do [ "${{arguments[i]}}" = --out ] && out=${{arguments[i + 1]}}; done
case "$1 $2" in
  train*) mkdir -p "$out/model"; touch "$out/model/model.safetensors"; echo "$out/{made}" ;;
  distill*) touch "$out" ;;
  "checkpoint score") echo '{{"bleu": 40.0, "signature": "a", "literature": 41.0, "literature_signature": "b"}}' ;;
esac
"""


def sentences() -> list[tuple[str, str, str]]:
    """Make sentences in English, German and French, shuffled."""
    made = [
        (f"The {noun} {verb} {adverb}.", f"Der {n[0]} {v[0]} {a[0]}.", f"Le {n[1]} {v[1]} {a[1]}.")
        for noun, n in NOUNS.items()
        for verb, v in VERBS.items()
        for adverb, a in ADVERBS.items()
    ]
    random.Random(1).shuffle(made)
    return made


PAIRS = [f"{english}\t{german}" for english, german, _ in sentences()[HELD_OUT:]]


def pack(path: Path, lines: list[str]) -> None:
    text = "".join(f"{line}\n" for line in lines).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lzma.compress(text) if path.suffix == ".xz" else gzip.compress(text))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make up the data files that the recipes read."""
    root, all_of_them = tmp_path_factory.mktemp("data"), sentences()
    for number, other in enumerate(("de", "fr"), start=1):
        pairs = [f"{each[0]}\t{each[number]}" for each in all_of_them]
        pack(root / f"parallel/tatoeba.en-{other}.train.tsv.gz", pairs[HELD_OUT:360])
        pack(root / f"parallel/tatoeba.en-{other}.valid.tsv.gz", pairs[100 * number - 100 : 100 * number + 100])
        pack(root / f"parallel/docs-gnome.en-{other}.tsv.gz", pairs[360:372])
        pack(root / f"parallel/docs-moz.en-{other}.tsv.gz", pairs[372:])
    for column, language in enumerate(("en", "de", "fr")):
        for name, part in (("train", all_of_them[200:]), ("val", all_of_them[:200]), ("test_2016_flickr", all_of_them[:9])):
            pack(root / f"multi30k/{name}.{language}.gz", [each[column] for each in part])
    english = [f"{first[0][:-1]} and then {second[0].lower()}" for first, second in pairwise(all_of_them)]
    story = [" ".join(english[start : start + 8]) for start in range(0, len(english), 8)]
    for name in ("wikipedia_en.train", "wikipedia_en.valid", "books_en.train"):
        pack(root / f"text/{name}.txt.xz", [line for paragraph in story for line in (paragraph, "")])
    write_pictures(root / "pictures", each=24)
    return root


def environment(data: Path, recipe: str, path: Path, **more: str) -> Mapping[str, str]:
    kinds = {"multi30k.sh": "multi30k", "bert-en.sh": "", "en-de.sh": "", "vit-cifar10.sh": "pictures"}
    settings = {"DATA": str(data / kinds.get(recipe, "parallel")), "REHEARSAL": "1", "OMP_NUM_THREADS": "1", **more}
    return {**os.environ, **settings, "PATH": f"{path}:{os.environ['PATH']}"}


def start(recipe: str, arguments: tuple[Any, ...], env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a recipe; the mixes, which need all of the real files, are made up."""
    made_up = {
        "en-de.sh": ("mix/train.tsv.gz", PAIRS),
        "bert-en.sh": ("mix.txt.gz", [line for pair in PAIRS for line in (pair, "")]),
    }
    if recipe in made_up:
        name, lines = made_up[recipe]
        pack(arguments[0] / name, lines)
    command = [str(RECIPES / recipe), *map(str, arguments)]
    return subprocess.run(command, env=dict(env), capture_output=True, text=True, check=False, timeout=900)


def fake(folder: Path, finishes: bool = True) -> Path:
    """Make a folder with a fake `triptych` that logs its calls to `calls` beside the folder."""
    program = folder / "bin/triptych"
    program.parent.mkdir(parents=True)
    program.write_text(FAKE.format(log=folder / "calls", made="model" if finishes else "state.pt"))
    program.chmod(0o755)
    return program.parent


def calls(folder: Path) -> list[list[str]]:
    return [line.split("\t") for line in (folder / "calls").read_text().splitlines()]


def parse(arguments: list[str]) -> click.Context:
    """Parse a command line as the program does, without running it."""
    command: click.Command = cli
    context = click.Context(command, info_name="triptych")
    while isinstance(command, click.Group):
        found = command.get_command(context, arguments[0])
        assert found is not None, arguments
        command, arguments = found, arguments[1:]
    return command.make_context(command.name, arguments, parent=context)


def test_all_recipes_are_tested() -> None:
    assert {path.name for path in RECIPES.glob("*.sh")} == {*SCRIPTS, "common.sh", "data.sh"}


@pytest.mark.parametrize("rehearsal", [pytest.param("1", id="rehearsal", marks=pytest.mark.full), pytest.param("", id="real")])
@pytest.mark.parametrize("recipe", SCRIPTS)
def test_every_command_of_a_recipe_can_be_parsed(tmp_path: Path, data: Path, recipe: str, rehearsal: str) -> None:
    given, runs = SCRIPTS[recipe]
    env = environment(data, recipe, fake(tmp_path), REHEARSAL=rehearsal)
    result = start(recipe, (tmp_path / "work", *given, tmp_path / "models"), env)
    assert result.returncode == 0, result.stderr
    made = calls(tmp_path)
    trained = [parse(call) for call in made if call[0] == "train"]
    assert [Path(context.params["out"]).name for context in trained] == runs
    assert all(context.params["compile"] is False for context in trained) or not rehearsal
    for call in made:
        parse(call)
    verbs = {" ".join(call[:2]) if call[0] in ("checkpoint", "evaluate") else call[0] for call in made}
    assert {"train", "checkpoint pack"} <= verbs
    assert ("export" in verbs) == (recipe != "teacher.sh")
    assert ("distill" in verbs) == (recipe in ("en-de.sh", "pair.sh", "multilingual.sh"))


def test_time_limits_pauses_and_seeds(tmp_path: Path, data: Path) -> None:
    env = environment(data, "base.sh", fake(tmp_path), REHEARSAL="", MINUTES="3.5", PAUSE_MINUTES="2")
    assert start("base.sh", (tmp_path / "work",), env).returncode == 0
    [call] = [call for call in calls(tmp_path) if call[0] == "train"]
    parameters = parse(call).params
    assert (parameters["max_minutes"], parameters["pause_minutes"], parameters["resume"]) == (3.5, 2.0, True)
    assert (parameters["schedule"], parameters["compile"], parameters["encoder_layers"]) == ("linear", True, 6)
    env = environment(data, "base.sh", fake(tmp_path / "paused", finishes=False))
    result = start("base.sh", (tmp_path / "paused/work",), env)
    assert result.returncode == 75
    assert "base is not finished; run the same command again to continue" in result.stderr
    assert [call[0] for call in calls(tmp_path / "paused")] == ["train"]
    env = environment(data, "multi30k.sh", fake(tmp_path / "seeds"))
    result = start("multi30k.sh", (tmp_path / "seeds/work",), env)
    assert "literature: mean 41.00, standard deviation 0.00, of 41.00, 41.00, 41.00" in result.stdout
    assert "bleu: mean 40.00, standard deviation 0.00, of 40.00, 40.00, 40.00" in result.stdout
    assert [parse(call).params["seed"] for call in calls(tmp_path / "seeds") if call[0] == "train"] == [1, 2, 3]


def test_the_program_may_have_another_command(tmp_path: Path, data: Path) -> None:
    program = fake(tmp_path) / "triptych"
    program.rename(tmp_path / "other")
    env = environment(data, "bert-en.sh", tmp_path, TRIPTYCH=f"bash {tmp_path / 'other'}")
    assert start("bert-en.sh", (tmp_path / "work",), env).returncode == 0
    assert [call[0] for call in calls(tmp_path)] == ["train", "checkpoint"]


def test_several_gpus_use_torchrun(tmp_path: Path, data: Path) -> None:
    folder = fake(tmp_path)
    launcher = folder / "torchrun"
    launcher.write_text(f'#!/usr/bin/env bash\necho "$*" >>{tmp_path}/launches\nshift 5\nexec triptych "$@"\n')
    launcher.chmod(0o755)
    env = environment(data, "pair.sh", folder, GPUS="4")
    result = start("pair.sh", (tmp_path / "work", "de-en"), env)
    assert result.returncode == 0, result.stderr
    launches = (tmp_path / "launches").read_text().splitlines()
    assert [line.split()[:6] for line in launches] == [
        ["--standalone", "--nproc-per-node", "4", "-m", "triptych_cli", verb] for verb in ("distill", "train")
    ]


def test_validation_sentences_are_removed_from_training_sets(tmp_path: Path, data: Path) -> None:
    env = environment(data, "base.sh", fake(tmp_path))
    leaky = tmp_path / "leaky"
    leaky.mkdir()
    for path in (data / "parallel").iterdir():
        (leaky / path.name).write_bytes(path.read_bytes())
    pairs = [f"{each[0]}\t{each[2]}" for each in sentences()]
    pack(leaky / "tatoeba.en-fr.train.tsv.gz", pairs)  # includes both validation sets
    result = start("base.sh", (tmp_path / "work",), {**env, "DATA": str(leaky)})
    assert result.returncode == 0, result.stderr
    with gzip.open(tmp_path / "work/data/tatoeba.en-fr.tsv.gz", "rt") as file:
        assert file.read().splitlines() == pairs[HELD_OUT:]
    with gzip.open(tmp_path / "work/data/tatoeba.fr-en.tsv.gz", "rt") as file:
        english, _, french = sentences()[HELD_OUT]
        assert file.readline() == f"{french}\t{english}\n"


# Recipes in order, the exported models, the packed checkpoints.
REHEARSALS = {
    "translation": (("teacher.sh", "pair.sh", "multilingual.sh"), {"en-fr", "en-de-fr"}, ("teacher", "en-fr", "multilingual")),
    "base": (("base.sh",), {"base-en-de"}, ("base",)),
    "multi30k": (("multi30k.sh",), {"multi30k-en-de"}, ("multi30k-1", "multi30k-2")),
    "en-de": (("en-de.sh",), {"en-de-student"}, ("en-de-student",)),
    "bert-en": (("bert-en.sh",), {"bert-en"}, ("bert-en",)),
    "vit-cifar10": (("vit-cifar10.sh",), {"vit-cifar10"}, ("vit-cifar10",)),
}


@pytest.mark.full
@pytest.mark.parametrize(("recipes", "exported", "packed"), REHEARSALS.values(), ids=REHEARSALS)
def test_recipes_can_be_rehearsed(
    tmp_path: Path, data: Path, recipes: tuple[str, ...], exported: set[str], packed: tuple[str, ...]
) -> None:
    """Run the same commands with tiny models, which may lose more in int8 than trained ones; export makes its other checks."""
    work, models, program = tmp_path / "work", tmp_path / "models", tmp_path / "triptych"
    program.write_text(
        "#!/usr/bin/env bash\n"
        "inexact=(); if [ $1 = export ]; then inexact=(--allow-inexact); fi\n"
        f'exec {sys.executable} -m triptych_cli "$@" "${{inexact[@]}}"\n'
    )
    program.chmod(0o755)
    more = {"TRIPTYCH": str(program), "HOLD_OUT": "36", "SEQUENCE_LENGTH": "32", "SEEDS": "1 2"}
    for recipe in recipes:
        given, _ = SCRIPTS[recipe]
        arguments = (work, *given) if recipe == "teacher.sh" else (work, *given, models)
        result = start(recipe, arguments, environment(data, recipe, tmp_path, **more))
        assert result.returncode == 0, f"{recipe}\n{result.stdout}\n{result.stderr}"
    assert {path.name for path in models.iterdir() if path.is_dir()} == exported
    assert [(work / f"{name}.json").exists() for name in packed] == [True] * len(packed)
    if "multilingual" in packed:
        assert load_checkpoint(work / "multilingual/model").languages.targets.keys() == {"de", "en", "fr"}
        assert load_checkpoint(work / "en-fr/model").languages == ModelLanguages()
