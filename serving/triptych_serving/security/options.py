"""Who may use a server, and how the connections to it are secured."""

import ipaddress
from dataclasses import dataclass
from pathlib import Path

from triptych_serving.errors import SecurityError


@dataclass(frozen=True)
class SecurityOptions:
    """Checked: SecurityError names every option that would have no effect, or that contradicts another."""

    tls_certificate: Path | None = None  # PEM: the server's own, then those between it and the authority's
    tls_key: Path | None = None  # PEM, not encrypted
    tls_client_ca: Path | None = None  # PEM: clients must show a certificate that one of these authorities has signed
    api_keys: Path | None = None  # lines as `triptych_serving.security.api_keys` draws them
    allow_plaintext_keys: bool = False  # take API keys without TLS, from other machines too
    allow_admin: bool = False  # whoever may call at all may load and unload models
    admin_clients: tuple[str, ...] = ()  # clients that may, as their certificates name them

    def __post_init__(self) -> None:
        if faults := [fault for wrong, fault in self._rules() if wrong]:
            raise SecurityError("; ".join(faults))

    def check_host(self, host: str) -> None:
        """Whether it is safe to listen there.

        Raises:
            SecurityError: API keys would cross a network that anybody may listen to.
        """
        exposed = self.api_keys is not None and self.tls_certificate is None and not is_loopback(host)
        if exposed and not self.allow_plaintext_keys:
            raise SecurityError(
                f"--api-keys on {host} without TLS would send keys over the network for anybody to read: add --tls-cert and "
                "--tls-key, or listen on --host 127.0.0.1, or, where a proxy in front ends TLS, add --allow-plaintext-keys"
            )

    def check_control(self, explicit: bool) -> None:
        """Whether models are loaded on request, as some options take for granted.

        Raises:
            SecurityError: they are not, so that nobody needs to be let.
        """
        idle = [name for name, value in (("--allow-admin", self.allow_admin), ("--admin-client", self.admin_clients)) if value]
        if idle and not explicit:
            raise SecurityError(f"{idle[0]} has no effect without --model-control explicit: nothing is loaded on request")

    def describe(self) -> str:
        """One line for the log."""
        transport = "no TLS" if self.tls_certificate is None else "TLS" if self.tls_client_ca is None else "mutual TLS"
        callers = "anybody who reaches the port" if self.tls_client_ca is None else "clients with a certificate"
        callers = callers if self.api_keys is None else "callers with an API key"
        return f"security: {transport}; answers {callers}; models are loaded and unloaded by {self._describe_admins()}"

    def _describe_admins(self) -> str:
        if self.allow_admin:
            return "all of them"
        keys = ["keys of the role admin"] if self.api_keys is not None else []
        return " or ".join([*keys, *self.admin_clients]) or "nobody"

    def _rules(self) -> list[tuple[bool, str]]:
        """What must not be, with what to say of it."""
        tls, mutual, keys = self.tls_certificate is not None, self.tls_client_ca is not None, self.api_keys is not None
        return [
            (self.tls_key is not None and not tls, "--tls-key has no effect without --tls-cert"),
            (self.tls_key is None and tls, "--tls-cert needs its key: add --tls-key"),
            (mutual and not tls, "--tls-client-ca has no effect without --tls-cert and --tls-key"),
            (bool(self.admin_clients) and not mutual, "--admin-client has no effect without --tls-client-ca"),
            (not all(self.admin_clients), "--admin-client is empty; it takes a name in a client's certificate"),
            (
                bool(self.admin_clients) and self.allow_admin,
                "--admin-client has no effect with --allow-admin, which lets everybody load and unload models",
            ),
            (
                keys and self.allow_admin,
                "--allow-admin would give every API key the role admin: leave it out, and give that role to some keys",
            ),
            (self.allow_plaintext_keys and not keys, "--allow-plaintext-keys has no effect without --api-keys"),
            (self.allow_plaintext_keys and tls, "--allow-plaintext-keys has no effect with --tls-cert"),
        ]


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
