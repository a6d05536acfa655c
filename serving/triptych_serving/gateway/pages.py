"""The playground: a page for trying the loaded models, from files of this package."""

from collections.abc import Callable
from importlib.resources import files
from pathlib import PurePath

import grpc
from starlette.responses import JSONResponse, Response

from triptych_serving.gateway.call import HttpCall
from triptych_serving.gateway.route import Api, ApiRoute
from triptych_serving.rpc.direct_calls import RpcError

TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
INDEX, SETTINGS = "index.html", "settings.json"


def playground_api(grpc_port: Callable[[], int]) -> Api:
    """Return the routes of the page and its files, which are read once.

    Args:
        grpc_port: returns the port that the page names in commands for gRPC.
    """
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
