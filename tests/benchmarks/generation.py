"""Text generation with random weights of one shape, in fp32 or a smaller precision: Triptych and its peers.

    python tests/benchmarks/generation.py gpt2|llama [--prompts 1,8,32] [--tokens 64] [--new 64] [--rounds 3]
        [--cpus 1] [--precision fp32] [--candidates triptych,ctranslate2,genai,llama.cpp,transformers,grpc] [--clock cpu]
        [--work FOLDER] [--json FILE]

gpt2 is GPT-2 small's shape, llama SmolLM2-135M's; --tiny makes them as small as can be. Prompts are random tokens, and every
candidate generates exactly as many as --new, greedily, for all prompts at once. Each is warmed up and then takes turns with the
others, in a process of its own; tokens/s (generated ones, the time includes the prompts') are of its fastest round. With
`--clock cpu`, for a machine with other work, they are by the CPU time of the candidates' processes: not with grpc, which
computes in the server. "ratio" is Triptych's speed divided by the candidate's: above 1 Triptych is faster. "same" is the
percentage of texts that equal Triptych's. --work keeps checkpoint, bundle and conversions for the next run.

The peers need `pip install ctranslate2 onnxruntime-genai llama-cpp-python`. The builder of onnxruntime-genai knows no GPT-2,
and llama.cpp is measured with llama alone. A candidate that cannot be loaded is listed at the end with the reason. int8 has
only Triptych, CTranslate2, whose caches are always floats, and llama.cpp (Q8_0, caches of 16 bits); int4, also with int8
caches, only Triptych and llama.cpp (Q4_1). GCC 12 compiles llama.cpp's kernels for AMX such that they crash; there, install it
with `CMAKE_ARGS="-DCMAKE_CXX_FLAGS='-fno-tree-dse -fno-dse'"`.
"""

import os
import random
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import chain
from operator import eq
from pathlib import Path
from typing import Any

import click
import torch
import transformers
from candidates.candidate import CLOCK, Candidate, Decoding
from candidates.contest import Case, Examples, measure
from candidates.remote import GENERATORS, OWN, Setup, open_candidates
from report import machine
from report.tables import Table, numbers, words, write_json
from servers import cpus as cpu_sets
from tokenizers import Tokenizer, models, pre_tokenizers

from triptych_export.families.generation import write_generation
from triptych_export.generation_source import GenerationSource
from triptych_export.huggingface.architectures.registry import load
from triptych_export.huggingface.folder import Folder
from triptych_serving.bundle.manifest import WITH_INT8_CACHES

