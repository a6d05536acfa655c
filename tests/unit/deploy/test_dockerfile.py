"""The image, as far as it can be looked at without being built; tests/image builds it."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from triptych_cli.main import COMMANDS

from ...image.dockerfile import DOCKERFILE, Step, environment, lineage, setting, stages, steps
from ...image.roots import is_in_context
from .files import DEPLOY, IMAGE, ROOT, serve_options

TARGETS = ["cpu", "cuda"]
PINS = dict(
    line.split("==")
    for path in (ROOT / "constraints.txt", DEPLOY / "constraints-cuda.txt")
    for line in path.read_text(encoding="utf-8").splitlines()
    if "==" in line
)


def test_hadolint_has_nothing_to_say() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    result = subprocess.run([hadolint, DOCKERFILE], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (0, "")


def test_nothing_here_can_be_imported() -> None:
    assert not [*DEPLOY.rglob("*.py")]  # in an editable install every folder of serving/ would be a package


def test_what_is_copied_is_there_and_let_into_the_context() -> None:
    copies = [copy for stage in IMAGE.values() for copy in stage.copies()]
    assert copies
    for origin, sources, _ in copies:
        assert not origin or origin in IMAGE
        if not origin:
            assert all((ROOT / source).exists() and is_in_context(source) for source in sources), sources


@pytest.mark.parametrize("target", TARGETS)
def test_a_server_runs_as_a_numbered_user_without_rights(target: str) -> None:
    user, _, group = setting(IMAGE, target, "USER").text.partition(":")
    assert int(user) > 0
    assert int(group) > 0
    after_user = [stage.steps for stage in lineage(IMAGE, target)][-1]
    assert "RUN" not in {step.name for step in after_user}, "what runs there would run as the user"


@pytest.mark.parametrize("target", TARGETS)
def test_a_server_is_started_and_asked_without_a_shell(target: str) -> None:
    assert setting(IMAGE, target, "ENTRYPOINT").exec_form == ["triptych", "serve"]
    program, verb, *rest = setting(IMAGE, target, "HEALTHCHECK").exec_form
    assert (program, rest) == ("triptych", [])
    assert verb in COMMANDS
    assert setting(IMAGE, target, "STOPSIGNAL").text == "SIGTERM"


def test_the_ports_are_those_of_the_server() -> None:
    defaults = serve_options([])
    assert setting(IMAGE, "cpu", "EXPOSE").words == [str(defaults["port"]), str(defaults["metrics_port"])]


def test_the_extras_are_there() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    text = DOCKERFILE.read_text(encoding="utf-8")
    named = {extra for group in re.findall(r"\.whl\)\[([\w,]+)\]", text) for extra in group.split(",")}
    assert named >= {"serve", "cuda"}
    assert named <= set(extras)


def test_both_images_have_the_same_runtime() -> None:
    assert PINS["onnxruntime-gpu"] == PINS["onnxruntime"]


def test_libraries_of_cuda_are_found_where_they_are_put() -> None:
    paths = environment(IMAGE, "cuda", {})["LD_LIBRARY_PATH"].split(":")
    link = re.search(r"ln -s .* (/\S+)", DOCKERFILE.read_text(encoding="utf-8"))
    assert link
    assert paths
    assert all(path.startswith(f"{link[1]}/") for path in paths)


def test_instructions_are_read_as_docker_reads_them() -> None:
    text = 'ARG A=b\n# no\nFROM $A AS one\nENV X=1 \\\n    Y=$X\nFROM one AS two\nHEALTHCHECK --interval=1s CMD ["x"]\n'
    assert [*steps(text)][:2] == [Step("ARG", "A=b"), Step("FROM", "$A AS one")]
    found = stages(text)
    assert (found["one"].parent, found["two"].parent) == ("b", "one")
    assert environment(found, "two", {}) == {"X": "1", "Y": ""}  # as Docker: values count from the next instruction on
    assert setting(found, "two", "HEALTHCHECK").exec_form == ["x"]
