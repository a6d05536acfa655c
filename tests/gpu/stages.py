"""Stages of the kit in order, each with its commands and time limit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "tests" / "benchmarks"
MODELS = ROOT / "serving" / "triptych_models" / "repository"
SERVERS = "Triptych in process,Triptych,CTranslate2"
POSITIONS = 40  # of the translation model: 32 tokens are asked for, and exports compare all that there are
TOY_TOKENIZER = ROOT / "tests" / "fixtures" / "checkpoint" / "tokenizer.json"


@dataclass(frozen=True)
class Setup:
    """Options of a whole run.

    Args:
        python: Interpreter.
        work: Models, logs and results, kept between calls.
        device: "cuda", "cuda:1", or "cpu" to rehearse.
        tiny: Smallest models and loads; figures are meaningless.
        checkpoint: Trained translation model, to measure quality.
        pairs: Its test set.
    """

    python: str
    work: Path
    device: str
    tiny: bool
    checkpoint: str = ""
    pairs: str = ""

    def results(self, name: str) -> str:
        """Return the result file of a stage."""
        return str(self.work / "results" / f"{name}.json")

    def made(self, name: str) -> Path:
        """Return the folder of a checkpoint made by a stage."""
        return self.work / "checkpoints" / name

    def repository(self, name: str) -> Path:
        """Return the repository of a model's bundle."""
        return self.work / "repositories" / name


@dataclass(frozen=True)
class Stage:
    """Commands and limits of a stage."""

    name: str
    about: str
    commands: Sequence[Sequence[str]]
    limit_seconds: float  # after which it is stopped
    least_seconds: float  # required to start it
    needs: Sequence[str] = ()  # stages that must be done
    fresh: Sequence[Path] = ()  # folders deleted before each attempt
    variables: Mapping[str, str] = field(default_factory=dict)  # of the environment


def stages(setup: Setup) -> list[Stage]:
    """Return all stages."""
    environment = [
        setup.python,
        "-m",
        "tests.gpu.environment",
        "--device",
        setup.device,
        "--json",
        setup.results("environment"),
    ]
    kernels = _bench(setup, "gpu_kernels.py", str(setup.repository("translation")), *_common(setup, "kernels"))
    limits, translation = _bench(setup, "roofline.py", *_common(setup, "ceilings")), ("model-translation",)
    long = _suite(setup) | {"TRIPTYCH_GPU_TIMES": "1" if setup.tiny else "10"}
    storm = _pytest(setup, "tests/gpu/test_storm.py", "tests/gpu/test_memory.py")
    return [
        Stage("environment", "versions; the provider computes; what is missing", [environment], 120, 20),
        Stage("ceilings", "bandwidth, matrix products, launches", [limits], 120, 20),
        *_models(setup),
        Stage("tests", "the suite in tests/gpu", [_pytest(setup, "tests/gpu")], 540, 240, variables=_suite(setup)),
        *_offline(setup),
        _server(setup),
        *_encoders(setup),
        Stage("kernels", "which kernels a step runs, and for how long", [kernels], 120, 30, translation),
        *_quality(setup),
        Stage("soak", "storm and memory, ten times as long", [storm], 540, 120, variables=long),
    ]


def _bench(setup: Setup, script: str, *arguments: str) -> list[str]:
    return [setup.python, str(BENCHMARKS / script), *arguments]


def _common(setup: Setup, name: str) -> list[str]:
    return ["--device", setup.device, *(["--tiny"] if setup.tiny else []), "--json", setup.results(name)]


def _models(setup: Setup) -> list[Stage]:
    """Return the stages that make checkpoints with random weights and their bundles."""
    tokenizers = {"translation": MODELS / "en-de" / "1" / "tokenizer.json", "bert": MODELS / "bert-en" / "1" / "tokenizer.json"}
    if setup.tiny:
        tokenizers["translation"] = TOY_TOKENIZER
    made = []
    for name in ("translation", "bert", "vit"):
        tokenizer = [str(tokenizers[name])] if name in tokenizers else []
        size = [*(["--positions", str(POSITIONS)] if name == "translation" else []), *(["--tiny"] if setup.tiny else [])]
        out = str(setup.made(name))
        command = _bench(setup, "base.py", name, *tokenizer, out, *size, "--bundle", str(setup.repository(name) / name / "1"))
        command += ["--precisions", "fp16"] if name == "translation" else []
        about = f"{name}: a checkpoint of the base shape with random weights, and its bundle"
        fresh = (setup.made(name), setup.repository(name))
        made.append(Stage(f"model-{name}", about, [command], 420, 60, fresh=fresh))
    return made


def _pytest(setup: Setup, *arguments: str) -> list[str]:
    return [setup.python, "-m", "pytest", "-m", "gpu", *arguments, "-p", "no:cacheprovider", "-q"]


