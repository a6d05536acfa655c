"""The simplest closed loop there is: threads and the generated stub, nothing of triptych_bench or triptych_client.

python tests/benchmarks/plain.py HOST:PORT sentences.txt --concurrency 4 --seconds 15

Prints one JSON object: requests a second, and mean, p50, p90 and p99 latency in seconds.
"""

import argparse
import json
import threading
import time
from pathlib import Path

import grpc

from triptych.v1 import translation_pb2, translation_pb2_grpc


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("texts", type=Path)
    parser.add_argument("--concurrency", type=int, default=1)
    parser.add_argument("--warm-up", type=float, default=2.0)
    parser.add_argument("--seconds", type=float, default=15.0)
    asked = parser.parse_args()
    texts = asked.texts.read_text(encoding="utf-8").splitlines()
    start = time.perf_counter() + asked.warm_up
    end = start + asked.seconds
    latencies: list[float] = []

    def call_again(offset: int) -> None:
        stub = translation_pb2_grpc.TranslationServiceStub(grpc.insecure_channel(asked.address))
        number = offset
        while (sent := time.perf_counter()) < end:
            stub.Translate(translation_pb2.TranslateRequest(contents=[texts[number % len(texts)]]))
            received = time.perf_counter()
            if start <= received < end:
                latencies.append(received - sent)
            number += asked.concurrency

    threads = [threading.Thread(target=call_again, args=(offset,)) for offset in range(asked.concurrency)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    latencies.sort()
    values = {f"p{percent}": latencies[int(percent / 100 * (len(latencies) - 1))] for percent in (50, 90, 99)}
    print(json.dumps({"rate": len(latencies) / asked.seconds, "mean": sum(latencies) / len(latencies), **values}))  # noqa: T201


if __name__ == "__main__":
    main()
