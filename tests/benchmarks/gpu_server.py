"""Translation servers on a GPU under load: server.py with other defaults. A rehearsal: --device cpu --cpus 1 --generators 1.

python tests/benchmarks/gpu_server.py CHECKPOINT REPOSITORY PAIRS
    [--device cuda] [--seconds 5] [--rounds 1] [--limit-ms 100] [--length N] [--cpus 8] [--generators 4]
    [--servers Triptych,CTranslate2,PyTorch] [--json FILE]
"""

from server import OWN, PEER, STATIC, main

DEFAULTS = {
    "device": "cuda",
    "precision": "fp16",
    "cpus": 8,
    "processes": 4,
    "names": ",".join((OWN, STATIC, PEER)),
    "sentences": 2048,
    "in_flight": 256,
    "seconds": 5.0,
    "factor": 1.25,
    "limit_ms": 100.0,
    "max_batch": 128,
    "slots": 256,
}

if __name__ == "__main__":
    main(default_map=DEFAULTS)
