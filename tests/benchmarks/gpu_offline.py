"""Offline translation on a GPU: offline.py with other defaults. A rehearsal on the CPU: --device cpu --tiny.

    python tests/benchmarks/gpu_offline.py CHECKPOINT REPOSITORY --pairs FILE
        [--device cuda] [--batches 1,8,32,128,256] [--beam 1,4] [--length N] [--sentences 512] [--calls 16] [--rounds 5]
        [--candidates ctranslate2,ctranslate2-int8,triptych,pytorch,transformers] [--json FILE]

REPOSITORY contains a bundle with precision fp16.
"""

from offline import main

DEFAULTS = {
    "device": "cuda",
    "precisions": "fp16",
    "batches": "1,8,32,128,256",
    "calls": 16,
    "cpus": 0,
    "names": "ctranslate2,ctranslate2-int8,triptych,pytorch,transformers",
}

if __name__ == "__main__":
    main(default_map=DEFAULTS)
