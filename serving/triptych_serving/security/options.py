"""Options of authentication and encryption."""

import ipaddress
from dataclasses import dataclass
from pathlib import Path

from triptych_serving.errors import SecurityError


@dataclass(frozen=True)
class SecurityOptions:
    """Access control and encryption of a server.

    Raises:
        SecurityError: names every option that has no effect or contradicts another one.
    """

    tls_certificate: Path | None = None  # PEM: the server's certificate, then the intermediate ones
    tls_key: Path | None = None  # PEM, not encrypted
    tls_client_ca: Path | None = None  # PEM: clients must have a certificate that one of these authorities has signed
    api_keys: Path | None = None  # in the format of `triptych_serving.security.api_keys`
    allow_plaintext_keys: bool = False  # accept API keys without TLS, also from other machines
    allow_admin: bool = False  # every caller may load and unload models
    admin_clients: tuple[str, ...] = ()  # names in certificates of clients that may load and unload models

    def __post_init__(self) -> None:
        if faults := [fault for wrong, fault in self._rules() if wrong]:
            raise SecurityError("; ".join(faults))

    def check_host(self, host: str) -> None:
        """Check that it is safe to listen on an address. Raises SecurityError: API keys would cross the network unencrypted."""
        exposed = self.api_keys is not None and self.tls_certificate is None and not is_loopback(host)
        if exposed and not self.allow_plaintext_keys:
            raise SecurityError(
                f"--api-keys on {host} without TLS would send keys unencrypted over the network: add --tls-cert and --tls-key, "
                "or listen on --host 127.0.0.1, or, behind a proxy that terminates TLS, add --allow-plaintext-keys"
            )

    def check_control(self, explicit: bool) -> None:
        """Check that models are loaded on request if an option permits it.

        Raises:
            SecurityError: they are not, so the option has no effect.
        """
        idle = [name for name, value in (("--allow-admin", self.allow_admin), ("--admin-client", self.admin_clients)) if value]
        if idle and not explicit:
            raise SecurityError(f"{idle[0]} has no effect without --model-control explicit: models are not loaded on request")

    def describe(self) -> str:
        """Summarise the options in one line for the log."""
        transport = "no TLS" if self.tls_certificate is None else "TLS" if self.tls_client_ca is None else "mutual TLS"
        clients = "no authentication" if self.tls_client_ca is None else "client certificates required"
        clients = clients if self.api_keys is None else "API keys required"
        return f"security: {transport}, {clients}; model loading {self._describe_admins()}"

    def _describe_admins(self) -> str:
        if self.allow_admin:
            return "allowed for every caller"
        keys = ["API keys with the role admin"] if self.api_keys is not None else []
        admins = " or ".join([*keys, *self.admin_clients])
        return f"allowed for {admins}" if admins else "disabled"

    def _rules(self) -> list[tuple[bool, str]]:
        """List the forbidden combinations, each with its error."""
        tls, mutual, keys = self.tls_certificate is not None, self.tls_client_ca is not None, self.api_keys is not None
        admins = bool(self.admin_clients)
        return [
            (self.tls_key is not None and not tls, "--tls-key has no effect without --tls-cert"),
            (self.tls_key is None and tls, "--tls-cert needs --tls-key"),
            (mutual and not tls, "--tls-client-ca has no effect without --tls-cert and --tls-key"),
            (admins and not mutual, "--admin-client has no effect without --tls-client-ca"),
            (not all(self.admin_clients), "--admin-client is empty, must be a name in a client's certificate"),
            (admins and self.allow_admin, "--admin-client has no effect with --allow-admin, which permits every caller"),
            (
                keys and self.allow_admin,
                "--allow-admin would give every API key the role admin: leave it out, and give that role to some keys",
            ),
            (self.allow_plaintext_keys and not keys, "--allow-plaintext-keys has no effect without --api-keys"),
            (self.allow_plaintext_keys and tls, "--allow-plaintext-keys has no effect with --tls-cert"),
        ]


def is_loopback(host: str) -> bool:
    """Return True if only this machine can reach a host."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
