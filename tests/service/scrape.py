"""What a server's HTTP port says."""

import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

PATIENCE_SECONDS = 60.0


@dataclass(frozen=True)
class Page:
    """One answer."""

    status: int
    text: str
    content_type: str


def fetch(address: str, path: str, **headers: str) -> Page:
    """GET."""
    request = urllib.request.Request(f"http://{address}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
            return Page(answer.status, answer.read().decode(), answer.headers["Content-Type"])
    except urllib.error.HTTPError as error:
        return Page(error.code, error.read().decode(), error.headers["Content-Type"])


class Scrape:
    """All samples of one moment."""

    def __init__(self, address: str) -> None:
        self.families = list(text_string_to_metric_families(fetch(address, "/metrics").text))
        samples = [sample for family in self.families for sample in family.samples]
        self.samples = {(sample.name, frozenset(sample.labels.items())): sample.value for sample in samples}

    @property
    def names(self) -> set[str]:
        """Of all samples."""
        return {name for name, _ in self.samples}

    def value(self, name: str, **labels: str) -> float | None:
        """Of `triptych_<name>`; None where there is no such series."""
        return self.samples.get((f"triptych_{name}", frozenset(labels.items())))

    def series(self, name: str) -> Mapping[frozenset[tuple[str, str]], float]:
        """Those of `triptych_<name>` that are not 0."""
        return {labels: value for (sample, labels), value in self.samples.items() if sample == f"triptych_{name}" and value}
