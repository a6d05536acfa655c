"""Requests with tensors, serialized once and sent many times."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from triptych.inference import open_inference_pb2 as pb
from triptych_bench.oip.datatypes import BYTES, ElementError, count_of, encode
from triptych_bench.oip.inputdata import InputTensor
from triptych_bench.oip.model import STREAMED, ModelFacts, TensorSpec, parameters, sizes, task_tensors
from triptych_bench.target import RequestSpec, Sample, TargetError

Packed = tuple[tuple[int, ...], bytes]  # shape and raw contents of a tensor


class RequestBuilder:
    """Makes the requests for one model.

    Raises:
        TargetError: The model does not support the task or a shape.
    """

    def __init__(self, facts: ModelFacts, spec: RequestSpec) -> None:
        self._facts, self._spec = facts, spec
        for name, given in spec.shapes.items():
            sizes(facts.input(name), given)
        self.task = task_tensors(facts, spec)
        outputs = self.task.outputs if self.task else ()
        self._outputs = (*STREAMED, *outputs) if spec.stream and outputs else outputs

    def serialized(self, samples: Sequence[Sample]) -> bytes:
        """Make one request. Raises TargetError: the samples do not fit the model or each other."""
        if len(samples) > (most := self._facts.most):
            raise TargetError(
                f"the model {self._facts.name} takes at most {most:,.0f} inputs per request, there are {len(samples):,}"
            )
        packed = [self._tensors(sample) for sample in samples]
        names = list(packed[0])
        if any(list(one) != names for one in packed):
            raise TargetError("the inputs of one request have different tensors: send one input per request")
        joined = {name: self._joined(name, [one[name] for one in packed]) for name in names}
        return self._message(joined, len(samples)).SerializeToString()

    def _message(self, tensors: Mapping[str, Packed], count: int) -> pb.ModelInferRequest:
        inputs = [
            pb.ModelInferRequest.InferInputTensor(name=name, datatype=self._input(name).datatype, shape=shape)
            for name, (shape, _) in tensors.items()
        ]
        values = parameters(self._facts, self._spec)
        if isinstance(prefix := values.get("target_prefix"), str):
            values["target_prefix"] = [prefix] * count  # one for each text
        return pb.ModelInferRequest(
            model_name=self._facts.name,
            model_version=self._spec.version,
            parameters={name: parameter(value) for name, value in values.items()},
            inputs=inputs,
            outputs=[pb.ModelInferRequest.InferRequestedOutputTensor(name=name) for name in self._outputs],
            raw_input_contents=[raw for _, raw in tensors.values()],
        )

    def _joined(self, name: str, packed: Sequence[Packed]) -> Packed:
        """Join the tensors of all inputs; without batches there is just one."""
        shapes = {shape for shape, _ in packed}
        if len(shapes) > 1:
            listed = ", ".join(str(list(one)) for one in sorted(shapes)[:3])
            raise TargetError(
                f"the inputs of one request differ in the shape of {name!r}: {listed}; send one input per request"
            )
        [shape] = shapes
        return ((len(packed), *shape) if self._facts.batches else shape), b"".join(raw for _, raw in packed)

    def _tensors(self, sample: Sample) -> dict[str, Packed]:
        data = sample.data
        given = data if isinstance(data, Mapping) else self._texts(data)
        missing = [tensor.name for tensor in self._facts.required if tensor.name not in given] if not self.task else []
        if missing:
            raise TargetError(
                f"{sample.name or 'the input'}: no tensor for the input {missing[0]!r} of the model {self._facts.name}, "
                f"which takes {self._facts.listed}"
            )
        try:
            return {name: self._packed(self._input(name), one) for name, one in given.items()}
        except ElementError as error:
            raise TargetError(f"{sample.name or 'the input'}: {error}") from error

    def _texts(self, data: Any) -> dict[str, InputTensor]:
        """Assign texts or files to the inputs for them, in the model's order."""
        parts = tuple(data) if isinstance(data, tuple | list) else (data,)
        if self.task:
            names = self.task.inputs
        else:
            texts = [tensor for tensor in self._facts.inputs if tensor.datatype == BYTES]
            names = tuple(tensor.name for tensor in sorted(texts, key=lambda tensor: tensor.optional))
        if len(names) < len(parts):
            raise TargetError(
                f"the model {self._facts.name} takes {self._facts.listed}: there is no {BYTES} input for each of "
                f"{len(parts)} texts; `triptych bench infer` measures models of any tensors"
            )
        return {name: InputTensor((part,)) for name, part in zip(names, parts, strict=False)}

    def _input(self, name: str) -> TensorSpec:
        return TensorSpec(name, BYTES, (1,)) if self.task and name in self.task.inputs else self._facts.input(name)

    def _packed(self, tensor: TensorSpec, given: InputTensor) -> Packed:
        """Encode one tensor and check its shape."""
        raw = given.content if isinstance(given.content, bytes) else encode(tensor.datatype, given.content)
        shape = self._shape(tensor, given, count := count_of(tensor.datatype, raw))
        if math.prod(shape) != count:
            raise ElementError(f"the input {tensor} has {count:,} elements, the shape {list(shape)} has {math.prod(shape):,}")
        return shape, raw

    def _shape(self, tensor: TensorSpec, given: InputTensor, count: int) -> tuple[int, ...]:
        """Return the shape from the file or the user, or the only possible one."""
        shape = self._spec.shapes.get(tensor.name) if given.shape is None else given.shape
        if shape is None and tensor.dims.count(-1) == 1:
            known = math.prod(size for size in tensor.dims if size != -1)
            shape = tuple(count // known if size == -1 and known else size for size in tensor.dims)
        return sizes(tensor, shape)


def parameter(value: object) -> pb.InferParameter:
    """Convert a value by its type; lists become JSON."""
    if isinstance(value, bool):
        return pb.InferParameter(bool_param=value)
    if isinstance(value, int):
        return pb.InferParameter(int64_param=value)
    if isinstance(value, float):
        return pb.InferParameter(double_param=value)
    return pb.InferParameter(string_param=value if isinstance(value, str) else json.dumps(value))
