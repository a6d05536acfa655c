"""What the user asked for, whatever the task: from arguments to requests, from responses to results."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from triptych_client.call import Call
from triptych_client.chunks import chunks
from triptych_client.codec import ServedFields, ServedMessage, served_from, timing_from
from triptych_client.errors import ServerError
from triptych_client.results import Results

# Below gRPC's own default limit of 4 MiB with room for an answer that is longer than the request.
BYTES_PER_REQUEST = 1024 * 1024


Request = TypeVar("Request")
Response = TypeVar("Response", bound=ServedMessage)
Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class Job(ABC, Generic[Request, Response, Result]):
    """What one call by the user asks for; a task says how its inputs are written and its results are read."""

    call: Call
    model: str | None = None
    model_version: str | None = None

    @abstractmethod
    def sizes(self) -> list[int]:
        """For each input, about how many bytes it takes in a message."""

    @abstractmethod
    def request(self, part: slice) -> Request:
        """The request for these inputs."""

    @abstractmethod
    def read(self, response: Response, served: ServedFields) -> Sequence[Result]:
        """A result for each input of the request; `served` has what all of them share."""

    def requests(self, most_inputs: int, most_bytes: int) -> list[tuple[Request, Call]]:
        """The requests to send, in the inputs' order; none for no inputs."""
        parts = chunks(self.sizes(), most_inputs, min(most_bytes // 2, BYTES_PER_REQUEST))
        return [
            (self.request(part), replace(self.call, first_input=part.start, input_count=part.stop - part.start))
            for part in parts
        ]

    def results(self, requests: Sequence[tuple[Request, Call]], responses: Sequence[Response]) -> Results[Result]:
        """All results, in the inputs' order. Raises ServerError: a response does not fit its request."""
        items: list[Result] = []
        for (_, call), response in zip(requests, responses, strict=True):
            found = self.read(response, served_from(response, call.request_id))
            if len(found) != call.input_count:
                message = f"the server sent {len(found)} results for {call.input_count} inputs"
                raise ServerError(message, code="INTERNAL", request_id=call.request_id)
            items += found
        return Results(tuple(items), tuple(timing_from(response.timing) for response in responses), self.call.request_id)


def check_sequence(inputs: object, method: str, one: str) -> None:
    """Raises TypeError for a lone text, which would be read as a sequence of one-letter texts."""
    if isinstance(inputs, str):
        raise TypeError(f"{method}_many takes a sequence of {one}s; {method} takes one {one}")


def check_counts(**counts: int | None) -> None:
    """Raises ValueError for a negative count, which the wire cannot carry."""
    for name, value in counts.items():
        if value is not None and value < 0:
            raise ValueError(f"{name} is {value}, must be 0 or more")
