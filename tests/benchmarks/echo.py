"""gRPC server that returns each request, to measure a call that computes nothing.

python tests/benchmarks/echo.py        prints `ready on HOST:PORT` on standard error, serves until it is killed
"""

import asyncio
import sys

import grpc
from grpc import aio

METHOD = "/triptych.benchmarks.Echo/Call"


class Echo(grpc.GenericRpcHandler):
    """Handler of every method."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[bytes, bytes]":
        return grpc.unary_unary_rpc_method_handler(self._answer)

    async def _answer(self, request: bytes, context: aio.ServicerContext) -> bytes:  # type: ignore[type-arg]
        return request


async def serve(handler: grpc.GenericRpcHandler) -> None:
    """Answer calls on a free port, and print its address, until the process is killed."""
    server = aio.server()
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    sys.stderr.write(f"ready on 127.0.0.1:{port}\n")
    sys.stderr.flush()
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(serve(Echo()))
