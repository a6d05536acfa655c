"""Encoders without Triptych on a GPU: PyTorch compiled in fp16, and ONNX Runtime with IO binding over the bundle's graph.

Both run batches of arrays from encoder_tasks.py and return the best token or label of each input.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Arrays = Mapping[str, Any]
WARM_RUNS = 3
MOST_SHAPES = 256
LENGTH_STEP = 16  # PyTorch's batches of texts are padded to multiples of it
PROVIDER = {"arena_extend_strategy": "kSameAsRequested", "cudnn_conv_algo_search": "HEURISTIC"}


class EncoderModel(Protocol):
    """Encoder that runs one batch at a time and copies the results to the host."""

    settings: str

    def prepare(self, arrays: Arrays) -> Any:
        """Prepare the input of `run`, in any thread."""

    def run(self, batch: Any) -> NDArray[np.int64]:
        """The best token or label of each input, `[N]`."""


class OnnxRuntimeEncoder:
    """ONNX Runtime: inputs and outputs bound to the device, one copy up and one down.

    Args:
        graph: the .onnx file.
        outputs: names of two: scores, and tokens or labels.
        device: "cuda", "cuda:1" or "cpu".
    """

    def __init__(self, graph: Path, outputs: Sequence[str], device: str) -> None:
        import onnxruntime as ort  # type: ignore[import-untyped]

        self._kind, _, index = device.partition(":")
        self._index, self._names = int(index or 0), outputs
        options = ort.SessionOptions()
        options.log_severity_level = 3
        providers: list[Any] = ["CPUExecutionProvider"]
        if self._kind == "cuda":
            providers.insert(0, ("CUDAExecutionProvider", {"device_id": str(self._index), **PROVIDER}))
        self._session = ort.InferenceSession(str(graph), options, providers=providers)
        if self._kind == "cuda" and "CUDAExecutionProvider" not in self._session.get_providers():
            raise RuntimeError("ONNX Runtime has not loaded its CUDA provider")
        self._names_in = {node.name for node in self._session.get_inputs()}
        self.settings = "IO binding" if self._kind == "cuda" else "CPU provider"

    def prepare(self, arrays: Arrays) -> Arrays:
        return {name: np.ascontiguousarray(array) for name, array in arrays.items() if name in self._names_in}

    def run(self, batch: Arrays) -> NDArray[np.int64]:
        binding = self._session.io_binding()
        for name, array in batch.items():
            binding.bind_cpu_input(name, array)
        for name in self._names:
            binding.bind_output(name, self._kind, self._index)
        self._session.run_with_iobinding(binding)
        _, best = binding.copy_outputs_to_cpu()
        answers: NDArray[np.int64] = best[:, 0].astype(np.int64)
        return answers


class CompiledEncoder:
    """PyTorch: fp16 (fp32 on the CPU), torch.compile and a CUDA graph for each shape of a batch.

    Args:
        task: of encoders.py.
        device: "cuda", "cuda:1" or "cpu".
        compiles: run torch.compile.
        top_k: how many candidates are ranked.
    """

    def __init__(self, task: Any, device: str, compiles: bool, top_k: int) -> None:
        self._device = torch.device(device)
        self._gpu = self._device.type == "cuda"
        self._dtype = torch.float16 if self._gpu else torch.float32
        self._task, self._top_k = task, top_k
        self._model: Any = task.checkpoint.model.eval().to(self._device, self._dtype)
        torch._dynamo.config.recompile_limit = MOST_SHAPES
        compute = self._text if hasattr(task, "mask") else self._image
        if hasattr(task, "spec"):  # a CUDA graph cannot copy them from the host
            image = task.checkpoint.image
            self._scaling = [torch.tensor(values, device=device).view(1, 3, 1, 1) for values in (image.mean, image.std)]
        self._compute = torch.compile(compute, dynamic=False) if compiles else compute
        self._ready: dict[tuple[tuple[int, ...], ...], tuple[dict[str, Tensor], Any, Tensor]] = {}
        self.settings = ("torch.compile, " if compiles else "eager, ") + ("fp16, CUDA graphs" if self._gpu else "fp32")

    def prepare(self, arrays: Arrays) -> Mapping[str, Tensor]:
        """Padded, in page-locked memory."""
        tensors = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in self._padded(arrays).items()}
        return {name: tensor.pin_memory() for name, tensor in tensors.items()} if self._gpu else tensors

    @torch.inference_mode()
    def run(self, batch: Mapping[str, Tensor]) -> NDArray[np.int64]:
        shape = tuple(tuple(tensor.shape) for tensor in batch.values())
        if shape not in self._ready:
            self._ready[shape] = self._capture(batch)
        inputs, replay, best = self._ready[shape]
        for name, tensor in batch.items():
            inputs[name].copy_(tensor, non_blocking=True)
        if replay is None:
            best = self._compute(**inputs)
        else:
            replay()
        answers: NDArray[np.int64] = best[:, 0].cpu().numpy()
        return answers

    def _padded(self, arrays: Arrays) -> Arrays:
        if "pixels" in arrays:
            return {"pixels": arrays["pixels"]}
        ids = arrays["ids"]
        rows, length = ids.shape
        padded = np.full((rows, -(-length // LENGTH_STEP) * LENGTH_STEP), self._task.pad, np.int64)
        padded[:, :length] = ids
        return {"ids": padded, "places": np.flatnonzero(padded.reshape(-1) == self._task.mask)}

    def _capture(self, tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], Any, Tensor]:
        """Inputs on the device, how to run over them (None: by a call), and where the answers are then."""
        inputs = {name: tensor.to(self._device, copy=True) for name, tensor in tensors.items()}
        if not self._gpu:
            return inputs, None, torch.empty(0)
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_RUNS):
                self._compute(**inputs)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            best = self._compute(**inputs)
        return inputs, graph.replay, best

    def _text(self, ids: Tensor, places: Tensor) -> Tensor:
        logits = self._model(ids, torch.zeros_like(ids), places)[0]
        best: Tensor = logits.float().softmax(-1).topk(self._top_k)[1]
        return best

    def _image(self, pixels: Tensor) -> Tensor:
        mean, std = self._scaling
        scaled = (pixels.permute(0, 3, 1, 2).float() / 255 - mean) / std
        best: Tensor = self._model(scaled.to(self._dtype)).float().softmax(-1).topk(self._top_k)[1]
        return best
