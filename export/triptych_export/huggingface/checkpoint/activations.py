"""Names of activations in Hugging Face's config.json."""

from collections.abc import Mapping

from triptych_export.errors import SourceError
from triptych_export.huggingface.folder import CONFIG, Folder

NAMES: Mapping[str, str] = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
}


def activation(folder: Folder, member: str, default: str = "gelu") -> str:
    """Translate the activation named in config.json to our name.

    Raises:
        SourceError: there is no such activation here.
    """
    name = folder.config.get(member, default)
    if name not in NAMES:
        raise SourceError(f"{folder.path / CONFIG}: {member}: {name!r} is not supported; supported: {', '.join(NAMES)}")
    return NAMES[name]
