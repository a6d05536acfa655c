"""Readers of members of config.json that several architectures share."""

from collections.abc import Mapping

from triptych_export.huggingface.folder import Folder

ACTIVATIONS: Mapping[str, str] = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
}
SINGLE_LABEL, MULTI_LABEL = "single_label_classification", "multi_label_classification"


def activation(folder: Folder, member: str, default: str = "gelu") -> str:
    """Translate the activation named in config.json to our name.

    Raises:
        SourceError: the activation is not supported.
    """
    name = folder.config.get(member, default)
    if name not in ACTIVATIONS:
        raise folder.config_error(f"{member}: {name!r} is not supported; supported: {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


def integer(folder: Folder, name: str, default: int | None = None) -> int:
    """Read an integer of config.json.

    Raises:
        SourceError: the member is missing without a default, or is not an integer.
    """
    value = folder.config.get(name)
    value = default if value is None else value
    if type(value) is not int:
        raise folder.config_error(f"{name}: {value!r}, expected a whole number")
    return value


def check_architecture(folder: Folder, *supported: str, required: bool = False) -> None:
    """Reject a folder whose saved class is not among `supported`.

    Args:
        folder: the checkpoint.
        supported: names of classes with a head that can be exported.
        required: also reject a config.json that names no class.

    Raises:
        SourceError: names the class found and those supported.
    """
    if folder.architecture not in (*supported, *(() if required else ("",))):
        found, known = folder.architecture or "no architecture", ", ".join(supported)
        raise folder.config_error(f"{found} is not supported; supported of {folder.model_type}: {known}")


def require(folder: Folder, expected: Mapping[str, object]) -> None:
    """Reject members of config.json whose value is not the only supported one.

    Raises:
        SourceError: names the member, its value and the supported value.
    """
    for name, value in expected.items():
        if (found := folder.config.get(name, value)) != value:
            raise folder.config_error(f"{name}: {found!r} is not supported; supported: {value!r}")
