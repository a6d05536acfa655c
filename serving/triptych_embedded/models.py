"""Models in this process: load what a request needs, and translate errors of the engine into those of a backend."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from triptych_embedded.request import INPUT_FIELD, BackendError, InputError, ModelChoice
from triptych_serving.bundle.manifest import read_manifest
from triptych_serving.decoding.engine import EngineOptions
from triptych_serving.encoding.options import EncoderOptions
from triptych_serving.errors import BundleError, InvalidInputError, ServingError
from triptych_serving.models.capabilities import capabilities_of
from triptych_serving.models.decode_model import DecodeModelOptions
from triptych_serving.repository.loading import load_registry
from triptych_serving.repository.placement import Hardware
from triptych_serving.repository.registry import Registry
from triptych_serving.repository.repository import VersionFolder, newest_versions
from triptych_serving.runtime.cpu_info import usable_cpus
from triptych_serving.scheduling.admission import QueueLimits, with_queue
from triptych_serving.scheduling.batch_scheduler import BatchLimits
from triptych_serving.scheduling.decode_scheduler import DecodeLimits

# The queues belong to this process alone, which may submit more at once than a server allows.
UNLIMITED = QueueLimits(waiting_rows=sys.maxsize, waiting_tokens=sys.maxsize, waiting_calls=sys.maxsize)


def engine_options(workers: int | None = None) -> EngineOptions:
    """Return the options of an engine that has this process to itself; by default all CPUs work."""
    return EngineOptions(workers=workers or usable_cpus(), limits=with_queue(DecodeLimits(), UNLIMITED))


@contextmanager
def open_registry(choice: ModelChoice, capability: str, engine: EngineOptions | None = None) -> Iterator[Registry]:
    """Load what a command needs, and no more if the repository leaves no choice; unload it afterwards.

    Args:
        choice: which model, and where it runs.
        capability: what the model must be able to do, such as "translation".
        engine: options for models that decode; by default all CPUs work.

    Raises:
        BackendError: nothing could be loaded, the device is not available, or the repository cannot be read.
    """
    engine = engine or engine_options()
    encoders = EncoderOptions(limits=with_queue(BatchLimits(), UNLIMITED))
    with backend_errors():
        hardware = Hardware.parse(choice.device, choice.gpu_memory_limit)
        name = choice.model or only_model(choice.repository, capability)
        if choice.model_version and not name:
            problem = f"name the model, too: {choice.repository} has none or several for {capability}"
            raise BackendError(f"version {choice.model_version!r}: {problem}")
        decoders = DecodeModelOptions(choice.precision, engine)
        registry = load_registry(choice.repository, decoders, name, encoders, hardware, choice.model_version)
    try:
        faults = [loaded.fault for loaded in registry.models if loaded.fault]
        if faults and not registry.ready:
            raise BackendError("; ".join(faults))
        yield registry
    finally:
        registry.close()


def only_model(repository: Path, capability: str) -> str:
    """Return the name of the one model with the capability; empty if there are none or several."""
    names = [entry.name for entry in newest_versions(repository) if capability in _capabilities(entry)]
    return names[0] if len(names) == 1 else ""


def _capabilities(entry: VersionFolder) -> frozenset[str]:
    try:
        return capabilities_of(read_manifest(entry.folder))
    except BundleError:  # loading reports the fault
        return frozenset()


@contextmanager
def backend_errors() -> Iterator[None]:
    """Raise errors of the engine as InputError, if one input is the cause, or BackendError."""
    try:
        yield
    except InvalidInputError as error:
        match = INPUT_FIELD.fullmatch(error.field)
        raise InputError(int(match[1]), error.problem) if match else BackendError(str(error)) from error
    except ServingError as error:
        raise BackendError(str(error)) from error
