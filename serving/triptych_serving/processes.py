"""The place of a server process among several on the same ports, which its supervisor gives it (see supervisor.py)."""

import asyncio
import json
import os
import socket
import sys
from dataclasses import asdict, dataclass

from triptych_serving.runtime.process import end_with_parent

VARIABLE = "TRIPTYCH_PROCESS_PLACE"  # in the environment of such a process
READY = b"r"


@dataclass(frozen=True)
class ProcessPlace:
    """The place of one of several server processes."""

    supervisor: int  # process id
    index: int
    port: int  # for gRPC
    http_port: int | None  # None: no gateway
    documents: str  # folder for translated documents, which any process may be asked for; empty without a gateway
    control: int  # file descriptor of a socket to the supervisor, which says there when all processes are ready
    metrics: int | None = None  # that of a Unix socket that listens for the supervisor; None: no metrics

    @classmethod
    def take(cls) -> "ProcessPlace | None":
        """Take the place out of the environment, and end with the supervisor from now on; None: there is no supervisor."""
        text = os.environ.pop(VARIABLE, "")
        if not text:
            return None
        place = cls(**json.loads(text))
        end_with_parent()
        if os.getppid() != place.supervisor:  # it ended a moment ago
            sys.exit(1)
        return place

    def pack(self) -> dict[str, str]:
        """Return the variable from which a process takes its place."""
        return {VARIABLE: json.dumps(asdict(self))}

    async def wait_until_all_are_ready(self) -> None:
        """Tell the supervisor that this process is ready, and wait until all are."""
        loop = asyncio.get_running_loop()
        with socket.socket(fileno=self.control) as control:
            control.setblocking(False)
            await loop.sock_sendall(control, READY)
            await loop.sock_recv(control, len(READY))
