"""Workers for documents: threads for small ones, for large ones a process each."""

import asyncio
import os
import pickle
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

from triptych_documents.interruption import checkpoint, interruptible
from triptych_serving.errors import EngineError, InvalidInputError
from triptych_serving.runtime.cpu_info import usable_cpus
from triptych_serving.runtime.process import NICENESS
from triptych_serving.services.documents.work import SIZE, DocumentWork, framed, unpacked_bytes

# A document of this size stops the server's other threads for up to 50 ms: neither a search in a long text nor the collection
# of garbage lets them run. A larger one has a process, whose start takes 0.2 s of CPU time.
SMALL_BYTES = 64 * 1024
BUFFER_BYTES = 1 << 20  # of a result that is received
HEAVY = (DocumentWork.read, DocumentWork.render)  # of a whole document

Result = TypeVar("Result")


class DocumentWorker(ABC):
    """Does the work on one document, one call after another."""

    @abstractmethod
    async def call(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Call a method of DocumentWork; `read` and `render` take turns with those of other documents.

        Raises:
            ServingError: of the method, or the work cannot be done any more.
        """


class DocumentWorkers:
    """Makes workers for documents, whose work must not block the event loop or other callers' texts.

    Threads are started when they are first needed. One small document is read or written at a time, and as many large ones as
    there are CPUs.

    Args:
        begin: first action of each thread, which lowers its priority; then processes have a lower priority, too.
    """

    def __init__(self, begin: Callable[[], None] | None = None) -> None:
        self._niceness = NICENESS if begin else 0
        self._heavy, self._light = (ThreadPoolExecutor(1, f"triptych-{kind}", begin) for kind in ("document", "segments"))
        self._turns = asyncio.Semaphore(usable_cpus())  # of large documents

    @asynccontextmanager
    async def worker(self, data: bytes, work: DocumentWork) -> AsyncIterator[DocumentWorker]:
        """Return a worker for a document, which stops when the context is left. Raises EngineError: it cannot be started."""
        if len(data) <= SMALL_BYTES and unpacked_bytes(data) <= SMALL_BYTES:  # a large archive takes seconds to list
            stop = threading.Event()
            try:
                yield _ThreadWorker(work, self._heavy, self._light, stop)
            finally:
                stop.set()
            return
        options = "-P", "-m"  # modules of the current folder must not replace others
        command, pipe = (sys.executable, *options, DocumentWork.__module__, str(self._niceness)), asyncio.subprocess.PIPE
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        try:
            process = await asyncio.create_subprocess_exec(
                *command, stdin=pipe, stdout=pipe, limit=BUFFER_BYTES, env=environment, start_new_session=True
            )
        except OSError as error:  # such as too many open files
            raise EngineError(f"the process of the document cannot be started: {error.strerror}") from error
        try:
            worker = _ProcessWorker(process, self._turns)
            await worker.send(framed(work))
            yield worker
        finally:
            with suppress(ProcessLookupError):  # it has ended
                process.kill()
            await process.communicate()  # reads the rest: `wait` would wait for the end of an output that nobody reads

    def close(self) -> None:
        """Drop all tasks that have not started."""
        for pool in (self._heavy, self._light):
            pool.shutdown(wait=False, cancel_futures=True)


class _ThreadWorker(DocumentWorker):
    def __init__(self, work: DocumentWork, heavy: Executor, light: Executor, stop: threading.Event) -> None:
        self._work, self._heavy, self._light, self._stop = work, heavy, light, stop

    async def call(self, function: Callable[..., Result], *arguments: Any) -> Result:
        pool = self._heavy if function in HEAVY else self._light
        return await asyncio.get_running_loop().run_in_executor(pool, self._run, function, arguments)

    def _run(self, function: Callable[..., Result], arguments: tuple[Any, ...]) -> Result:
        with interruptible(self._stop):
            checkpoint()
            return function(self._work, *arguments)


class _ProcessWorker(DocumentWorker):
    def __init__(self, process: asyncio.subprocess.Process, turns: asyncio.Semaphore) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process, self._input, self._output, self._turns = process, process.stdin, process.stdout, turns

    async def send(self, parts: Iterable[bytes]) -> None:
        """Send a call. Raises EngineError: the process has ended."""
        try:
            self._input.writelines(parts)
            await self._input.drain()
        except ConnectionError:
            raise await self._ended() from None

    async def call(self, function: Callable[..., Result], *arguments: Any) -> Result:
        if function not in HEAVY:
            result: Result = await self._call(framed((function.__name__, arguments)))
        else:
            async with self._turns:
                result = await self._call(await asyncio.to_thread(framed, (function.__name__, arguments)))
        return result

    async def _call(self, parts: Iterable[bytes]) -> Any:
        await self.send(parts)
        try:
            [size] = SIZE.unpack(await self._output.readexactly(SIZE.size))
            answer = pickle.loads(await self._output.readexactly(size))
        except asyncio.IncompleteReadError:
            raise await self._ended() from None
        if len(answer) == 1:
            return answer[0]
        field, problem, *trace = answer
        if trace:
            raise RuntimeError(f"in the process of a document: {trace[0]}")  # callers learn nothing of it
        raise InvalidInputError(field, problem)

    async def _ended(self) -> EngineError:
        code = await self._process.wait()
        problem = f"was ended by signal {-code}, by the system if memory is short" if code < 0 else f"ended with code {code}"
        return EngineError(f"the process of the document {problem}")
