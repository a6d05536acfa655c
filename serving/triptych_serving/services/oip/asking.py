"""Requests to infer: which model and task they mean, and what becomes of their results."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from triptych.inference import open_inference_pb2 as pb
from triptych_serving.errors import InvalidInputError
from triptych_serving.repository.registry import ModelSelector, Registry
from triptych_serving.services.oip.inputs import inputs_from
from triptych_serving.services.oip.parameters import TEXT, parameters_from
from triptych_serving.services.oip.task import Output, Question, Task
from triptych_serving.services.oip.tasks import PARAMETER, TASKS, name_from
from triptych_serving.services.oip.tensors import encode

# How the errors of what is asked call a request's parts: `contents[3]`, `inputs[0].text_pair`, `options.beam_size`, `top_k`.
_PART = re.compile(r"(?:contents|inputs|images)(\[\d+])?(?:\.(\w+))?")


@dataclass(frozen=True)
class Asking:
    """A request that has been understood."""

    request: pb.ModelInferRequest
    task: Task
    question: Question

    @contextmanager
    def named(self) -> Iterator[None]:
        """Errors name the parts of the request as this protocol does."""
        try:
            yield
        except InvalidInputError as error:
            raise InvalidInputError(self._field(error.field), error.problem) from error

    def response(self, outputs: Sequence[Output] = (), results: Sequence[Any] = ()) -> pb.ModelInferResponse:
        """These outputs of results; where inputs are columns, outputs of one value each are so too."""
        question = self.question
        response = pb.ModelInferResponse(model_name=question.model, model_version=question.version, id=self.request.id)
        for output in outputs:
            shape, raw = encode([output.read(result) for result in results], 1 + len(output.sizes), output.datatype)
            if question.inputs.is_column and not output.sizes:
                shape = (*shape, 1)
            response.outputs.add(name=output.name, datatype=output.datatype, shape=shape)
            response.raw_output_contents.append(raw)
        return response

    def _field(self, field: str) -> str:
        if part := _PART.fullmatch(field):
            return f"{part[2] or self.task.inputs[0].name}{part[1] or ''}"
        name = field.removeprefix("options.")
        return f"parameters.{name}" if re.split(r"\W", name)[0] in self.task.parameters else field


def asking_from(request: pb.ModelInferRequest, registry: Callable[[], Registry], streams: bool = False) -> Asking:
    """What a request means.

    Args:
        request: as it came.
        registry: returns the loaded models, or raises UnavailableError while there are none.
        streams: it came on a stream.

    Raises:
        InvalidInputError: something in it cannot be accepted; names it.
        NotFoundError: no such model or version.
        UnavailableError: the model is there, but not loaded.
    """
    if not request.model_name:
        raise InvalidInputError("model_name", "it is empty, name a model")
    model = registry().named(ModelSelector(request.model_name, request.model_version))
    given = dict(request.parameters)
    chosen = parameters_from({PARAMETER: given.pop(PARAMETER)}, {PARAMETER: TEXT}) if PARAMETER in given else {}
    task = TASKS[name_from(chosen.get(PARAMETER), model)]
    values = parameters_from(given, {**task.parameters, PARAMETER: TEXT})
    outputs = _output_names(request)
    question = Question(
        model.name, str(model.version), inputs_from(request, task.inputs), values, task.wanted(outputs, values, streams)
    )
    return Asking(request, task, question)


def _output_names(request: pb.ModelInferRequest) -> list[str]:
    for index, output in enumerate(request.outputs):
        if unknown := next(iter(output.parameters), None):
            problem = f"there is {unknown!r}, outputs take none; classification and shared memory are not offered"
            raise InvalidInputError(f"outputs[{index}].parameters", problem)
    return [output.name for output in request.outputs]
