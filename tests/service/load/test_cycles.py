"""Resources after repeated loading and unloading of models.

Run as a script (`python -m tests.service.load.test_cycles REPOSITORY ROUNDS`), it prints its resources after each round.
"""

import asyncio
import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
import pytest

from triptych_serving.decoding.engine import EngineOptions
from triptych_serving.encoding.options import EncoderOptions
from triptych_serving.models.decode_model import DecodeModelOptions
from triptych_serving.models.model import Model
from triptych_serving.repository.loading import Loader
from triptych_serving.repository.model_manager import ModelControl, ModelManager, RepositoryOptions
from triptych_serving.repository.warmup import WarmUp

from ...fixtures.toy import copy_models
from ..support.processes import PATIENCE_SECONDS, clean_environment

ROOT = Path(__file__).parents[3]
SETTLING = 2  # rounds until arenas and thread pools have reached their size
LAST = 2  # rounds
GROWTH_BYTES = 12 << 20  # of the process in total; each round maps and allocates 40 MB and more
GROWING_THREADS = 4  # of a pool that creates them one by one


@dataclass(frozen=True)
class Resources:
    """Resources of a process."""

    resident_bytes: int
    threads: int
    files: int
    maps: int  # mappings of files

    @classmethod
    def of(cls, process: psutil.Process) -> "Resources":
        maps = [path for path in Path(f"/proc/{process.pid}/maps").read_text().splitlines() if "/" in path]
        return cls(process.memory_info().rss, process.num_threads(), process.num_fds(), len(maps))


async def main(repository: Path, rounds: int) -> None:
    async def idle(model: Model) -> None:
        """Do nothing: no caller uses the model."""

    loader = Loader(DecodeModelOptions(engine=EngineOptions(workers=2, slots=4)), EncoderOptions(runs=2), WarmUp.ALL)
    manager = ModelManager(RepositoryOptions(repository, control=ModelControl.EXPLICIT), loader, idle)
    await manager.start()
    names = sorted({each.name for each in (await manager.index()).models})
    for _ in range(rounds):
        for name in names:
            await manager.load(name)
            await manager.unload(name)
        print(json.dumps(asdict(Resources.of(psutil.Process()))), flush=True)  # noqa: T201
    await manager.close()


def measure(models: Path, rounds: int) -> list[Resources]:
    command = [sys.executable, "-m", "tests.service.load.test_cycles", str(models), str(rounds)]
    result = subprocess.run(
        command, cwd=ROOT, env=clean_environment(), capture_output=True, text=True, timeout=20 * PATIENCE_SECONDS, check=False
    )
    assert result.returncode == 0, result.stderr
    return [Resources(**json.loads(line)) for line in result.stdout.splitlines()]


@pytest.mark.parametrize("rounds", [5, pytest.param(100, marks=pytest.mark.full)])
def test_loading_and_unloading_leaves_nothing_behind(tmp_path: Path, rounds: int) -> None:
    found = measure(copy_models(tmp_path), rounds)
    assert len(found) == rounds
    first, later = found[SETTLING], found[SETTLING:]
    # A file may be open for a moment; one that leaks stays.
    assert min(each.files for each in later[-LAST:]) <= first.files
    assert min(each.maps for each in later[-LAST:]) <= first.maps
    assert later[-1].threads <= first.threads + GROWING_THREADS
    half = len(later) // 2
    assert max(each.resident_bytes for each in later[half:]) - first.resident_bytes < GROWTH_BYTES * (1 + rounds // 100)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
