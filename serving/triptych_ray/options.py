"""The options of a replica."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from triptych_embedded.request import embedded_repository
from triptych_serving.decoding.engine import EngineOptions
from triptych_serving.encoding.options import EncoderOptions
from triptych_serving.models.decode_model import DecodeModelOptions
from triptych_serving.observability.options import ObservabilityOptions
from triptych_serving.repository.model_manager import ModelControl, RepositoryOptions
from triptych_serving.repository.placement import Hardware
from triptych_serving.response_cache.response_cache import ResponseCacheOptions
from triptych_serving.runtime.device import CPU
from triptych_serving.runtime.device_selection import AUTO
from triptych_serving.security.options import SecurityOptions
from triptych_serving.server import ServerOptions

# Values of arguments by the type of the default.
KINDS: Mapping[type, str] = {
    bool: "true or false",
    float: "a number of at least 0",
    int: "an integer of at least 0",
    str: "a string; write numbers in quotes",
}
ANYWHERE = "0.0.0.0"  # Ray's proxies listen on all addresses


@dataclass(frozen=True)
class ReplicaOptions:
    """Arguments of the application.

    Raises:
        ValueError: an argument is unknown, or a value is out of range.
        SecurityError: API keys would be sent unencrypted, or an option has no effect.
    """

    models: str = ""  # repository, at the same path on every node; empty: the embedded models
    model: str = ""  # serve only this one; empty: all
    precision: str = ""  # empty: the bundles' default; on a GPU their fp16
    device: str = AUTO  # auto: the GPUs that Ray assigns (`num_gpus`), else the CPU; "cpu"; "cuda": never the CPU
    gpu_memory_limit: str = ""  # per GPU, such as "20GiB" or "0.5", if replicas share one
    workers: int = 0  # engine threads; 0: the CPUs that Ray assigns
    slots: int = 0  # rows per step of a worker; 0: 32 on the CPU, 256 on a GPU
    poll_interval_secs: float = 0.0  # between two scans of the repository; 0: only one, at the start
    response_cache_bytes: int = 0  # per replica
    otlp_endpoint: str = ""  # of an OpenTelemetry collector
    api_keys: str = ""  # file of keys, at the same path on every node; empty: no authentication
    allow_plaintext_keys: bool = False  # Ray's proxies do not support TLS: confirm that something in front of them does

    def __post_init__(self) -> None:
        for field in fields(self):
            value, kind = getattr(self, field.name), type(field.default)
            wrong = type(value) is not kind and (kind, type(value)) != (float, int)
            if wrong or (kind in (int, float) and not value >= 0):
                raise ValueError(f"{field.name}: {value!r} is not {KINDS[kind]}")
        self.security.check_host(ANYWHERE)

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> ReplicaOptions:
        """Read the arguments of a configuration file."""
        known = [field.name for field in fields(cls)]
        unknown = sorted(set(arguments) - set(known))
        if unknown:
            raise ValueError(f"unknown arguments: {', '.join(unknown)}; there are: {', '.join(known)}")
        return cls(**arguments)

    @property
    def security(self) -> SecurityOptions:
        """Options of every replica."""
        return SecurityOptions(
            api_keys=Path(self.api_keys) if self.api_keys else None, allow_plaintext_keys=self.allow_plaintext_keys
        )

    def server_options(self, cpus: float, gpus: float = 0.0) -> ServerOptions:
        """Return the options of a server with these CPUs and GPUs; this process sees no others.

        Raises:
            DeviceError: the device is not available.
        """
        polls = self.poll_interval_secs > 0
        repository = RepositoryOptions(
            root=Path(self.models) if self.models else embedded_repository(),
            model=self.model,
            control=ModelControl.POLL if polls else ModelControl.NONE,
            poll_seconds=self.poll_interval_secs or RepositoryOptions.poll_seconds,
        )
        engine = EngineOptions(self.workers or max(1, int(cpus)), self.slots or EngineOptions.slots)
        device = str(CPU) if self.device == AUTO and not gpus else self.device
        return ServerOptions(
            repository=repository,
            host=ANYWHERE,
            reflection=False,  # Ray's proxy has it
            decoders=DecodeModelOptions(self.precision or None, engine),
            encoders=EncoderOptions(),
            hardware=Hardware.parse(device, self.gpu_memory_limit, self.slots or None),
            repeats=ResponseCacheOptions(cache_bytes=self.response_cache_bytes),
            security=self.security,
            observability=ObservabilityOptions(otlp_endpoint=self.otlp_endpoint),
        )
