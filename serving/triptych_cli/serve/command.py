"""`triptych serve`: the gRPC server."""

import asyncio
from typing import Any

import click

from triptych_cli.common import options
from triptych_cli.common.errors import needs, one_line
from triptych_cli.serve import lifecycle, limits, models, observability, repeats, security


@click.command(name="serve")
@models.flags
@options.option("--host", default="0.0.0.0", help="Address to listen on.")
@options.option("--port", type=click.IntRange(0, 65_535), default=8001, help="0: any free one.")
@options.running
@options.option("--workers", type=click.IntRange(min=1), default=None, help="Engine threads.  [default: usable CPUs]")
@options.option(
    "--slots",
    type=click.IntRange(1, 4096),
    default=None,
    help="Rows that a worker steps at once.  [default: 32 on the CPU, 256 on a GPU]",
)
@options.option(
    "--encoder-threads",
    type=click.IntRange(min=1),
    default=None,
    help="Threads inside one run of a BERT or ViT.  [default: as suits the model]",
)
@options.option(
    "--encoder-runs",
    type=click.IntRange(min=1),
    default=None,
    help="Batches of one BERT or ViT that run at once.  [default: as the CPUs allow]",
)
@options.option("--reflection/--no-reflection", default=True, help="Let clients such as grpcurl list the services.")
@limits.flags
@lifecycle.flags
@repeats.flags
@security.flags
@observability.flags
def command(
    host: str,
    port: int,
    precision: str | None,
    device: str,
    gpu_memory_limit: str,
    workers: int | None,
    slots: int | None,
    encoder_threads: int | None,
    encoder_runs: int | None,
    reflection: bool,
    **values: Any,
) -> None:
    """Serve a model repository over gRPC, with health checks and reflection."""
    needs("triptych_serving.server", "serve")
    from triptych_serving.decoding.engine import EngineOptions
    from triptych_serving.encoding.options import EncoderOptions
    from triptych_serving.errors import ServingError
    from triptych_serving.models.translation.translator import TranslatorOptions
    from triptych_serving.observability.logs import configure_logs
    from triptych_serving.repository.placement import Hardware
    from triptych_serving.runtime.cpu_info import usable_cpus
    from triptych_serving.server import ServerOptions, serve

    observed = observability.read(values, host)
    configure_logs(observed)
    with one_line(ServingError):
        hardware = Hardware.parse(device, gpu_memory_limit, slots)
    settings = ServerOptions(
        repository=models.read(values),
        host=host,
        port=port,
        reflection=reflection,
        translator=TranslatorOptions(precision, EngineOptions(workers or usable_cpus(), slots or EngineOptions.slots)),
        encoders=EncoderOptions(threads=encoder_threads, runs=encoder_runs),
        hardware=hardware,
        limits=limits.read(values),
        lifecycle=lifecycle.read(values),
        repeats=repeats.read(values),
        security=security.read(values),
        observability=observed,
    )
    with one_line(ServingError):
        asyncio.run(serve(settings))
