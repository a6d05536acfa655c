"""What goes with every request: its id, its API key, its time limit, its retries."""

from dataclasses import dataclass, field

from triptych_client.retry import Attempts

REQUEST_ID_KEY = "x-request-id"
AUTHORIZATION_KEY = "authorization"


@dataclass(frozen=True, slots=True)
class Call:
    """One request of a call by the user, which may have several; all share its id, and each may take several attempts."""

    request_id: str
    timeout_seconds: float
    retries: int
    first_input: int = 0
    """Which of the user's texts or images is the first of this request."""
    input_count: int = 0
    """How many of them it has."""
    api_key: str = field(default="", repr=False)

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """As it is sent."""
        key = ((AUTHORIZATION_KEY, f"Bearer {self.api_key}"),) if self.api_key else ()
        return ((REQUEST_ID_KEY, self.request_id), *key)

    def attempts(self) -> Attempts:
        """The attempts of one request; its time starts now."""
        return Attempts(self.retries, self.timeout_seconds)