COLUMNS = {"prompts": 7, "candidate": -18, "tokens/s": 9, "ratio": 6, "same": 5}
IDS: dict[str, Any] = {"bos_token_id": 0, "eos_token_id": 0}
SHAPES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {  # class, GPT-2 small or SmolLM2-135M, tiny
    "gpt2": ("GPT2", {}, {"n_embd": 64, "n_layer": 2, "n_head": 2, "vocab_size": 512}),
    "llama": (
        "Llama",
        {
            **{"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9},
            **{"num_key_value_heads": 3, "vocab_size": 49_152, "max_position_embeddings": 2_048, "tie_word_embeddings": True},
        },
        {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 512},
    ),
}
CALIBRATION = 8  # prompts that int8 is calibrated with


@dataclass(frozen=True)
class Result:
    """Speed of a candidate."""

    prompts: int
    candidate: str
    tokens_per_second: float
    ratio: float | None  # Triptych's speed by this one
    same: float | None  # percent of texts


def make_checkpoint(shape: str, tiny: bool, folder: Path) -> None:
    """Write a checkpoint of transformers with random weights, and a tokenizer whose tokens are numbers."""
    name, large, small = SHAPES[shape]
    torch.manual_seed(1)
    config = getattr(transformers, f"{name}Config")(**IDS, **(small if tiny else large))
    model = getattr(transformers, "GPT2LMHeadModel" if name == "GPT2" else f"{name}ForCausalLM")(config)
    model.save_pretrained(folder)
    tokenizer = Tokenizer(models.WordLevel({str(index): index for index in range(config.vocab_size)}, unk_token="0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = dict.fromkeys(("unk_token", "bos_token", "eos_token"), "0")
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(folder)


def make_bundle(checkpoint: Path, folder: Path, precision: str, prompts: list[str]) -> None:
    """Export the checkpoint without checks; nothing ends a text."""
    source = load(Folder(checkpoint))
    assert isinstance(source, GenerationSource)
    folder.parent.mkdir(parents=True)
    samples = [[int(token) for token in prompt.split()] for prompt in prompts[:CALIBRATION]]
    endless = GenerationSource(source.model, source.tokenizer, pad=0, ends=(), start=0, family=source.family)
    weights = [name for name, cached in WITH_INT8_CACHES.items() if cached == precision]
    write_generation(endless, folder, lambda line: None, samples, [*weights, precision])


def compare(
    candidates: Sequence[Candidate], prompts: list[str], precision: str, decoding: Decoding, rounds: int
) -> Iterator[Result]:
    """Measure the candidates with all prompts at once."""
    examples = Examples("random", [(prompt, "") for prompt in prompts], 0)
    found = measure(candidates, Case(examples, precision, decoding, len(prompts)), rounds)
    own = next((one for one in found if one.candidate.name == OWN), None)
    for one in found:
        ratio = min(one.seconds) / min(own.seconds) if own else None
        same = 100 * sum(map(eq, one.texts, own.texts)) / len(prompts) if own else None
        yield Result(len(prompts), one.candidate.name, len(prompts) * decoding.limit / min(one.seconds), ratio, same)


@click.command()
@click.argument("shape", type=click.Choice(list(SHAPES)))
@click.option("--prompts", "counts", default="1,8,32", show_default=True, help="At once.")
@click.option("--tokens", default=64, show_default=True, help="Of each prompt.")
@click.option("--new", default=64, show_default=True, help="Generated for each prompt.")
@click.option("--rounds", default=3, show_default=True)
@click.option("--cpus", default=1, show_default=True)
@click.option("--precision", type=click.Choice(["fp32", *chain(*WITH_INT8_CACHES.items())]), default="fp32", show_default=True)
@click.option("--candidates", "names", default="triptych,ctranslate2,genai,transformers", show_default=True)
@click.option("--clock", type=click.Choice(["wall", "cpu"]), default="wall", show_default=True)
@click.option("--tiny", is_flag=True)
@click.option("--work", type=click.Path(path_type=Path), default=None, help="[default: a temporary folder]")
@click.option("--json", "json_file", type=click.Path(path_type=Path), default=None)
def main(
    *,
    shape: str,
    counts: str,
    tokens: int,
    new: int,
    rounds: int,
    cpus: int,
    precision: str,
    names: str,
    clock: str,
    tiny: bool,
    work: Path | None,
    json_file: Path | None,
) -> None:
    """Run the benchmark."""
    os.environ[CLOCK] = clock  # the workers inherit it
    cpu_sets.pin(cpu_sets.choose(cpus)[0])
    chosen, sizes = words(names, list(GENERATORS), "--candidates"), numbers(counts)
    if clock == "cpu" and "grpc" in chosen:
        raise click.UsageError("--clock cpu does not see the server of candidate grpc; measure it by --clock wall")
    with ExitStack() as stack:
        root = work or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder = root / (f"{shape}-tiny" if tiny else shape)
        checkpoint, repository = folder / "checkpoint", folder / precision
        if not checkpoint.exists():
            make_checkpoint(shape, tiny, checkpoint)
        most = transformers.AutoConfig.from_pretrained(checkpoint).vocab_size
        chance = random.Random(1)
        prompts = [" ".join(str(chance.randrange(1, most)) for _ in range(tokens)) for _ in range(max(sizes))]
        if not (repository / "model").exists():
            make_bundle(checkpoint, repository / "model/1", precision, prompts)
        setup = Setup(checkpoint, repository, "model", folder / "ctranslate2", folder / "work", "cpu", cpus, slots=0)
        refused: dict[str, str] = {}
        about = {"machine": machine.describe("cpu"), "shape": shape, "precision": precision, "clock": clock, "refused": refused}
        click.echo("\n".join(f"{name}: {value}" for name, value in about.items()))
        candidates = []
        for candidate in open_candidates(setup, chosen, precision, refused, GENERATORS):
            stack.callback(candidate.close)
            candidates.append(candidate)
        table, results = Table(COLUMNS), []
        table.head(f"{tokens} tokens, {new} new ones")
        for size in sizes:
            for result in compare(candidates, prompts[:size], precision, Decoding(1, new, exact=True), rounds):
                results.append(result)
                table.row(*asdict(result).values())
                write_json(json_file, about, results)  # after every row, in case the run is stopped
        for name, reason in refused.items():
            click.echo(f"{name}: {reason}")


if __name__ == "__main__":
    main()
