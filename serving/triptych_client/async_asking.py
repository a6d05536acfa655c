"""A job's requests and responses over a connection for asyncio."""

from functools import cached_property

import grpc

from triptych_client.async_sending import send_all
from triptych_client.base import BaseClient
from triptych_client.connection import AsyncConnection
from triptych_client.job import Job, Request, Response, Result
from triptych_client.results import Results


class AsyncAsking(BaseClient):
    """What the calls of the client for asyncio share."""

    @cached_property
    def _connection(self) -> AsyncConnection:
        # Not made with the client, which may be before its event loop runs.
        return AsyncConnection(self._settings)

    async def _ask(
        self, method: "grpc.aio.UnaryUnaryMultiCallable[Request, Response]", job: Job[Request, Response, Result]
    ) -> Results[Result]:
        requests = self._requests(job)
        return job.results(requests, await send_all(method, requests, self._settings.concurrency))
