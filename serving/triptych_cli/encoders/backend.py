"""The tasks of encoder models, run by an engine in this process or by a server."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from triptych_cli.common.connection import client_errors, connect
from triptych_cli.common.errors import needs
from triptych_cli.common.options import asks_server
from triptych_embedded.request import ModelChoice

Run = Callable[..., Sequence[Any]]


IMAGE_CLASSIFICATION = "image-classification"


@contextmanager
def open_encoder(choice: ModelChoice, capability: str, client_method: str) -> Iterator[Run]:
    """Connect to a server if the command is for one, else load a model in this process.

    Yields a function that takes inputs and keyword arguments and returns their results in the same order. It raises InputError
    if one of the inputs is the cause, and BackendError for anything else.

    Args:
        choice: which model, and where it runs.
        capability: what the model must be able to do; for texts also the name of the task in `TEXT_TASKS` of triptych_serving.
        client_method: name of the client's method, which takes the same arguments as the engine's task.

    Raises:
        click.ClickException: options contradict each other, or an extra is missing.
        BackendError: no model can be loaded.
    """
    if asks_server():
        with connect(choice.server) as client:

            def ask_server(inputs: Sequence[Any], **arguments: Any) -> Sequence[Any]:
                with client_errors():
                    method: Run = getattr(client, client_method)
                    return method(inputs, model=choice.model or None, **arguments)

            yield ask_server
        return
    needs("triptych_serving.repository.registry", "serve")
    from triptych_embedded.models import backend_errors, open_registry
    from triptych_serving.models.text.tasks import TEXT_TASKS
    from triptych_serving.repository.registry import ModelSelector

    with open_registry(choice, capability) as registry:

        def ask_engine(inputs: Sequence[Any], **arguments: Any) -> Sequence[Any]:
            selector = ModelSelector(choice.model)
            with backend_errors():
                if capability == IMAGE_CLASSIFICATION:
                    return registry.find_image(selector).classify(inputs, **arguments)
                return registry.find_text(selector, capability).run(TEXT_TASKS[capability], inputs, **arguments)

        yield ask_engine
