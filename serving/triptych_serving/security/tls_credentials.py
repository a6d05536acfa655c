"""TLS for the server's port; new certificates are taken over while it runs."""

import logging
from collections.abc import Callable
from typing import TypeAlias, cast

import grpc

from triptych_serving.security.certificates import Certificates, read_certificates
from triptych_serving.security.file_access import warn_if_open
from triptych_serving.security.options import SecurityOptions
from triptych_serving.security.reloading import Reloading

logger = logging.getLogger(__name__)

Fetch: TypeAlias = "Callable[[], grpc.ServerCertificateConfiguration]"


def server_credentials(options: SecurityOptions, host: str) -> grpc.ServerCredentials | None:
    """What a server that listens on `host` shows and asks for; None without TLS.

    Raises:
        SecurityError: a file cannot be used, or API keys would cross the network in the clear.
    """
    options.check_host(host)
    if options.tls_certificate is None or options.tls_key is None:
        return None
    chain, key, client_ca = options.tls_certificate, options.tls_key, options.tls_client_ca
    warn_if_open(key)
    paths = [chain, key, *([client_ca] if client_ca else [])]
    reloading = Reloading(f"TLS certificate {chain}", paths, lambda: read_certificates(chain, key, client_ca))
    source = CertificateSource(reloading)
    fetch = cast(Fetch, source.fetch)  # None, for no change, is something that the types do not know
    return grpc.dynamic_ssl_server_credentials(source.first(), fetch, require_client_authentication=client_ca is not None)


class CertificateSource:
    """Hands certificates to gRPC, which asks at every new connection, in threads of its own."""

    def __init__(self, reloading: Reloading[Certificates]) -> None:
        self._reloading = reloading
        self._given = reloading.get()

    def first(self) -> grpc.ServerCertificateConfiguration:
        """To begin with."""
        return _configuration(self._given)

    def fetch(self) -> grpc.ServerCertificateConfiguration | None:
        """A new one, or None where nothing has changed."""
        present = self._reloading.get()
        if present is self._given:
            return None
        self._given = present
        return _configuration(present)


def _configuration(certificates: Certificates) -> grpc.ServerCertificateConfiguration:
    for warning in certificates.warnings:
        logger.warning("%s", warning)
    logger.info("TLS certificate of %s", certificates.subject)
    return grpc.ssl_server_certificate_configuration([(certificates.key, certificates.chain)], certificates.client_ca)
