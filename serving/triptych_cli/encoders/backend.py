"""The tasks of encoder models, run by an engine in this process or by a server."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from triptych_cli.common.connection import SERVER_WAIT_SECONDS, PatientClient, connect, input_errors, model_arguments
from triptych_cli.common.engine import open_engine
from triptych_cli.common.errors import one_line
from triptych_cli.common.lines import run_each
from triptych_cli.common.options import asks_server
from triptych_embedded.request import ModelChoice

Run = Callable[..., Sequence[Any]]  # returns a result or an InputError for each input

IMAGE_CLASSIFICATION, RERANK = "image-classification", "rerank"


@contextmanager
def open_encoder(choice: ModelChoice, capability: str, client_method: str) -> Iterator[Run]:
    """Connect to a server if the command is for one, else load a model in this process.

    Yields a function that takes inputs and keyword arguments and returns their results in the same order, with an InputError in
    place of the result of a bad input.

    Args:
        capability: what the model must be able to do; for texts also the name of the task in `TEXT_TASKS` of triptych_serving.
        client_method: name of the client's method, which takes the same arguments as the engine's task.

    Raises:
        click.ClickException: options contradict each other, or an extra is missing.
        BackendError: no model can be loaded.
    """
    if asks_server():
        with PatientClient(choice.server) as client:
            yield partial(client.run, client_method, **model_arguments(choice))
        return
    with _open_engine(choice, capability) as ask_engine:
        yield lambda inputs, **arguments: run_each(partial(ask_engine, **arguments), inputs)


@contextmanager
def open_reranker(choice: ModelChoice) -> Iterator[Run]:
    """Open a model as `open_encoder`. Yields a function that takes a query, documents and keyword arguments.

    The function returns the ranked documents, and raises InputError with the index of a bad one.
    """
    if asks_server():
        with connect(choice.server, timeout_seconds=SERVER_WAIT_SECONDS) as client:
            yield one_line(ValueError)(input_errors("documents")(partial(client.rerank, **model_arguments(choice))))
        return
    with _open_engine(choice, RERANK) as ask_engine:
        yield lambda query, documents, **arguments: ask_engine([(query, document) for document in documents], **arguments)


@contextmanager
def _open_engine(choice: ModelChoice, capability: str) -> Iterator[Run]:
    """Load a model in this process. Yields a function that returns results, or raises InputError for a bad input."""
    with open_engine(choice, capability) as (registry, selector):
        from triptych_embedded.models import backend_errors
        from triptych_serving.models.text.tasks import TEXT_TASKS

        def ask_engine(inputs: Sequence[Any], **arguments: Any) -> Sequence[Any]:
            with backend_errors():
                if capability == IMAGE_CLASSIFICATION:
                    return registry.find_image(selector).classify(inputs, **arguments)
                return registry.find_text(selector, capability).run(TEXT_TASKS[capability], inputs, **arguments)

        yield ask_engine
