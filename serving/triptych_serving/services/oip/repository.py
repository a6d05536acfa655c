"""The model repository, as Triton's model repository extension says it."""

from collections.abc import Iterable, Mapping

from triptych.inference import open_inference_pb2 as pb
from triptych_serving.errors import InvalidInputError
from triptych_serving.repository.registry import ModelVersion, State

READY, UNAVAILABLE = "READY", "UNAVAILABLE"
STATES = {
    State.LOADING: "LOADING",
    State.READY: READY,
    State.UNLOADING: "UNLOADING",
    State.FAILED: UNAVAILABLE,
    State.UNLOADED: UNAVAILABLE,
}
VERSION = "version"


def check_repository(name: str) -> None:
    """A request may name a repository.

    Raises:
        InvalidInputError: it does; there is one alone.
    """
    if name:
        raise InvalidInputError("repository_name", f"{name!r} is not known, the server has one repository: leave it empty")


def index_to(models: Iterable[ModelVersion], ready: bool) -> pb.RepositoryIndexResponse:
    """Every version; with `ready` those that can be asked."""
    rows = [_row(loaded) for loaded in models]
    return pb.RepositoryIndexResponse(models=[row for row in rows if not ready or row.state == READY])


def version_from(given: Mapping[str, pb.ModelRepositoryParameter], ignored: tuple[str, ...] = ()) -> str:
    """The version that a request to load or unload names; empty where it names none.

    Raises:
        InvalidInputError: there is another parameter, or it is no string.
    """
    for name in given:
        if name not in (VERSION, *ignored):
            known = ", ".join((VERSION, *ignored))
            raise InvalidInputError(f"parameters.{name}", f"there is no such parameter; there are: {known}")
    if VERSION in given and given[VERSION].WhichOneof("parameter_choice") != "string_param":
        raise InvalidInputError(f"parameters.{VERSION}", "it is not a string")
    return given[VERSION].string_param if VERSION in given else ""


def _row(loaded: ModelVersion) -> pb.RepositoryIndexResponse.ModelIndex:
    reason = loaded.fault or ("unloaded" if loaded.state is State.UNLOADED else "")
    return pb.RepositoryIndexResponse.ModelIndex(
        name=loaded.name, version=loaded.version, state=STATES[loaded.state], reason=reason
    )
