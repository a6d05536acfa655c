"""Which methods services have."""

from collections.abc import Iterable

from triptych_serving.rpc.descriptors import DESCRIPTORS


def methods_of(services: Iterable[str]) -> list[str]:
    """Full names, such as "triptych.v1.TranslationService/Translate".

    Args:
        services: full names.
    """
    return [f"{name}/{method.name}" for name in services for method in DESCRIPTORS.FindServiceByName(name).methods]
