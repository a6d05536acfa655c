"""Requests for one server from a process of its own, for gpu_encoders.py: one Python process cannot send what a GPU answers.

    python tests/benchmarks/gpu_flood.py ADDRESS INPUTS --task text|image --in-flight 64 --per-request 1

INPUTS is a file of JSON lines: texts, or images in base64. Sends them all at every line of standard input, prints the seconds.
"""

import asyncio
import base64
import json
import sys
from pathlib import Path
from typing import Any

import click
from encoders import TOP_K, flood
from grpc import aio

from triptych.v1 import fill_mask_pb2, fill_mask_pb2_grpc, image_classification_pb2, image_classification_pb2_grpc

MESSAGE_BYTES = 256 << 20


@click.command()
@click.argument("address")
@click.argument("inputs", type=click.Path(path_type=Path, exists=True))
@click.option("--task", type=click.Choice(["text", "image"]), required=True)
@click.option("--in-flight", default=64, show_default=True)
@click.option("--per-request", default=1, show_default=True, help="Inputs of one request.")
def main(address: str, inputs: Path, task: str, in_flight: int, per_request: int) -> None:
    lines = [json.loads(line) for line in inputs.read_text(encoding="utf-8").splitlines()]
    items = lines if task == "text" else [base64.b64decode(line) for line in lines]
    groups = [items[start : start + per_request] for start in range(0, len(items), per_request)]
    asyncio.run(_serve(address, task, groups, in_flight))


async def _serve(address: str, task: str, groups: list[list[Any]], in_flight: int) -> None:
    options = [("grpc.max_send_message_length", MESSAGE_BYTES), ("grpc.max_receive_message_length", MESSAGE_BYTES)]
    async with aio.insecure_channel(address, options) as channel:
        call, requests = _calls(channel, task, groups)
        await flood(call, requests[: min(len(requests), in_flight)], in_flight)
        click.echo("ready on standard input")
        loop = asyncio.get_running_loop()
        while await loop.run_in_executor(None, sys.stdin.readline):
            click.echo(await flood(call, requests, in_flight))


def _calls(channel: aio.Channel, task: str, groups: list[list[Any]]) -> tuple[Any, list[Any]]:
    if task == "text":
        texts = fill_mask_pb2_grpc.FillMaskServiceStub(channel)
        return texts.FillMask, [fill_mask_pb2.FillMaskRequest(contents=group, top_k=TOP_K) for group in groups]
    images = image_classification_pb2_grpc.ImageClassificationServiceStub(channel)
    make = image_classification_pb2.ClassifyImageRequest
    return images.ClassifyImage, [make(images=group, top_k=TOP_K) for group in groups]


if __name__ == "__main__":
    main()
