"""The HTTP gateway of a server: its application, with the playground's page, and its port."""

from collections.abc import Callable
from concurrent.futures import Executor
from importlib.resources import files
from pathlib import PurePath

import grpc
from starlette.responses import JSONResponse, Response

from triptych_serving.gateway import connect, deepl, huggingface, libretranslate, open_inference, openai, rerank, responses, tei
from triptych_serving.gateway.app import make_application
from triptych_serving.gateway.call import GatewayParts, HttpCall
from triptych_serving.gateway.glossaries import GlossaryFolder
from triptych_serving.gateway.http_server import HttpPort
from triptych_serving.gateway.openapi import describe
from triptych_serving.gateway.options import GatewayOptions
from triptych_serving.gateway.route import Api, ApiRoute
from triptych_serving.gateway.stored_documents import DocumentFolder, StoredDocuments
from triptych_serving.rpc.direct_calls import RpcError
from triptych_serving.rpc.dispatch import Router
from triptych_serving.rpc.event_loop import Offload
from triptych_serving.rpc.limits import LimitOptions
from triptych_serving.security.options import SecurityOptions, is_loopback
from triptych_serving.security.secret_files import ReloadedFiles
from triptych_serving.security.tls import Certificates

TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
INDEX, SETTINGS = "index.html", "settings.json"
APIS = (libretranslate.API, deepl.API, openai.API, responses.API, rerank.API, tei.API, huggingface.API, open_inference.API)


def make_gateway(
    options: GatewayOptions,
    security: SecurityOptions,
    certificates: ReloadedFiles[Certificates] | None,
    router: Router,
    limits: LimitOptions,
    pool: Executor,
    grpc_port: Callable[[], int],
) -> HttpPort:
    """Make the port with all routes.

    Args:
        certificates: those of the gRPC port; None without TLS.
        pool: threads for long work.
        grpc_port: returns the port for gRPC, which the playground names.

    Raises:
        SecurityError: API keys would cross the network unencrypted.
    """
    security.check_host(options.host)
    folder = None if options.documents is None else DocumentFolder(options.documents)
    documents = StoredDocuments(options.stored_bytes, folder=folder)
    parts = GatewayParts(
        router,
        limits.messages,
        limits.document_bytes,
        documents,
        security.api_keys is not None,
        Offload(pool),
        None if options.glossaries is None else GlossaryFolder(options.glossaries),
    )
    document = describe(APIS)

    async def openapi(_: HttpCall) -> JSONResponse:
        return JSONResponse(document)

    async def spec(_: HttpCall) -> JSONResponse:
        """Return the document with the title by which clients of LibreTranslate, such as Dialect, check a server."""
        return JSONResponse({**document, "info": {**document["info"], "title": libretranslate.API.name}})

    documents_of_routes = (ApiRoute("/openapi.json", openapi, ("GET",)), ApiRoute("/spec", spec, ("GET",)))
    own = Api("Triptych", (ApiRoute("/health", _health, ("GET",)), *documents_of_routes))
    pages = [_playground(grpc_port)] if options.playground else []
    application = make_application([own, *pages, *APIS, connect.API], parts, options.origins, is_loopback(options.host))
    return HttpPort(options, certificates, application, on_stop=documents.close)


async def _health(call: HttpCall) -> dict[str, str]:
    await open_inference.ready(call)
    return {"status": "ok"}


def _playground(grpc_port: Callable[[], int]) -> Api:
    """Return the routes of a page for trying the loaded models, and of its files, which are read once."""
    folder = files("triptych_serving.gateway") / "playground"
    pages = {one.name: one.read_bytes() for one in folder.iterdir() if PurePath(one.name).suffix in TYPES}

    async def serve(call: HttpCall) -> Response:
        name = call.request.path_params.get("name", INDEX)
        if name == SETTINGS:
            return JSONResponse({"grpcPort": grpc_port()})
        if name not in pages:
            raise RpcError.of(grpc.StatusCode.NOT_FOUND, "there is no such file")
        return Response(pages[name], media_type=TYPES[PurePath(name).suffix], headers={"cache-control": "no-cache"})

    return Api("Playground", (ApiRoute("/", serve, ("GET",)), ApiRoute("/playground/{name}", serve, ("GET",))))
