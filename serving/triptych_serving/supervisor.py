"""Several server processes on the same ports, for more requests than one CPU can read and answer.

The kernel spreads connections over the processes (SO_REUSEPORT of Linux), each of which has all models. The supervisor, their
parent, serves metrics and probes of all of them, passes signals on, and ends when they have ended.
"""

import asyncio
import logging
import os
import secrets
import signal
import socket
import sys
import tempfile
import time
from asyncio.subprocess import Process
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import NamedTuple

from triptych.signals import signals_in_loop
from triptych_serving.address import format_address, reserve_port
from triptych_serving.errors import EngineError, UnsupportedError
from triptych_serving.observability.http_server import HttpRequest, HttpResponse, HttpServer
from triptych_serving.processes import READY, ProcessPlace
from triptych_serving.repository.model_manager import ModelControl
from triptych_serving.server import ServerOptions

logger = logging.getLogger(__name__)

ANSWER_SECONDS = 8.0  # in which a process answers a probe; Prometheus waits for 10 by default
PORT = "port"  # its name in errors, as a server has it
LABEL = "process"  # of each sample of the metrics
END = "# EOF"  # of the OpenMetrics format
STOPPED = 0, -signal.SIGTERM  # exit codes; the latter before a process handles signals


async def supervise(options: ServerOptions, count: int, command: Sequence[str]) -> int:
    """Run server processes until all have ended; return 0, or 1 for an error.

    SIGTERM and SIGINT are passed on to all. If one ends by itself, the others are stopped, too.

    Args:
        options: those of each process.
        count: number of processes.
        command: starts a server with these options, at the place that its environment says (`ProcessPlace`).

    Raises:
        UnsupportedError: several processes cannot serve with these options, or here.
        EngineError: a process cannot be started.
        PortError: a port is in use or not allowed.
    """
    check(options, count)
    started, group = time.monotonic(), _Group()
    with ExitStack() as stack:
        stack.enter_context(signals_in_loop(asyncio.get_running_loop(), lambda _: group.stop()))
        gateway, observability = options.gateway, options.observability
        port = _reserve(stack, options.host, options.port, PORT)
        http_port = None if gateway is None else _reserve(stack, gateway.host, gateway.port, gateway.port_flag)
        folder = "" if gateway is None else _make_folder(stack)
        sockets = [_Sockets.make(stack, observability.metrics_port is not None) for _ in range(count)]
        probes = Probes([each.metrics.getsockname() for each in sockets if each.metrics])
        if observability.metrics_port is not None:
            metrics = await probes.start(observability.metrics_host, observability.metrics_port, "--metrics-port")
            logger.info("metrics on http://%s/metrics", format_address(observability.metrics_host, metrics))
        stack.callback(group.kill)
        for index, (_, control, listener) in enumerate(sockets):
            passed = [each.detach() for each in (control, listener) if each is not None]
            place = ProcessPlace(os.getpid(), index, port, http_port, folder, *passed)
            await group.start(command, {**os.environ, **place.pack()}, passed)
            for number in passed:  # the process's own now
                os.close(number)
        address = format_address(options.host, port)
        announcing = asyncio.create_task(_announce([each.own for each in sockets], address, started))
        code = await group.wait()
        announcing.cancel()
        await probes.stop()
        return code


def check(options: ServerOptions, count: int) -> None:
    """Check that several processes can serve with these options. Raises UnsupportedError: they cannot."""
    if sys.platform != "linux":
        problem = "several processes on one port need Linux; run one server each on ports of their own"
    elif options.hardware.gpus:
        problem = "each process would load all models on the GPU; use one, or --device cpu"
    elif options.repository.control is ModelControl.EXPLICIT:
        problem = "LoadModel and UnloadModel reach only one process; use --model-control poll"
    else:
        return
    raise UnsupportedError(f"--processes {count}: {problem}")


class Probes(HttpServer):
    """Serve /metrics, /healthz and /readyz of all processes.

    Args:
        addresses: of the processes' own servers of metrics, Unix sockets.
    """

    def __init__(self, addresses: Sequence[bytes]) -> None:
        super().__init__({"/metrics": self._metrics, "/healthz": self._probe, "/readyz": self._probe})
        self._addresses = addresses

    async def _metrics(self, request: HttpRequest) -> HttpResponse:
        answers = await self._ask(request)
        if wrong := _first_error(answers):
            return wrong
        body = merge_metrics([answer.body.decode() for answer in answers]).encode()
        return HttpResponse(200, body, {"Content-Type": answers[0].content_type})

    async def _probe(self, request: HttpRequest) -> HttpResponse:
        answers = await self._ask(request)
        return _first_error(answers) or HttpResponse(200, answers[0].body, {"Content-Type": answers[0].content_type})

    async def _ask(self, request: HttpRequest) -> "list[_Answer]":
        return await asyncio.gather(*(_fetch(address, request) for address in self._addresses))


def merge_metrics(expositions: Sequence[str]) -> str:
    """Join the metrics of processes, text or OpenMetrics: one description of each, and the label `process` for each sample."""
    families: dict[str, tuple[list[str], list[str]]] = {}  # descriptions and samples
    ends = ""
    for index, exposition in enumerate(expositions):
        name = ""
        for line in exposition.split("\n"):  # names of models may have other line breaks
            if line == END:
                ends = f"{END}\n"
            elif line.startswith("# "):
                name = line.split(" ", 3)[2]
                descriptions, _ = families.setdefault(name, ([], []))
                if line not in descriptions:
                    descriptions.append(line)
            elif line:
                families[name][1].append(_labelled(line, index))
    lines = [line for family in families.values() for part in family for line in part]
    return "".join(f"{line}\n" for line in lines) + ends


