"""The HTTP gateway of a server: its application and its port."""

from collections.abc import Callable
from concurrent.futures import Executor

from starlette.responses import JSONResponse

from triptych_serving.gateway import connect, huggingface, open_inference, openai, tei
from triptych_serving.gateway.app import make_application
from triptych_serving.gateway.call import GatewayParts, HttpCall
from triptych_serving.gateway.deepl import DeepL
from triptych_serving.gateway.http_server import HttpPort
from triptych_serving.gateway.libretranslate import LibreTranslate
from triptych_serving.gateway.openapi import describe
from triptych_serving.gateway.options import GatewayOptions
from triptych_serving.gateway.pages import playground_api
from triptych_serving.gateway.route import Api, ApiRoute
from triptych_serving.gateway.stored_documents import StoredDocuments
from triptych_serving.rpc.direct_calls import DirectCalls
from triptych_serving.rpc.dispatch import Router
from triptych_serving.rpc.limits import LimitOptions
from triptych_serving.security.options import SecurityOptions


def make_gateway(
    options: GatewayOptions,
    security: SecurityOptions,
    router: Router,
    limits: LimitOptions,
    pool: Executor,
    grpc_port: Callable[[], int],
) -> HttpPort:
    """Make the port with all routes.

    Args:
        security: TLS as of the gRPC port.
        pool: threads for long work.
        grpc_port: returns the port for gRPC.

    Raises:
        SecurityError: certificates cannot be used, or API keys would cross the network unencrypted.
    """
    security.check_host(options.host)
    parts = GatewayParts(DirectCalls(router), limits.messages, limits.document_bytes, pool)
    documents = StoredDocuments(options.stored_bytes)
    libretranslate = LibreTranslate(documents, needs_key=security.api_keys is not None)
    apis = [libretranslate.api, DeepL(documents).api, openai.API, tei.API, huggingface.API, open_inference.API]
    document = describe(apis)

    async def openapi(_: HttpCall) -> JSONResponse:
        return JSONResponse(document)

    own = Api("Triptych", (ApiRoute("/health", _health, ("GET",)), ApiRoute("/openapi.json", openapi, ("GET",))))
    pages = [playground_api(grpc_port)] if options.playground else []
    application = make_application([own, *pages, *apis, connect.API], parts, options.origins)
    return HttpPort(options, security, application, on_stop=documents.close)


async def _health(call: HttpCall) -> dict[str, str]:
    await open_inference.ready(call)
    return {"status": "ok"}
