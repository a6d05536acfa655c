"""A gRPC server that answers with what it got: what a call costs when nothing is computed.

python tests/benchmarks/echo.py        prints its port, serves until it is killed
"""

import asyncio

import grpc
from grpc import aio

METHOD = "/triptych.benchmarks.Echo/Call"


class Echo(grpc.GenericRpcHandler):
    """Any method is the one method."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[bytes, bytes]":
        return grpc.unary_unary_rpc_method_handler(self._answer)

    async def _answer(self, request: bytes, context: aio.ServicerContext) -> bytes:  # type: ignore[type-arg]
        return request


async def main() -> None:
    server = aio.server()
    server.add_generic_rpc_handlers((Echo(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)  # noqa: T201 - whoever started it reads this
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(main())
