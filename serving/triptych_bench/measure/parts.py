"""What a request's time consists of."""

import math
from collections.abc import Callable, Mapping, Sequence

from triptych_bench.load.log import Record
from triptych_bench.results import Part

STAGES = ("queue", "preprocess", "compute", "postprocess")


def parts_of(records: Sequence[Record], counted: Mapping[str, float] | None = None) -> Part:
    """Means over requests that were answered.

    Args:
        records: answered.
        counted: what the server counted meanwhile, for those that say nothing in their answers.
    """
    if not records:
        return Part()
    server = {stage: _mean_of(records, stage) for stage in STAGES}
    if all(value is None for value in server.values()) and counted and counted.get("requests"):
        server = {stage: counted[stage] / counted["requests"] if stage in counted else None for stage in STAGES}
    sends = [record.client_send for record in records if record.client_send is not None]
    send = math.fsum(sends) / len(sends) if sends else None
    receive = _mean(records, lambda record: record.client_receive)
    whole = _mean(records, lambda record: record.received - record.sent)
    known = [value for value in server.values() if value is not None]
    return Part(
        client_send=send,
        network=max(0.0, whole - (send or 0.0) - receive - math.fsum(known)),
        server_queue=server["queue"],
        server_preprocess=server["preprocess"],
        server_compute=server["compute"],
        server_postprocess=server["postprocess"],
        client_receive=receive,
    )


def _mean(records: Sequence[Record], value: Callable[[Record], float]) -> float:
    return math.fsum(map(value, records)) / len(records)


def _mean_of(records: Sequence[Record], stage: str) -> float | None:
    values = [getattr(record.server, stage) for record in records if record.server is not None]
    said = [value for value in values if value is not None]
    return math.fsum(said) / len(said) if said else None
