"""`triptych serve`: run the gRPC server."""

import asyncio
import os
import sys
from typing import Any

import click

from triptych.signals import on_sigterm
from triptych_cli.common import options
from triptych_cli.common.errors import needs, one_line
from triptych_cli.common.options import option, optional
from triptych_cli.serve import flags


@click.command(name="serve", cls=flags.GroupedHelp)
@flags.models
@option("--host", default="0.0.0.0", help="Address to listen on.")
@option("--port", type=flags.PORT, default=8001, help="Port to listen on; 0: any free one.")
@options.running
@option(
    "--processes",
    type=click.IntRange(1, 64),
    default=1,
    help="Server processes on the same ports, each with all models; for more requests than one CPU can read and answer.",
)
@optional("--workers", type=flags.THREADS, help="Engine threads.  [default: usable CPUs]")
@optional(
    "--slots",
    type=click.IntRange(1, 4096),
    help="Rows that a worker decodes concurrently.  [default: 32 on the CPU, 256 on a GPU]",
)
@option(
    "--max-context",
    type=flags.COUNT,
    default=8_192,
    help="Tokens of prompt and output that a model which continues text has room for, at most its own context.",
)
@option(
    "--prefix-cache-bytes",
    type=click.IntRange(min=0),
    default=256 << 20,
    help="Memory of each such model for the beginnings of prompts, which are computed once; 0: no cache.",
)
@optional("--encoder-threads", type=flags.THREADS, help="Threads per run of an encoder model.  [default: depends on the model]")
@optional("--encoder-runs", type=flags.THREADS, help="Concurrent runs of an encoder model.  [default: depends on the CPUs]")
@option("--reflection/--no-reflection", default=True, help="Let clients such as grpcurl list the services.")
@flags.limits
@flags.lifecycle
@flags.response_cache
@flags.security
@flags.observability
@flags.gateway
@flags.help_all
@on_sigterm(lambda _: os._exit(0))  # until the server handles it; process 1 of a container would not receive it
def command(host: str, slots: int | None, **values: Any) -> None:
    """Serve a model repository over gRPC, and over HTTP if a port for it is given.

    Each option is also an environment variable: --port is TRIPTYCH_PORT.
    """
    needs("triptych_serving.server", "serve")
    from triptych_serving.decoding.engine import EngineOptions
    from triptych_serving.encoding.options import EncoderOptions
    from triptych_serving.errors import ServingError
    from triptych_serving.models.decode_model import DecodeModelOptions
    from triptych_serving.observability.logs import configure_logs
    from triptych_serving.processes import ProcessPlace
    from triptych_serving.repository.placement import Hardware
    from triptych_serving.runtime.cpu_info import usable_cpus
    from triptych_serving.server import ServerOptions, serve
    from triptych_serving.supervisor import supervise

    place = ProcessPlace.take()
    observability = flags.take_observability(values, host)
    configure_logs(observability, {} if place is None else {"process": place.index})
    with one_line(ServingError):
        hardware = Hardware.parse(values["device"], values["gpu_memory_limit"], slots)
    engine = EngineOptions(values["workers"] or usable_cpus(), slots or EngineOptions.slots)
    context, cache = values["max_context"], values["prefix_cache_bytes"]
    settings = ServerOptions(
        repository=flags.take_models(values),
        host=host,
        port=values["port"],
        reflection=values["reflection"],
        decoders=DecodeModelOptions(values["precision"], engine, max_context=context, prefix_cache_bytes=cache),
        encoders=EncoderOptions(threads=values["encoder_threads"], runs=values["encoder_runs"]),
        hardware=hardware,
        limits=flags.take_limits(values),
        lifecycle=flags.take_lifecycle(values),
        repeats=flags.take_response_cache(values),
        security=flags.take_security(values),
        observability=observability,
        gateway=flags.take_gateway(values, host),
    )
    with one_line(ServingError):
        if place is not None:
            asyncio.run(serve(settings.at(place)))
        elif (count := values["processes"]) > 1:
            sys.exit(asyncio.run(supervise(settings, count, [sys.executable, *sys.orig_argv[1:]])))
        else:
            asyncio.run(serve(settings))
