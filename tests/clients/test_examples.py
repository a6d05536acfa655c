"""The code blocks of the README and the guides, executed as they are written.

The blocks of a page run in order, in one shell and one folder, which has the files that the page names. `triptych serve` runs
in the background until the next one or the end of the page; ports are free ones, `pip` does nothing, and benchmarks are short.
A block that cannot run here says why in the line before it: `<!-- not run: needs a GPU -->`.

By default, Python and the commands of the most important pages run without a shell, in the process of the tests.
"""

import ast
import gzip
import json
import os
import re
import runpy
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from PIL import Image

from triptych_embedded.request import embedded_repository

from ..service.support.in_process import local_server
from ..service.support.processes import clean_environment, free_port
from ..unit.cli.conftest import Run, run
from ..unit.documents.formats.office import docx

__all__ = ["run"]  # a fixture: a command in this process

ROOT = Path(__file__).parents[2]
GUIDES = {path.relative_to(ROOT).as_posix() for path in (ROOT / "serving" / "docs").glob("*.md")}
QUICK_PAGES = [
    "README.md",
    "protos/README.md",
    "serving/README.md",
    "serving/docs/generation.md",
    "serving/docs/open-inference.md",
]
PAGES = sorted({*QUICK_PAGES, *GUIDES, "serving/deploy/README.md", "export/README.md", "training/README.md"})
CLIENT = ROOT / "serving" / "triptych_client"
CODE = re.compile(
    r"(?:<!-- (?P<note>[^\n]+) -->\n)?```(?P<kind>bash|sh|python|js|json)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
NOT_RUN = re.compile(r"not run: .+")
CONTINUES = "continues the last example"
QUICK_COMMAND = re.compile(r"^triptych (?!serve|bench|export|.*--server)(.+)$", re.MULTILINE)
EMBEDDED_CALL = re.compile(r"\bclient\.(?!generate|neighbors|complete_image)")  # there are embedded models for the others
INDENTED = re.compile(r"(?:^    .*\n|^\n(?=    ))+", re.MULTILINE)
PAGE_SECONDS = 1_200.0
SHELL = """set -euo pipefail
trap 'echo "failed: $block" >&2' ERR
trap '[[ ! -v server ]] || { kill $server; wait $server || true; }' EXIT
pip() { :; }
curl() { command curl --fail "$@"; }
triptych() {
  if [[ $1 == bench ]]; then  # on a busy machine a load may not settle
    command triptych "$@" | tee bench.out || grep -q 'invalid: it did not settle' bench.out
    return
  fi
  if [[ $1 != serve ]]; then command triptych "$@"; return; fi
  if [[ -v server ]]; then kill $server; wait $server || true; fi
  : >server.log  # what an earlier server wrote must not count
  command triptych "$@" >server.log 2>&1 &
  server=$!
  until grep -qs ' ready on ' server.log; do
    kill -0 $server || { cat server.log >&2; return 1; }
    sleep 0.1
  done
}
type -P grpcurl >/dev/null || grpcurl() {  # buf does the same
  local body={}
  while [[ $1 == -* ]]; do case $1 in -d) body=${2/#@/@-}; shift 2;; *) shift;; esac; done
  case $2 in
    list|describe) "$BUF" curl --protocol grpc --http2-prior-knowledge --list-methods "http://$1";;
    *) "$BUF" curl --protocol grpc --http2-prior-knowledge -d "$body" "http://$1/$2";;
  esac
}
"""
SHORT_BENCHMARKS = {
    "TRIPTYCH_MEASURE_SECS": "0.3",
    "TRIPTYCH_WARM_UP_SECS": "0.1",
    "TRIPTYCH_MAX_WINDOWS": "3",
    "TRIPTYCH_STABILITY_PERCENT": "100",
    "TRIPTYCH_RESOLUTION_PERCENT": "50",
}


@dataclass(frozen=True)
class Block:
    """A block of code; `place` is page and line."""

    place: str
    kind: str
    text: str

    @property
    def commands(self) -> str:
        """Shell commands that run the block."""
        if self.kind == "json":
            json.loads(self.text)
            return ""
        if self.kind in ("bash", "sh"):
            return re.sub(r"^(triptych serve\b.*) &$", r"\1", self.text, flags=re.MULTILINE)
        return f"{'node' if self.kind == 'js' else 'python'} - <<'EXAMPLE'\n{self.text}EXAMPLE\n"


RunBlock = Callable[[Block], object]


def blocks_of(page: str) -> Iterator[Block]:
    text, earlier = (ROOT / page).read_text(encoding="utf-8"), ""
    for found in CODE.finditer(text):
        note, kind, code = found["note"] or "", found["kind"], found["text"]
        if not NOT_RUN.fullmatch(note):
            code = earlier + code if note == CONTINUES else code
            yield Block(f"{page}:{text.count(chr(10), 0, found.start()) + 1}", kind, code)
        earlier = code


def docstring_examples() -> Iterator[Block]:
    """Yield the indented code in the docstrings of the Python client that uses a client and embedded models."""
    for path in sorted(CLIENT.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for code in INDENTED.findall(f"{ast.get_docstring(node) or ''}\n"):
                if EMBEDDED_CALL.search(code) and not code.lstrip().startswith(("*", "-")):
                    yield Block(f"{path.name}:{getattr(node, 'name', '')}", "python", as_program(code))


def as_program(code: str) -> str:
    """Make a program of an example that may use a client without making one."""
    kind = "AsyncClient" if "async " in code else "Client"
    beginning = f'from triptych_client import {kind}\n    client = {kind}("localhost:8001")\n'
    return f"import asyncio\n\nasync def main():\n    {beginning}{code}\nasyncio.run(main())\n"


def needs_package(block: Block) -> bool:
    return block.kind == "js" or "grpcurl" in block.text


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that looks like the repository's, with the files that the pages name."""
    for name in ("serving", "tests", "export", "training"):
        (tmp_path / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "protos", tmp_path / "protos")
    for name in ("path/to/checkpoint", "runs/en-de/model"):
        shutil.copytree(ROOT / "tests" / "fixtures" / "checkpoint", tmp_path / name)
    pairs = (ROOT / "tests" / "fixtures" / "checkpoint" / "samples.tsv").read_bytes()
    for name in ("valid.tsv.gz", "train.tsv.gz"):
        (tmp_path / name).write_bytes(gzip.compress(pairs))
    for name in ("cat.jpg", "dog.jpg", "cat.png"):
        Image.new("RGB", (40, 30), (90, 120, 60)).save(tmp_path / name)
    texts = {
        "letter.txt": "How are you?\nWhere is the station?\n",
        "pairs.tsv": "How are you?\tWie geht es dir?\nGood morning!\tGuten Morgen!\n",
        "valid.tsv": pairs.decode(),
        "notes.md": "# Notes\n\nThe house is small.\n",
        "manual/start.md": "# Start\n\nWhere is the *station*?\n",
        "reviewed.tmx": '<tmx version="1.4"><header srclang="en"/><body><tu><tuv xml:lang="en"><seg>Start</seg></tuv>'
        '<tuv xml:lang="de"><seg>Anfang</seg></tuv></tu></body></tmx>',
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "report.docx").write_bytes(docx("<w:p><w:r><w:t>Where is the station?</w:t></w:r></w:p>"))
    return tmp_path


def run_blocks(blocks: Sequence[Block], folder: Path, **variables: str) -> str:
    """Run blocks and return what they print."""
    script, port = [SHELL], str(free_port())
    serves = False
    for block in blocks:
        if not serves and "localhost:" in block.text and not re.search("^triptych serve", block.text, re.MULTILINE):
            script.append("triptych serve\n")
        serves = serves or "localhost:" in block.text or "triptych serve" in block.text
        script += [f"block={shlex.quote(block.place)}\n", block.commands]
    ports = {"8000": str(free_port()), "8001": port, "8002": str(free_port()), "8071": port}
    text = re.sub(r"\b(8000|8001|8002|8071)\b", lambda found: ports[found[0]], "".join(script))
    environment = {
        **clean_environment(),
        **SHORT_BENCHMARKS,
        **variables,
        "OMP_NUM_THREADS": "1",  # PyTorch's threads wait for each other, which takes hours on a busy machine
        "TRIPTYCH_HOST": "127.0.0.1",
        "TRIPTYCH_PORT": port,
        "TRIPTYCH_METRICS_PORT": ports["8002"],
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    (folder / "page.sh").write_text(text, encoding="utf-8")
    with (folder / "errors").open("w") as errors:
        shell = subprocess.Popen(
            ["bash", "page.sh"],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = shell.communicate(timeout=PAGE_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(shell.pid, signal.SIGTERM)
            raise
    assert shell.returncode == 0, output[-2000:] + (folder / "errors").read_text(encoding="utf-8")[-4000:]
    return output


@pytest.fixture(scope="module")
def embedded_models() -> Iterator[str]:
    """Address of a server in this process."""
    with local_server(embedded_repository()) as server:
        yield f"localhost:{server.port}"


@pytest.fixture
def run_python(folder: Path, embedded_models: str, monkeypatch: pytest.MonkeyPatch) -> RunBlock:
    """Run a block with the server, in the folder."""
    monkeypatch.chdir(folder)
    program = folder / "program.py"

    def run_block(block: Block) -> None:
        program.write_text(block.text.replace("localhost:8001", embedded_models), encoding="utf-8")
        runpy.run_path(str(program))

    return run_block


@pytest.mark.parametrize("page", QUICK_PAGES)
def test_python_and_commands_of_a_page_run(
    page: str, run_python: RunBlock, run: Run, embedded_models: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIPTYCH_SERVER", embedded_models)
    for block in blocks_of(page):
        if block.kind == "python":
            run_python(block)
        for command in QUICK_COMMAND.findall(block.text):
            assert run(*shlex.split(command, comments=True)).code == 0, block.place


def test_examples_in_docstrings_of_the_client_run(run_python: RunBlock, capfd: pytest.CaptureFixture[str]) -> None:
    for block in docstring_examples():
        run_python(block)
    assert capfd.readouterr().out.count("Guten Morgen!") == 5


@pytest.mark.full
@pytest.mark.parametrize("page", PAGES)
def test_the_blocks_of_a_page_run(page: str, folder: Path) -> None:
    run_blocks([block for block in blocks_of(page) if not needs_package(block)], folder)


@pytest.mark.full
def test_grpcurl_examples(folder: Path, buf: str) -> None:
    blocks = [block for block in blocks_of("protos/README.md") if "grpcurl" in block.text]
    assert '"translatedText": "Guten Morgen!"' in run_blocks(blocks, folder, BUF=buf)


@pytest.mark.full
def test_node_examples(folder: Path, node_client: Path) -> None:
    blocks = [block for block in blocks_of("protos/README.md") if block.kind == "js"]
    assert run_blocks(blocks, folder, NODE_PATH=str(node_client / "node_modules")).count("Guten Morgen!") == 2


def test_every_extra_that_a_page_installs_exists() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    for page in PAGES:
        for names in re.findall(r'-e "?\.\[([\w,]+)\]', (ROOT / page).read_text(encoding="utf-8")):
            assert set(names.split(",")) <= set(extras), page


def anchors_of(text: str) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_a_file_and_a_heading(page: str) -> None:
    path = ROOT / page
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)", path.read_text(encoding="utf-8")):
        linked = path.parent / target if target else path
        assert linked.exists(), target
        assert not anchor or anchor in anchors_of(linked.read_text(encoding="utf-8")), f"{target}#{anchor}"
