"""Metadata of a model, for ModelMetadata and, in Triton's form, for ModelConfig."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from triptych.inference import open_inference_pb2 as pb
from triptych_serving.bundle.manifest import TENSORS, AnyTranslationManifest, TextManifest, TranslationManifest
from triptych_serving.bundle.manifest.tensors import BYTES
from triptych_serving.models.image.image_model import ImageModel
from triptych_serving.models.model import Model
from triptych_serving.models.tensors.tensor_model import TensorModel
from triptych_serving.models.text.tasks import FILL_MASK_TASK
from triptych_serving.models.text.text_model import TextModel
from triptych_serving.services.oip.tasks import TASKS, tasks_of
from triptych_serving.services.oip.tensors import MAX_ELEMENTS

PLATFORM = "triptych"


class Tensor(NamedTuple):
    """An input or output."""

    name: str
    datatype: str
    shape: Sequence[int]  # -1: variable
    optional: bool = False


class Tensors(NamedTuple):
    """The tensors of a model's default task."""

    inputs: list[Tensor]
    outputs: list[Tensor]
    most: int  # elements of a request, along the first dimension; 0: the model does not batch


def metadata_of(model: Model, versions: Sequence[str]) -> pb.ModelMetadataResponse:
    """Describe the tensors of a model's default task; `versions` are all that are loaded."""
    inputs, outputs = (
        [pb.ModelMetadataResponse.TensorMetadata(name=one.name, datatype=one.datatype, shape=one.shape) for one in tensors]
        for tensors in _tensors_of(model)[:2]
    )
    return pb.ModelMetadataResponse(name=model.name, versions=versions, platform=PLATFORM, inputs=inputs, outputs=outputs)


def config_of(model: Model, versions: Sequence[str]) -> pb.ModelConfig:
    """Describe the same for Triton's clients; the parameters list tasks, their parameters and the model's limits."""
    tensors = _tensors_of(model)
    numbers = [int(version) for version in versions if int(version) < 2**63]  # larger ones do not fit into the field

    def described(one: Tensor) -> dict[str, Any]:
        """Return the fields of a tensor; where a model batches, `dims` lack the first dimension."""
        kind = pb.TYPE_STRING if one.datatype == BYTES else pb.DataType.Value(f"TYPE_{one.datatype}")
        return {"name": one.name, "data_type": kind, "dims": one.shape[bool(tensors.most) :] or (1,)}

    return pb.ModelConfig(
        name=model.name,
        platform=PLATFORM,
        backend=PLATFORM,
        version_policy=pb.ModelVersionPolicy(specific=pb.ModelVersionPolicy.Specific(versions=numbers)),
        max_batch_size=tensors.most,
        input=[pb.ModelInput(optional=one.optional, **described(one)) for one in tensors.inputs],
        output=[pb.ModelOutput(**described(one)) for one in tensors.outputs],
        parameters={name: pb.ModelParameter(string_value=value) for name, value in _parameters(model).items()},
    )


def _tensors_of(model: Model) -> Tensors:
    if isinstance(model, TensorModel):
        manifest = model.manifest
        inputs = [Tensor(name, spec.datatype, spec.shape) for name, spec in manifest.inputs.items()]
        outputs = [Tensor(name, spec.datatype, spec.shape) for name, spec in manifest.outputs.items()]
        return Tensors(inputs, outputs, MAX_ELEMENTS if manifest.batches else 0)
    task = TASKS[tasks_of(model)[0]]
    inputs = [Tensor(one.name, BYTES, (-1, 1), one.optional) for one in task.inputs]
    outputs = [Tensor(one.name, one.datatype, (-1, *(one.sizes or (1,)))) for one in task.outputs]
    return Tensors(inputs, outputs, min(MAX_ELEMENTS, model.limiter.limit) if isinstance(model, ImageModel) else MAX_ELEMENTS)


def _parameters(model: Model) -> dict[str, str]:
    names, manifest = tasks_of(model), model.manifest
    parameters = {"task": names[0], "tasks": ",".join(names), "precision": model.precision, "family": manifest.family}
    parameters["devices"] = ",".join(map(str, model.devices))
    for name in names:
        if name == TENSORS:
            continue
        types = TASKS[name].parameters
        parameters[f"parameters.{name}"] = "; ".join(f"{option}: {kind.text}" for option, kind in types.items())
    if isinstance(manifest, AnyTranslationManifest):
        parameters["source_language_codes"] = ",".join(manifest.source_languages)
        parameters["target_language_codes"] = ",".join(manifest.target_languages)
    if isinstance(manifest, TranslationManifest):
        parameters["max_source_tokens"] = str(manifest.limits.max_source_tokens)
        parameters["max_target_tokens"] = str(manifest.limits.max_target_tokens)
    if isinstance(manifest, TextManifest):
        parameters["max_source_tokens"] = str(manifest.limits.max_tokens)
    if FILL_MASK_TASK.name in names:
        assert isinstance(model, TextModel)
        parameters["mask_token"] = model.tokenizer.mask
    return parameters
