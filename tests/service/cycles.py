"""Loads and unloads models again and again, with some work in between; says after each round what the process holds.

python -m tests.service.cycles REPOSITORY ROUNDS
"""

import asyncio
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from triptych_serving.decoding.engine import EngineOptions
from triptych_serving.encoding.options import EncoderOptions
from triptych_serving.models.model import Model
from triptych_serving.models.translation.translator import TranslatorOptions
from triptych_serving.repository.loading import Loader
from triptych_serving.repository.model_manager import ModelControl, ModelManager, RepositoryOptions
from triptych_serving.repository.warmup import WarmUp


@dataclass(frozen=True)
class Holdings:
    """Of one process."""

    resident_bytes: int
    threads: int
    files: int
    maps: int  # mappings of files

    @classmethod
    def of(cls, process: psutil.Process) -> "Holdings":
        maps = [path for path in Path(f"/proc/{process.pid}/maps").read_text().splitlines() if "/" in path]
        return cls(process.memory_info().rss, process.num_threads(), process.num_fds(), len(maps))


async def main(repository: Path, rounds: int) -> None:
    async def idle(model: Model) -> None:
        """Nobody uses one."""

    loader = Loader(TranslatorOptions(engine=EngineOptions(workers=2, slots=4)), EncoderOptions(runs=2), WarmUp.ALL)
    manager = ModelManager(RepositoryOptions(repository, control=ModelControl.EXPLICIT), loader, idle)
    await manager.start()
    names = sorted({each.name for each in await manager.index()})
    for _ in range(rounds):
        for name in names:
            await manager.load(name)
            await manager.unload(name)
        print(json.dumps(asdict(Holdings.of(psutil.Process()))), flush=True)  # noqa: T201
    await manager.close(drain=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
