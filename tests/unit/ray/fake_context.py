"""A fake of the context that Ray passes to a replica."""

import grpc


class FakeContext:
    """The part of `ray.serve.grpc_util.RayServegRPCContext` that is used."""

    def __init__(self, **metadata: str) -> None:
        self.sent = [(key.replace("_", "-"), value) for key, value in metadata.items()]
        self.status: grpc.StatusCode | None = None
        self.text = ""
        self.trailers: dict[str, str | bytes] = {}

    def invocation_metadata(self) -> list[tuple[str, str]]:
        return self.sent

    def peer(self) -> str:
        return "ipv4:192.0.2.1:5"

    def code(self) -> grpc.StatusCode | None:
        return self.status

    def set_code(self, code: grpc.StatusCode) -> None:
        self.status = code

    def set_details(self, details: str) -> None:
        self.text = details

    def set_trailing_metadata(self, metadata: list[tuple[str, str | bytes]]) -> None:
        assert isinstance(metadata, list)  # Ray adds its own list to it
        self.trailers = dict(metadata)
