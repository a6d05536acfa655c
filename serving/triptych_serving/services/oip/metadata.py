"""Metadata of a model, for ModelMetadata and, in Triton's form, for ModelConfig."""

from collections.abc import Sequence
from typing import Any

from triptych.inference import open_inference_pb2 as pb
from triptych_serving.bundle.manifest import TENSORS, TextManifest, TranslationManifest
from triptych_serving.models.image.image_model import ImageModel
from triptych_serving.models.model import Model
from triptych_serving.models.tensors.tensor_model import TensorModel
from triptych_serving.models.text.tasks import FILL_MASK_TASK
from triptych_serving.models.text.text_model import TextModel
from triptych_serving.services.oip.plain_tensors import config, metadata
from triptych_serving.services.oip.task import InferTask, OutputTensor
from triptych_serving.services.oip.tasks import TASKS, tasks_of
from triptych_serving.services.oip.tensors import BYTES, FP32, INT64, MAX_ELEMENTS, UINT32

PLATFORM = "triptych"
TYPES = {BYTES: pb.TYPE_STRING, FP32: pb.TYPE_FP32, INT64: pb.TYPE_INT64, UINT32: pb.TYPE_UINT32}
TensorMetadata = pb.ModelMetadataResponse.TensorMetadata


def metadata_of(model: Model, versions: Sequence[str]) -> pb.ModelMetadataResponse:
    """Describe the tensors of a model's default task; `versions` are all that are loaded."""
    if isinstance(model, TensorModel):
        tensors = {"inputs": metadata(model.manifest.inputs), "outputs": metadata(model.manifest.outputs)}
        return pb.ModelMetadataResponse(name=model.name, versions=versions, platform=PLATFORM, **tensors)
    task = _default_task(model)
    return pb.ModelMetadataResponse(
        name=model.name,
        versions=versions,
        platform=PLATFORM,
        inputs=[TensorMetadata(name=one.name, datatype=BYTES, shape=[-1, 1]) for one in task.inputs],
        outputs=[TensorMetadata(name=one.name, datatype=one.datatype, shape=[-1, *_dims(one)]) for one in task.outputs],
    )


def config_of(model: Model, versions: Sequence[str]) -> pb.ModelConfig:
    """Describe the same for Triton's clients; the parameters list tasks, their parameters and the model's limits."""
    return pb.ModelConfig(
        name=model.name,
        platform=PLATFORM,
        backend=PLATFORM,
        version_policy=pb.ModelVersionPolicy(specific=pb.ModelVersionPolicy.Specific(versions=map(int, versions))),
        **(config(model, MAX_ELEMENTS) if isinstance(model, TensorModel) else _tensors(model)),
        parameters={name: pb.ModelParameter(string_value=value) for name, value in _parameters(model).items()},
    )


def _tensors(model: Model) -> dict[str, Any]:
    """Describe the tensors of a model's default task, and the most elements of a request."""
    task = _default_task(model)
    return {
        "max_batch_size": min(MAX_ELEMENTS, model.limiter.limit) if isinstance(model, ImageModel) else MAX_ELEMENTS,
        "input": [
            pb.ModelInput(name=one.name, data_type=pb.TYPE_STRING, dims=[1], optional=one.optional) for one in task.inputs
        ],
        "output": [pb.ModelOutput(name=one.name, data_type=TYPES[one.datatype], dims=_dims(one)) for one in task.outputs],
    }


def _default_task(model: Model) -> InferTask:
    return TASKS[tasks_of(model)[0]]


def _dims(output: OutputTensor) -> tuple[int, ...]:
    """Return the dimensions after the first."""
    return output.sizes or (1,)


def _parameters(model: Model) -> dict[str, str]:
    names, manifest = tasks_of(model), model.manifest
    parameters = {"task": names[0], "tasks": ",".join(names), "precision": model.precision, "family": manifest.family}
    parameters["devices"] = ",".join(map(str, model.devices))
    for name in names:
        if name == TENSORS:
            continue
        types = TASKS[name].parameters
        parameters[f"parameters.{name}"] = "; ".join(f"{option}: {kind.text}" for option, kind in types.items())
    if isinstance(manifest, TranslationManifest):
        parameters["source_language_codes"] = ",".join(manifest.source_languages)
        parameters["target_language_codes"] = ",".join(manifest.target_languages)
        parameters["max_source_tokens"] = str(manifest.limits.max_source_tokens)
        parameters["max_target_tokens"] = str(manifest.limits.max_target_tokens)
    if isinstance(manifest, TextManifest):
        parameters["max_source_tokens"] = str(manifest.limits.max_tokens)
    if FILL_MASK_TASK.name in names:
        assert isinstance(model, TextModel)
        parameters["mask_token"] = model.tokenizer.mask
    return parameters
