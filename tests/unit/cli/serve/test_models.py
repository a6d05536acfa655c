"""Flags of `triptych serve` about models, and the verbs that load and unload them."""

from pathlib import Path

import pytest

from triptych_serving import server
from triptych_serving.repository.model_manager import ModelControl, RepositoryOptions
from triptych_serving.repository.warmup import WarmUp
from triptych_serving.server import ServerOptions

from ....fixtures.toy import MODELS, copy_bundle
from ..conftest import Run


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[RepositoryOptions]:
    """Where servers would have found their models."""
    served: list[RepositoryOptions] = []

    async def serve(options: ServerOptions) -> None:
        served.append(options.repository)

    monkeypatch.setattr(server, "serve", serve)
    return served


def test_by_default_the_embedded_models_stay_as_they_are(run: Run, served: list[RepositoryOptions]) -> None:
    assert run("serve").code == 0
    [options] = served
    assert options.root.name == "repository"
    assert (options.model, options.control, options.load_models) == ("", ModelControl.NONE, ())
    assert (options.poll_seconds, options.warm_up) == (15.0, WarmUp.ALL)


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (["--model", "toy", "--warm-up", "none"], RepositoryOptions(MODELS, "toy", warm_up=WarmUp.NONE)),
        (["--model-control", "poll", "--poll-interval-secs", "2"], RepositoryOptions(MODELS, "", ModelControl.POLL, 2.0)),
        (
            ["--model-control", "explicit", "--load-model", "a", "--load-model", "b"],
            RepositoryOptions(MODELS, "", ModelControl.EXPLICIT, load_models=("a", "b")),
        ),
    ],
)
def test_options(run: Run, served: list[RepositoryOptions], arguments: list[str], options: RepositoryOptions) -> None:
    assert run("serve", "--models", MODELS, *arguments).code == 0
    assert served == [options]


def test_the_environment_names_several_models(
    run: Run, served: list[RepositoryOptions], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIPTYCH_LOAD_MODEL", "a b")
    monkeypatch.setenv("TRIPTYCH_MODEL_CONTROL", "explicit")
    assert run("serve").code == 0
    assert served[0].load_models == ("a", "b")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--poll-interval-secs", "2"], "--poll-interval-secs has no effect without --model-control poll"),
        (["--load-model", "a"], "--load-model has no effect without --model-control explicit"),
        (["--model-control", "poll", "--load-model", "a"], "--load-model has no effect without --model-control explicit"),
        (["--model-control", "explicit", "--model", "a"], "--model is not for --model-control explicit"),
        (["--model-control", "poll", "--poll-interval-secs", "0"], "0.0 is not in the range"),
        (["--model-control", "often"], "'often' is not one of 'none', 'poll', 'explicit'"),
    ],
)
def test_flags_without_effect_are_refused(
    run: Run, served: list[RepositoryOptions], arguments: list[str], problem: str
) -> None:
    result = run("serve", *arguments)
    assert result.code == 2
    assert problem in result.error
    assert not served


def test_versions_of_a_repository_have_labels(run: Run, tmp_path: Path) -> None:
    for version in (1, 2, 3):
        copy_bundle(tmp_path, version=version)
    (tmp_path / "toy" / "model.json").write_text('{"labels": {"stable": 2, "canary": 3}}')
    lines = [line.split()[:4] for line in run("models", "--models", tmp_path).out.splitlines()]
    assert lines[1:] == [
        ["toy", "1", "translation", "en"],
        ["toy", "2", "stable", "yes"],
        ["toy", "3", "canary", "translation"],
    ]
    (tmp_path / "toy" / "model.json").write_text('{"labels": []}')
    assert "labels is not an object" in run("models", "--models", tmp_path).out


@pytest.mark.parametrize("verb", ["load", "unload"])
def test_without_a_server_nothing_is_loaded(run: Run, verb: str) -> None:
    result = run(verb, "toy", "--server", "127.0.0.1:1", "--timeout-secs", "0.5")
    assert result.code == 1
    assert result.error
