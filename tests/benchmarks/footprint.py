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
from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor

SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
LANGUAGES = ("deu_Latn", "eng_Latn", "fra_Latn")
SHARD = 1_000_000_000  # bytes
SPREAD = 2.0  # times what keeps a layer's variance: with less all sentences get one answer, with more rounding decides
MIB = 1 << 20

SERVE = """
import sys, resource
from pathlib import Path
from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.decoding.engine import EngineOptions
from triptych_serving.models.translation.options import DecodingOptions
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


def make_folder(folder: Path, layers: int, vocabulary: int, dim: int) -> None:
    """Config, weights in shards, tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    shards: list[dict[str, Tensor]] = [{}]
    for name, tensor in make_weights(layers, vocabulary, dim):
        if shards[-1] and sum(t.nbytes for t in shards[-1].values()) + tensor.nbytes > SHARD:
            _write_shard(folder, len(shards), shards[-1])
            shards[-1] = {key: torch.empty(0) for key in shards[-1]}
            shards.append({})
        shards[-1][name] = tensor
    _write_shard(folder, len(shards), shards[-1])
    places = {name: _shard_name(number) for number, shard in enumerate(shards, 1) for name in shard}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    make_tokenizer(vocabulary).save(str(folder / "tokenizer.json"))
    codes = {"additional_special_tokens": list(LANGUAGES), "tokenizer_class": "NllbTokenizer"}
    (folder / "tokenizer_config.json").write_text(json.dumps(codes))
    shape = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in _layers(layers, dim).items()}
    config = {
        "model_type": "m2m_100",
        "architectures": ["M2M100ForConditionalGeneration"],
        "d_model": dim,
        "vocab_size": vocabulary,
        "max_position_embeddings": 1024,
        "activation_function": "relu",
        "scale_embedding": True,
        "bos_token_id": 0,
        "pad_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 2,
        **shape,
    }
    (folder / "generation_config.json").write_text(json.dumps({"max_length": 200, "decoder_start_token_id": 2}))
    (folder / "config.json").write_text(json.dumps(config))


def make_weights(layers: int, vocabulary: int, dim: int) -> Iterator[tuple[str, Tensor]]:
    """Names as M2M100's."""
    generator = torch.Generator().manual_seed(1)

    def matrix(rows: int, columns: int) -> Tensor:
        return torch.empty(rows, columns).normal_(0, SPREAD * columns**-0.5, generator=generator)

    yield "model.shared.weight", torch.empty(vocabulary, dim).normal_(0, dim**-0.5, generator=generator)
    for side in ("encoder", "decoder"):
        attentions = ("self_attn",) if side == "encoder" else ("self_attn", "encoder_attn")
        for layer in range(layers):
            prefix = f"model.{side}.layers.{layer}"
            for attention in attentions:
                for projection in ("q_proj", "k_proj", "v_proj", "out_proj"):
                    yield f"{prefix}.{attention}.{projection}.weight", matrix(dim, dim)
                    yield f"{prefix}.{attention}.{projection}.bias", torch.zeros(dim)
            yield f"{prefix}.fc1.weight", matrix(4 * dim, dim)
            yield f"{prefix}.fc1.bias", torch.zeros(4 * dim)
            yield f"{prefix}.fc2.weight", matrix(dim, 4 * dim)
            yield f"{prefix}.fc2.bias", torch.zeros(dim)
            for norm in (*(f"{attention}_layer_norm" for attention in attentions), "final_layer_norm"):
                yield f"{prefix}.{norm}.weight", torch.ones(dim)
                yield f"{prefix}.{norm}.bias", torch.zeros(dim)
        yield f"model.{side}.layer_norm.weight", torch.ones(dim)
        yield f"model.{side}.layer_norm.bias", torch.zeros(dim)


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


def _layers(layers: int, dim: int) -> dict[str, int]:
    return {"layers": layers, "attention_heads": max(1, dim // 64), "ffn_dim": 4 * dim}


def _shard_name(number: int) -> str:
    return f"model-{number:05d}.safetensors"


def _write_shard(folder: Path, number: int, tensors: dict[str, Tensor]) -> None:
    save_file(tensors, str(folder / _shard_name(number)), metadata={"format": "pt"})


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    main()
