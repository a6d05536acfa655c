"""A server as the manifests start it."""

from ..fixtures.toy import MODELS
from ..unit.deploy.files import KUBERNETES, document
from ..unit.deploy.test_kubernetes import METRIC
from .support.processes import ServerProcess
from .support.telemetry import Scrape, fetch


def test_it_answers_the_probes_and_has_what_the_autoscaler_reads() -> None:
    [container] = document(KUBERNETES / "deployment.yaml")["spec"]["template"]["spec"]["containers"]
    with ServerProcess(MODELS, *container["args"], "--drain-delay-secs=0") as server:
        assert fetch(server.metrics_address, container["livenessProbe"]["httpGet"]["path"]).status == 200
        assert fetch(server.metrics_address, "/readyz").status == 200
        waiting = Scrape(server.metrics_address).value(METRIC.removeprefix("triptych_"), model="toy", version="1")
        assert waiting == 0
