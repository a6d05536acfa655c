"""A job's requests and responses over a blocking connection."""

import grpc

from triptych_client.base import BaseClient
from triptych_client.connection import Connection
from triptych_client.job import Job, Request, Response, Result
from triptych_client.results import Results
from triptych_client.sending import send_all


class Asking(BaseClient):
    """What the blocking client's calls share."""

    def _open(self) -> None:
        self._connection = Connection(self._settings)

    def _ask(
        self, method: "grpc.UnaryUnaryMultiCallable[Request, Response]", job: Job[Request, Response, Result]
    ) -> Results[Result]:
        requests = self._requests(job)
        return job.results(requests, send_all(method, requests, self._settings.concurrency))
