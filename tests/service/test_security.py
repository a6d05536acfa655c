"""Servers accept valid credentials and reject wrong, missing, expired and revoked ones."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
from grpc_reflection.v1alpha import reflection

from triptych_client import (
    Client,
    PermissionDeniedError,
    TriptychClientError,
    UnauthenticatedError,
    UnavailableError,
    tls_credentials,
)
from triptych_serving.rpc.descriptors import ALL_SERVICES, methods_of
from triptych_serving.security.api_keys import Role, add_key, key_line, new_secret, remove_key
from triptych_serving.services.health import HEALTH_SERVICE

from ..fixtures.certificates import DAY, LOCAL, NOW, Authority, Pair
from ..fixtures.toy import MODELS, SOURCE, TARGET
from ..unit.cli.conftest import Run
from .support.in_process import LocalServer, local_server
from .support.processes import PATIENCE_SECONDS, eventually, run_command

EXPLICIT = ("--model-control", "explicit", "--load-model", "*")
OPEN = {
    "/grpc.health.v1.Health/Check",
    "/grpc.health.v1.Health/Watch",
    "/inference.GRPCInferenceService/ServerLive",
    "/inference.GRPCInferenceService/ServerReady",
}
ADMIN = {
    "/triptych.v1.ModelService/LoadModel",
    "/triptych.v1.ModelService/UnloadModel",
    "/inference.GRPCInferenceService/RepositoryModelLoad",
    "/inference.GRPCInferenceService/RepositoryModelUnload",
}
METHODS = {f"/{path}" for path in methods_of((*ALL_SERVICES, HEALTH_SERVICE, reflection.SERVICE_NAME))}


def refused(call: Callable[[], object]) -> str:
    """The status' name; empty where nothing went wrong."""
    try:
        call()
    except TriptychClientError as error:
        return error.code
    return ""


# ---- API keys, over TLS


@dataclass(frozen=True)
class Keyed:
    """A server that takes API keys."""

    server: LocalServer
    authority: Authority
    file: Path
    infer: str
    admin: str
    expired: str

    def client(self, key: str) -> Client:
        return Client(self.server.address, credentials=tls_credentials(self.authority.file), api_key=key, retries=0)

    def channel(self) -> grpc.Channel:
        return grpc.secure_channel(self.server.address, tls_credentials(self.authority.file))

    def code(self, path: str, *authorization: str) -> str:
        """Send an empty message; return the status code."""
        metadata = [("authorization", value) for value in authorization]
        with self.channel() as channel:
            try:
                next(channel.stream_stream(path)(iter([b""]), metadata=metadata, timeout=PATIENCE_SECONDS), None)
            except grpc.RpcError as error:
                return str(error.code().name)
        return "OK"


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keyed]:
    folder = tmp_path_factory.mktemp("keyed")
    authority = Authority(folder)
    pair, file = authority.sign("server", *LOCAL), folder / "keys"
    infer, admin, expired = add_key(file, "app", Role.INFER), add_key(file, "ops", Role.ADMIN), new_secret()
    file.write_text(f"{file.read_text()}{key_line('old', Role.ADMIN, expired, '2020-12-31')}\n")
    flags = ("--tls-cert", str(pair.certificate), "--tls-key", str(pair.key), "--api-keys", str(file), *EXPLICIT)
    with local_server(MODELS, *flags) as server:
        yield Keyed(server, authority, file, infer, admin, expired)
    for secret in (infer, admin, expired):
        assert secret not in server.log


def check_translation(client: Client) -> None:
    with client:
        assert client.translate(SOURCE).text == TARGET
        with client.translate_stream(SOURCE) as stream:
            assert "".join(stream) == TARGET