def _suite(setup: Setup) -> dict[str, str]:
    """Return the variables of the tests, which keep their models for the next call."""
    return {"TRIPTYCH_TEST_DEVICE": setup.device, "TRIPTYCH_TEST_MODELS": str(setup.repository("tests"))}


def _offline(setup: Setup) -> list[Stage]:
    translation, repository = str(setup.made("translation")), str(setup.repository("translation"))
    common = [translation, repository, "--pairs", str(setup.made("translation") / "samples.tsv")]
    short = ["--length", "6", "--calls", "1", "--rounds", "1", "--sentences", "8"]
    greedy = short if setup.tiny else ["--length", "32", "--rounds", "5", "--calls", "8"]
    beams = [*(short if setup.tiny else ["--length", "32", "--rounds", "3", "--calls", "4"]), "--beam", "4"]
    batches = "1,4" if setup.tiny else "1,32,256,1024"
    beam_batches = "1,4" if setup.tiny else "1,32,128"
    no_torch = ["--candidates", "ctranslate2,ctranslate2-int8,triptych"]
    torch = ["--candidates", "triptych,pytorch,transformers"]
    slow = ["--calls", "2", "--rounds", "3"] if not setup.tiny else []

    def stage(name: str, about: str, limit: float, least: float, *options: str) -> Stage:
        command = _bench(setup, "gpu_offline.py", *common, *options, *_common(setup, name))
        return Stage(name, about, [command], limit, least, ("model-translation",))

    torch_options = (*greedy, *slow, "--batches", batches, *torch)
    return [
        stage("offline", "greedy: Triptych and CTranslate2", 300, 75, *greedy, "--batches", batches, *no_torch),
        stage("offline-torch", "greedy: Triptych, PyTorch compiled and transformers", 540, 300, *torch_options),
        stage("offline-beam", "beam 4: Triptych and CTranslate2", 300, 60, *beams, "--batches", beam_batches, *no_torch),
    ]


def _server(setup: Setup) -> Stage:
    checkpoint = setup.made("translation")
    command = _bench(
        setup, "gpu_server.py", str(checkpoint), str(setup.repository("translation")), str(checkpoint / "samples.tsv")
    )
    command += ["--servers", SERVERS, "--device", setup.device, "--json", setup.results("server")]
    if setup.tiny:
        command += ["--length", "6", "--cpus", "1", "--generators", "1", "--seconds", "1", "--factor", "3", "--in-flight", "4"]
        command += ["--max-batch", "4", "--slots", "4", "--sentences", "16"]
    else:
        command += ["--length", "32", "--seconds", "3", "--factor", "1.4"]
    return Stage("server", "Poisson arrivals, p99 within 100 ms", [command], 420, 90, ("model-translation",))


def _encoders(setup: Setup) -> list[Stage]:
    found = []
    for name in ("bert", "vit"):
        command = _bench(setup, "gpu_encoders.py", str(setup.made(name)), str(setup.repository(name)), *_common(setup, name))
        if setup.tiny:
            command += ["--tokens", "16", "--count", "12", "--batches", "4", "--rounds", "1", "--in-flight", "4"]
            command += ["--per-request", "2", "--clients", "1"]
        else:
            command += ["--batches", "64"]
        stage = f"encoder-{name}"
        found.append(Stage(stage, f"{name}: by hand, in process, through gRPC", [command], 420, 130, (f"model-{name}",)))
    return found


def _quality(setup: Setup) -> list[Stage]:
    """Return the stages for a trained model, if there is one."""
    if not setup.checkpoint:
        return []
    repository = str(setup.repository("quality"))
    export = [setup.python, "-m", "triptych_cli", "export", setup.checkpoint, "--out", repository, "--name", "quality"]
    export += ["--version", "1", "--precision", "fp32", "--precision", "fp16"]
    measure = _bench(setup, "gpu_offline.py", setup.checkpoint, repository, "--pairs", setup.pairs, *_common(setup, "quality"))
    measure += ["--beam", "1,4", "--batches", "128", "--sentences", "2048", "--rounds", "3"]
    measure += ["--candidates", "ctranslate2,triptych"]
    variables = _suite(setup) | {
        "TRIPTYCH_CHECKPOINT": setup.checkpoint,
        "TRIPTYCH_PAIRS": setup.pairs,
        "TRIPTYCH_BUNDLE": str(setup.repository("quality") / "quality" / "1"),
    }
    about, fresh = "a trained model: BLEU, agreement with fp32", (setup.repository("quality"),)
    commands = [export, measure, _pytest(setup, "tests/gpu/test_agreement.py", "-k", "own")]
    return [Stage("quality", about, commands, 540, 120, fresh=fresh, variables=variables)]
