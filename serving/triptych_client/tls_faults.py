"""Connections that fail because TLS is not set up alike on both sides: gRPC says so only in its message."""

UNTRUSTED = "the server's certificate has no authority that is trusted here: see `tls_credentials(ca=...)`, or --tls-ca"

# A part of the message -> what to do.
HINTS = {
    "unable to get local issuer certificate": UNTRUSTED,
    "self signed certificate": UNTRUSTED,
    "Hostname Verification Check failed": "the server's certificate does not have the host name, or address, of `address`",
    "WRONG_VERSION_NUMBER": "the server does not speak TLS",
}
CLOSED = ("failed to connect to all addresses", "Socket closed")
CLOSED_HINT = "if the server is up, it wants TLS, or a client certificate that it trusts: see `tls_credentials`"
# What the next attempt would find too.
LASTING = ("CERTIFICATE_VERIFY_FAILED", "Hostname Verification Check failed", "WRONG_VERSION_NUMBER")


def tls_hint(message: str) -> str:
    """What to change, to be put behind gRPC's message; empty where TLS is not the cause."""
    if all(part in message for part in CLOSED):
        return f"; {CLOSED_HINT}"
    return "".join(f"; {hint}" for part, hint in HINTS.items() if part in message)


def is_lasting(message: str) -> bool:
    """Whether another attempt would fail in the same way."""
    return any(part in message for part in LASTING)
