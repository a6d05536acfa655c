"""Run a model in this process."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from triptych_cli.common.errors import needs
from triptych_embedded.request import ModelChoice, TranslationRequest

if TYPE_CHECKING:
    from triptych_serving.repository.registry import ModelSelector, Registry


@contextmanager
def open_engine(choice: ModelChoice, capability: str) -> "Iterator[tuple[Registry, ModelSelector]]":
    """Load the models for a capability, such as "translation"; yield them, and the selector of the one that is wanted.

    Raises:
        click.ClickException: an extra is missing.
        BackendError: no model can be loaded, or the engine failed; InputError if one input is the cause.
    """
    needs("triptych_serving.repository.registry", "serve")
    from triptych_embedded.models import backend_errors, open_registry
    from triptych_serving.repository.registry import ModelSelector

    languages = (choice.source_language, choice.target_language) if isinstance(choice, TranslationRequest) else ()
    with open_registry(choice, capability) as registry, backend_errors():
        yield registry, ModelSelector(choice.model, choice.model_version, *languages)