def test_the_right_key(keyed: Keyed) -> None:
    for key in (keyed.infer, keyed.admin):
        check_translation(keyed.client(key))


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("", "no API key: send it as `authorization: Bearer KEY`, in gRPC's metadata or HTTP's headers"),
        ("wrong", "unknown API key"),
        ("expired", "API key 'old' expired at 2021-01-01 00:00 UTC"),
    ],
)
def test_missing_wrong_and_expired_keys(keyed: Keyed, key: str, message: str) -> None:
    with keyed.client(keyed.expired if key == "expired" else key) as client:
        for call in (
            lambda: client.translate(SOURCE),
            lambda: list(client.translate_stream(SOURCE)),
            lambda: list(client.classify_images([b"image"])),
            client.models,
        ):
            with pytest.raises(UnauthenticatedError) as caught:
                call()
            assert caught.value.message == message
            assert caught.value.reason == "UNAUTHENTICATED"


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        *(
            (form, "UNAUTHENTICATED")
            for form in ("{}", "Basic {}", "Bearer", "Bearer  ", "Bearer{}", "Bearer {}x", "Bearer x {}")
        ),
        ("Bearer {}, Bearer wrong", "UNAUTHENTICATED"),  # of two headers, the last one counts
        ("bearer {}", "OK"),
        ("BEARER {}", "OK"),
    ],
)
def test_forms_of_the_header(keyed: Keyed, headers: str, code: str) -> None:
    assert keyed.code("/triptych.v1.ModelService/ListModels", *headers.format(keyed.infer).split(", ")) == code


def test_every_call_needs_a_key_but_probes(keyed: Keyed) -> None:
    assert {path for path in METHODS if keyed.code(path) != "UNAUTHENTICATED"} == OPEN


def test_the_calls_of_admins_are_theirs_alone(keyed: Keyed) -> None:
    refused = {path for path in METHODS - OPEN if keyed.code(path, f"Bearer {keyed.infer}") == "PERMISSION_DENIED"}
    assert refused == ADMIN
    for path in ADMIN:
        assert keyed.code(path, f"Bearer {keyed.admin}") not in ("UNAUTHENTICATED", "PERMISSION_DENIED")
        assert keyed.code(path, f"Bearer {keyed.expired}") == "UNAUTHENTICATED"
    with keyed.client(keyed.infer) as app, keyed.client(keyed.admin) as ops:
        with pytest.raises(PermissionDeniedError) as caught:
            app.unload_model("toy")
        assert caught.value.message == "UnloadModel needs an API key with the role admin; 'app' has the role infer"
        assert caught.value.reason == "PERMISSION_DENIED"
        assert [model.name for model in ops.load_model("toy")] == ["toy"]
    assert "admin call denied: triptych.v1.ModelService/UnloadModel from app at " in keyed.server.log
    assert "admin call allowed: triptych.v1.ModelService/LoadModel from ops at " in keyed.server.log


def test_keys_come_and_go_while_the_server_runs(keyed: Keyed) -> None:
    added = add_key(keyed.file, "added", Role.INFER)
    with keyed.client(added) as client:
        eventually(lambda: refused(client.models) == "")
        good = keyed.file.read_text()
        keyed.file.write_text("nonsense\n")
        eventually(lambda: not refused(client.models) and "line 1: 1 columns, expected name" in keyed.server.log)
        keyed.file.write_text(good)
        remove_key(keyed.file, "added")
        eventually(lambda: refused(client.models) == "UNAUTHENTICATED")


# ---- Mutual TLS


@dataclass(frozen=True)
class Mutual:
    """A server that takes clients with a certificate."""

    server: LocalServer
    authority: Authority
    stranger: Authority

    def client(self, pair: Pair | None, ca: Path | None = None, host: str = "127.0.0.1") -> Client:
        files = (pair.certificate, pair.key) if pair else (None, None)
        credentials = tls_credentials(ca or self.authority.file, *files)
        return Client(f"{host}:{self.server.port}", credentials=credentials, retries=0, timeout_seconds=20)


@pytest.fixture(scope="module")
def mutual(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mutual]:
    folder = tmp_path_factory.mktemp("mutual")
    authority, stranger = Authority(folder), Authority(folder, "stranger")
    pair = authority.sign("server", "127.0.0.1")
    tls = ("--tls-cert", str(pair.certificate), "--tls-key", str(pair.key), "--tls-client-ca", str(authority.file))
    with local_server(MODELS, *tls, "--admin-client", "spiffe://example/ops", *EXPLICIT) as server:
        yield Mutual(server, authority, stranger)


def test_the_right_certificate(mutual: Mutual) -> None:
    check_translation(mutual.client(mutual.authority.sign("app")))


