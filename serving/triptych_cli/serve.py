"""`triptych serve`: the gRPC server."""

import asyncio
import logging
from pathlib import Path

import click

from triptych_cli import options
from triptych_cli.failure import needs, one_line
from triptych_cli.repository import embedded_repository


@click.command(name="serve")
@options.models
@options.option("--model", default="", help="Serve only this model.  [default: all]", show_default=False)
@options.option("--host", default="0.0.0.0", help="Address to listen on.")
@options.option("--port", type=click.IntRange(0, 65_535), default=8001, help="0: any free one.")
@options.precision
@options.option("--workers", type=click.IntRange(min=1), default=None, help="Engine threads.  [default: usable CPUs]")
@options.option("--slots", type=click.IntRange(1, 4096), default=32, help="Rows that a worker steps at once.")
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
@options.option("--max-message-bytes", type=click.IntRange(min=1024), default=64 << 20, help="Largest request or response.")
@options.option(
    "--exit-timeout-secs", type=click.FloatRange(min=0), default=30.0, help="To finish what runs, once asked to stop."
)
@options.option("--reflection/--no-reflection", default=True, help="Let clients such as grpcurl list the services.")
@options.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", help="Log this and what is worse."
)
def command(
    models: Path | None,
    model: str,
    host: str,
    port: int,
    precision: str | None,
    workers: int | None,
    slots: int,
    encoder_threads: int | None,
    encoder_runs: int | None,
    max_message_bytes: int,
    exit_timeout_secs: float,
    reflection: bool,
    log_level: str,
) -> None:
    """Serve a model repository over gRPC, with health checks and reflection."""
    needs("triptych_serving.server", "serve")
    from triptych_serving.encoder import EncoderOptions
    from triptych_serving.engine import EngineOptions
    from triptych_serving.errors import ServingError
    from triptych_serving.processor import usable_cpus
    from triptych_serving.server import ServerOptions, serve
    from triptych_serving.translator import TranslatorOptions

    logging.basicConfig(level=log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    settings = ServerOptions(
        models=models or embedded_repository(),
        model=model,
        host=host,
        port=port,
        max_message_bytes=max_message_bytes,
        exit_timeout_seconds=exit_timeout_secs,
        reflection=reflection,
        translator=TranslatorOptions(precision, EngineOptions(workers or usable_cpus(), slots)),
        encoders=EncoderOptions(threads=encoder_threads, runs=encoder_runs),
    )
    with one_line(ServingError):
        asyncio.run(serve(settings))
