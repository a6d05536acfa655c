"""Memory of exporting and of serving a large model: NLLB-200-distilled-600M's shape with random weights.

    python tests/benchmarks/footprint.py WORK [--layers 12] [--vocabulary 256206] [--dim 1024]

Makes a Hugging Face folder under WORK, exports it in a process of its own, translates with its int8 graphs in another one, and
prints the peak of each process' resident memory beside the size of the weights. WORK needs 20 GB of disk.
"""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import click
import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import M2M100Config, M2M100ForConditionalGeneration

SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
LANGUAGES = ("deu_Latn", "eng_Latn", "fra_Latn")
SHARD = "1GB"
SPREAD = 2.0  # times what keeps a layer's variance: with less all sentences get one answer, with more rounding decides
MIB = 1 << 20

SERVE = """
import sys, resource
from pathlib import Path
from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.decoding.engine import EngineOptions
from triptych.decoding import DecodingOptions
from triptych_serving.models.decode_model import DecodeModelOptions
from triptych_serving.models.translation.translator import Translator

def resident():
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {name: int(fields[name].split()[0]) >> 10 for name in ("VmRSS", "RssAnon", "RssFile", "VmHWM")}

before = resident()
translator = Translator("nllb", 1, open_bundle(Path(sys.argv[1])), DecodeModelOptions("int8", EngineOptions(workers=2)))
loaded = resident()
texts = [" ".join(f"w{n * 7 + i}" for i in range(20)) for n in range(16)]
translator.translate(texts, DecodingOptions(max_length=32), "eng_Latn", "deu_Latn")
print(before, loaded, resident(), translator.engine.bytes >> 20, sep="\\n")
"""


@click.command()
@click.argument("work", type=click.Path(path_type=Path, file_okay=False))
@click.option("--layers", default=12, show_default=True)
@click.option("--vocabulary", default=256_206, show_default=True)
@click.option("--dim", default=1024, show_default=True)
def main(work: Path, layers: int, vocabulary: int, dim: int) -> None:
    folder, repository = work / f"nllb-{layers}-{vocabulary}-{dim}", work / "repository"
    if not (folder / "config.json").exists():
        make_folder(folder, layers, vocabulary, dim)
    weights = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    click.echo(f"fp32 weights: {weights / MIB:,.0f} MiB")
    command = [sys.executable, "-m", "triptych_cli", "export", str(folder), "--out", str(repository), "--name", "nllb"]
    process = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10
    click.echo(f"export: peak of {peak / MIB:,.0f} MiB resident, {peak / weights:.2f} times the fp32 weights")
    process.check_returncode()
    bundle = Path(process.stdout.strip().splitlines()[-1])
    stored = sum(file.stat().st_size for file in bundle.iterdir() if ".int8." in file.name)
    served = subprocess.run([sys.executable, "-c", SERVE, str(bundle)], stdout=subprocess.PIPE, text=True, check=True)
    click.echo(f"int8 weights: {stored / MIB:,.0f} MiB; MiB before loading, loaded, after 16 sentences, caches allocated:")
    click.echo(served.stdout.rstrip())


@torch.no_grad()
def make_folder(folder: Path, layers: int, vocabulary: int, dim: int) -> None:
    """Write config, weights in shards, and tokenizer."""
    torch.manual_seed(1)
    shape = {"layers": layers, "attention_heads": max(1, dim // 64), "ffn_dim": 4 * dim}
    sides = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in shape.items()}
    # The other members are NLLB's by default.
    model = M2M100ForConditionalGeneration(
        M2M100Config(d_model=dim, vocab_size=vocabulary, activation_function="relu", **sides)
    )
    for name, weights in model.named_parameters():
        if weights.ndim == 2:
            weights.normal_(0, (1.0 if "shared" in name else SPREAD) * weights.shape[1] ** -0.5)
    model.generation_config.max_length = 200
    model.save_pretrained(folder, max_shard_size=SHARD)
    make_tokenizer(vocabulary).save(str(folder / "tokenizer.json"))
    codes = {"additional_special_tokens": list(LANGUAGES), "tokenizer_class": "NllbTokenizer"}
    (folder / "tokenizer_config.json").write_text(json.dumps(codes))


def make_tokenizer(vocabulary: int) -> Tokenizer:
    """Words w0, w1, ... between special tokens and languages."""
    words = vocabulary - len(SPECIAL) - len(LANGUAGES)
    pieces = [*SPECIAL, *(f"▁w{number}" for number in range(words))]
    scores = np.linspace(-5, -15, len(pieces)).tolist()
    tokenizer = Tokenizer(models.Unigram(list(zip(pieces, scores, strict=True)), unk_id=3))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens([*SPECIAL, *LANGUAGES])
    return tokenizer


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    main()