def test_missing_wrong_and_expired_certificates(mutual: Mutual) -> None:
    authority, stranger = mutual.authority, mutual.stranger
    for pair in (
        None,
        stranger.sign("app", file="other"),
        authority.sign("late", end=NOW - DAY),
        authority.sign("early", begin=NOW + DAY),
    ):
        with (
            mutual.client(pair) as client,
            pytest.raises(UnavailableError, match="requires TLS or a trusted client certificate"),
        ):
            client.translate(SOURCE)


def test_who_else_the_server_may_be(mutual: Mutual) -> None:
    app = mutual.authority.sign("app")
    with mutual.client(app, ca=mutual.stranger.file) as client, pytest.raises(UnavailableError, match="--tls-ca"):
        client.models()
    with mutual.client(app, host="localhost") as client, pytest.raises(UnavailableError, match="does not have the host name"):
        client.models()
    with Client(mutual.server.address, retries=0) as client, pytest.raises(UnavailableError, match="it requires TLS"):
        client.models()
    command = run_command("models", "--server", mutual.server.address, "--tls-ca", mutual.stranger.file)
    assert (command.returncode, command.stdout, len(command.stderr.splitlines())) == (1, "", 1)  # no line of gRPC's core


def test_benchmarks_with_and_without_a_certificate(mutual: Mutual, run: Run, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text(SOURCE)
    app = mutual.authority.sign("app")
    short = ("--concurrency", "1", "--measure-secs", "0.1", "--max-windows", "3", "--json", "-")
    bench = ("bench", "translate", "--server", mutual.server.address, "--input", tmp_path / "texts.txt", *short)
    tls = ("--tls-ca", mutual.authority.file, "--tls-client-cert", app.certificate, "--tls-client-key", app.key)
    assert json.loads(run(*bench, *tls).out)["runs"][0]["failed"] == {}
    assert "if the server is running, it requires TLS or a trusted client certificate" in run(*bench).err


def test_admins_by_their_certificate(mutual: Mutual) -> None:
    with mutual.client(mutual.authority.sign("ops", "ops.example.com", "spiffe://example/ops")) as client:
        assert [model.name for model in client.load_model("toy")] == ["toy"]
    # A name of the subject does not count beside others.
    liar = mutual.authority.sign("spiffe://example/ops", "app.example.com", file="liar")
    for pair, name in ((mutual.authority.sign("app"), "app"), (liar, "app.example.com")):
        with mutual.client(pair) as client, pytest.raises(PermissionDeniedError) as caught:
            client.load_model("toy")
        assert caught.value.message == (
            f"LoadModel is for the clients named by the server's --admin-client; {name!r} is not one"
        )
    assert "LoadModel from ops.example.com at " in mutual.server.log


# ---- Certificates that change


def test_certificates_change_while_the_server_runs(tmp_path: Path) -> None:
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    served = old.sign("server", *LOCAL, end=NOW - DAY)
    authorities = tmp_path / "clients.pem"
    authorities.write_bytes(old.file.read_bytes())
    app, later = old.sign("app"), new.sign("later")

    with local_server(
        MODELS, "--tls-cert", str(served.certificate), "--tls-key", str(served.key), "--tls-client-ca", str(authorities)
    ) as server:

        def client(ca: Path, pair: Pair) -> Client:
            return Client(server.address, credentials=tls_credentials(ca, pair.certificate, pair.key), retries=0)

        def ask(ca: Path, pair: Pair) -> str:
            with client(ca, pair) as asking:
                return asking.translate(SOURCE).text

        assert f"{served.certificate}: the certificate of localhost, 127.0.0.1 expired at" in server.log
        with pytest.raises(UnavailableError, match="certificate has expired"):
            ask(old.file, app)

        old.sign("server", *LOCAL)  # in place of the one before
        assert ask(old.file, app) == TARGET
        with client(old.file, app) as connected:
            assert connected.translate(SOURCE).text == TARGET
            served.certificate.write_text("damaged")
            assert ask(old.file, app) == TARGET
            assert f"{served.certificate}: no certificate found" in server.log
            new.sign("server", *LOCAL)
            assert ask(new.file, app) == TARGET
            with pytest.raises(UnavailableError):
                ask(old.file, app)
            authorities.write_bytes(new.file.read_bytes())
            assert ask(new.file, later) == TARGET
            with pytest.raises(UnavailableError):
                ask(new.file, app)
            assert connected.translate(SOURCE).text == TARGET  # a connection stays as it was made
