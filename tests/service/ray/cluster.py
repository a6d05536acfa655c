"""A local Ray cluster with the application, started from the configuration file that is deployed."""

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import yaml

from triptych_client import Client, NotFoundError

from ..support.processes import clean_environment, free_port

CONFIGURATION = Path(__file__).parents[3] / "serving" / "deploy" / "ray" / "serve.yaml"
PATIENCE_SECONDS = 240.0
REPLICA = "ray::ServeReplica:triptych:Triptych"
# No files in the home folder, and no usage statistics.
SETTINGS = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "RAY_COLOR_PREFIX": "0"}


class Cluster:
    """A node of Ray, and `serve run` with settings for a small machine.

    Args:
        folder: folder for the changed configuration.
        models: model repository.
        deployment: settings of the deployment that replace those of the file.
    """

    def __init__(self, folder: Path, models: Path, deployment: Mapping[str, Any]) -> None:
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self._folder = folder
        self._log = folder / "log"
        self._settings = {**clean_environment(), **SETTINGS, "RAY_ADDRESS": f"127.0.0.1:{free_port()}"}
        path = folder / "serve.yaml"
        path.write_text(yaml.safe_dump(configuration(self.port, models, deployment)), encoding="utf-8")
        self.node = self._start("ray", "start", "--head", "--block", *self._node_options())
        self.run = self._start("serve", "run", str(path))

    @property
    def log(self) -> str:
        """Output of the node and of `serve run`."""
        return self._log.read_text(encoding="utf-8")

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition while the node is running."""
        until = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            assert self.node.poll() is None, self.log
            assert time.monotonic() < until, self.log
            time.sleep(0.2)

    def is_ready(self) -> bool:
        """Return True if a replica responds; until the application is deployed, the proxy returns NOT_FOUND."""
        with Client(self.address) as client, contextlib.suppress(NotFoundError):
            return client.is_ready()
        return False

    def replicas(self) -> list[psutil.Process]:
        """Return the processes of the replicas."""
        found = psutil.Process(self.node.pid).children(recursive=True)
        return [process for process in found if _title(process).startswith(REPLICA)]

    def delete(self) -> None:
        """Delete the application and wait until it is gone."""
        program = "import ray; from ray import serve; ray.init(log_to_driver=False); serve.delete('triptych')"
        subprocess.run([sys.executable, "-c", program], env=self._settings, cwd=self._folder, check=True, capture_output=True)

    def stop(self) -> None:
        """Stop as Ctrl-C does, then kill what is left of the node."""
        family = psutil.Process(self.node.pid).children(recursive=True)
        try:
            for process, number in ((self.run, signal.SIGINT), (self.node, signal.SIGTERM)):
                process.send_signal(number)
                process.wait(PATIENCE_SECONDS)
        finally:
            for left in [*family, self.run, self.node]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    left.kill()

    def _node_options(self) -> list[str]:
        address, _, port = self._settings["RAY_ADDRESS"].partition(":")
        memory = f"--object-store-memory={80 << 20}"
        return [f"--port={port}", f"--node-ip-address={address}", "--num-cpus=2", "--include-dashboard=false", memory]

    def _start(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [str(Path(sys.executable).with_name(program)), *arguments]
        with self._log.open("a") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, env=self._settings, cwd=self._folder)


def configuration(port: int, models: Path, deployment: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of the file with other ports, models and settings."""
    content: dict[str, Any] = yaml.safe_load(CONFIGURATION.read_text(encoding="utf-8"))
    content["grpc_options"]["port"] = port
    content["http_options"]["port"] = free_port()
    [application] = content["applications"]
    application["args"]["models"] = str(models)
    application["deployments"][0] |= deployment
    return content


@contextmanager
def running(folder: Path, models: Path, **deployment: Any) -> Iterator[Cluster]:
    """Run a cluster for the duration of the block."""
    cluster = Cluster(folder, models, deployment)
    try:
        cluster.wait_until(cluster.is_ready)
        yield cluster
    finally:
        cluster.stop()


def _title(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""