def _labelled(sample: str, index: int) -> str:
    """Add a process's label to `name value` or `name{labels} value`."""
    end = next(at for at, character in enumerate(sample) if character in "{ ")
    name, rest = sample[:end], sample[end:]
    return f'{name}{{{LABEL}="{index}"}}{rest}' if rest[0] == " " else f'{name}{{{LABEL}="{index}",{rest[1:]}'


class _Answer(NamedTuple):
    """The response of a process to a probe."""

    status: int
    content_type: str
    body: bytes


def _first_error(answers: Sequence[_Answer]) -> HttpResponse | None:
    """Return a response for the first process that is not well; None: all are."""
    for index, answer in enumerate(answers):
        if answer.status != 200:
            return HttpResponse.text(answer.status, f"process {index}: {answer.body.decode().strip()}")
    return None


async def _fetch(address: bytes, request: HttpRequest) -> _Answer:
    """Pass a request on to a process."""
    query = f"?{request.query}" if request.query else ""
    head = f"GET {request.path}{query} HTTP/1.1\r\nAccept: {request.headers.get('accept', '')}\r\n\r\n"
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            reader, writer = await asyncio.open_unix_connection(address)  # type: ignore[arg-type] # the name of a socket
            try:
                writer.write(head.encode("latin-1"))
                answered, _, body = (await reader.read()).partition(b"\r\n\r\n")
            finally:
                writer.transport.abort()
        start, *lines = answered.decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        return _Answer(int(start.split(" ")[1]), headers.get("content-type", ""), body)
    except (TimeoutError, OSError, IndexError):  # not started yet, too busy, or ending
        return _Answer(503, "", b"does not answer")


class _Sockets(NamedTuple):
    """Sockets between the supervisor and one process."""

    own: socket.socket
    theirs: socket.socket
    metrics: socket.socket | None  # listens, under a name that is not that of a file

    @classmethod
    def make(cls, stack: ExitStack, has_metrics: bool) -> "_Sockets":
        own, theirs = map(stack.enter_context, socket.socketpair())
        own.setblocking(False)
        if not has_metrics:
            return cls(own, theirs, None)
        metrics = stack.enter_context(socket.socket(socket.AF_UNIX))
        metrics.bind(b"\0triptych-%s" % secrets.token_hex(8).encode())
        return cls(own, theirs, metrics)


async def _announce(controls: Sequence[socket.socket], address: str, started: float) -> None:
    """Wait until every process is ready, and tell all of them."""
    loop = asyncio.get_running_loop()
    with suppress(OSError):  # one ends, and so do all
        if all(await asyncio.gather(*(loop.sock_recv(control, len(READY)) for control in controls))):
            await asyncio.gather(*(loop.sock_sendall(control, READY) for control in controls))
            logger.info("ready on %s after %.2f s: %d processes", address, time.monotonic() - started, len(controls))


def _reserve(stack: ExitStack, host: str, port: int, flag: str) -> int:
    """Reserve a port for the processes until the supervisor ends; return its number."""
    for each in (reserved := reserve_port(host, port, flag)):
        stack.enter_context(each)
    return int(reserved[0].getsockname()[1])


def _make_folder(stack: ExitStack) -> str:
    """Make a folder for documents, which is removed when the supervisor ends. Raises UnsupportedError: there is no place."""
    try:
        return stack.enter_context(tempfile.TemporaryDirectory(prefix="triptych-"))
    except OSError as error:
        problem = f"with --http-port it needs a folder for temporary files (TMPDIR): {error.strerror}"
        raise UnsupportedError(f"--processes: {problem}") from error


class _Group:
    """The processes."""

    def __init__(self) -> None:
        self._processes: list[Process] = []
        self._stopping = False

    async def start(self, command: Sequence[str], environment: Mapping[str, str], passed: Sequence[int]) -> None:
        """Start a process, unless the group was stopped. It inherits the file descriptors `passed`.

        Raises:
            EngineError: it cannot be started, such as at a limit of processes.
        """
        if self._stopping:
            return
        start = asyncio.create_subprocess_exec
        try:  # in a group of its own: a terminal signals only the supervisor, which passes the signal on
            self._processes.append(await start(*command, env=environment, pass_fds=passed, process_group=0))
        except OSError as error:
            raise EngineError(f"process {len(self._processes)} cannot be started: {error.strerror}") from error
        if self._stopping:  # meanwhile
            self._processes[-1].terminate()

    def stop(self) -> None:
        """Send SIGTERM to all."""
        self._stopping = True
        for process in self._running:
            process.terminate()

    def kill(self) -> None:
        """End those that still run."""
        for process in self._running:
            process.kill()

    async def wait(self) -> int:
        """Wait until all have ended, which the first one to end by itself makes the others do; return 0, or 1 for an error."""
        ends = [asyncio.create_task(process.wait()) for process in self._processes]
        if not ends:
            return 0
        done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if self._stopping:
            return int(any(code not in STOPPED for code in await asyncio.gather(*ends)))
        index = next(index for index, end in enumerate(ends) if end in done)
        code = ends[index].result()
        reason = f"with exit code {code}" if code >= 0 else f"by signal {-code}"
        logger.error("process %d ended %s, stopping the others", index, reason)
        self.stop()
        await asyncio.wait(ends)
        return 1

    @property
    def _running(self) -> "list[Process]":
        return [process for process in self._processes if process.returncode is None]
