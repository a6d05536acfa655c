"""The manifests, by the schemas of Kubernetes and by what the server takes."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from ...image.dockerfile import setting
from .files import IMAGE, KUBERNETES, document, documents, of_kind, serve_options

VERSIONS = ["1.30", "1.37"]
CUSTOM = {"Kustomization", "Component", "PodMonitor", None}  # None: not an object, the adapter's values
OBJECTS = [
    pytest.param(content, id=f"{path.stem}-{index}")
    for path in sorted(KUBERNETES.glob("*.yaml"))
    for index, content in enumerate(documents(path))
    if content.get("kind") not in CUSTOM
]
METRIC = "triptych_num_requests_waiting"


@pytest.mark.parametrize("version", [pytest.param(VERSIONS[0], marks=pytest.mark.full), VERSIONS[1]])
@pytest.mark.parametrize("content", OBJECTS)
def test_an_object_is_valid(content: dict[str, Any], version: str) -> None:
    kubernetes_validate.validate(content, version, strict=True)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_wrong_object_would_be_found(version: str) -> None:
    wrong = document(KUBERNETES / "deployment.yaml")
    wrong["spec"]["template"]["spec"]["containers"][0]["livenesProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, version, strict=True)


def test_the_whole_is_valid_with_its_components(tmp_path: Path) -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl puts it together")
    folder = Path(shutil.copytree(KUBERNETES, tmp_path / "kubernetes"))
    path = folder / "kustomization.yaml"
    path.write_text(
        path.read_text(encoding="utf-8").replace("components: []", "components: [models, monitoring, gpu]"), encoding="utf-8"
    )
    result = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, check=True)
    found = {content["kind"]: content for content in yaml.safe_load_all(result.stdout)}
    assert "PodMonitor" in found
    assert found["Deployment"]["spec"]["template"]["spec"]["volumes"][0]["name"] == "models"
    assert found["Deployment"]["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == 1
    for content in found.values():
        if content["kind"] not in CUSTOM:
            kubernetes_validate.validate(content, VERSIONS[-1], strict=True)


def test_every_file_is_part_of_the_whole() -> None:
    listed = set(document(KUBERNETES / "kustomization.yaml")["resources"])
    assert listed == {path.name for path in KUBERNETES.glob("*.yaml")} - {"kustomization.yaml", "prometheus-adapter.yaml"}


@pytest.fixture
def deployment() -> dict[str, Any]:
    return document(KUBERNETES / "deployment.yaml")


@pytest.fixture
def pod(deployment: dict[str, Any]) -> dict[str, Any]:
    return deployment["spec"]["template"]["spec"]


@pytest.fixture
def container(pod: dict[str, Any]) -> dict[str, Any]:
    [container] = pod["containers"]
    return container


def test_the_server_takes_its_arguments_and_has_time_to_end(pod: dict[str, Any], container: dict[str, Any]) -> None:
    options = serve_options(container["args"])
    assert 0 < options["drain_delay_secs"] < options["exit_timeout_secs"] < pod["terminationGracePeriodSeconds"]
    assert options["grpc_max_connection_age_secs"] > 0


def test_the_ports_are_those_of_the_server(container: dict[str, Any]) -> None:
    options = serve_options(container["args"])
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"grpc": options["port"], "metrics": options["metrics_port"]}
    assert container["startupProbe"]["grpc"]["port"] == container["readinessProbe"]["grpc"]["port"] == ports["grpc"]
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "metrics"}
    for service in of_kind(KUBERNETES, "Service"):
        assert [(port["port"], port["targetPort"]) for port in service["spec"]["ports"]] == [(options["port"], "grpc")]


def test_a_server_that_loads_is_not_restarted(container: dict[str, Any]) -> None:
    probe = container["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] >= 600


def test_links_to_services_are_not_taken_for_options(pod: dict[str, Any]) -> None:
    assert pod["enableServiceLinks"] is False


def test_the_container_has_no_rights(pod: dict[str, Any], container: dict[str, Any]) -> None:
    user, _, group = setting(IMAGE, "cpu", "USER").text.partition(":")
    context = pod["securityContext"]
    assert (context["runAsNonRoot"], context["runAsUser"], context["runAsGroup"]) == (True, int(user), int(group))
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    [account] = of_kind(KUBERNETES, "ServiceAccount")
    assert account["metadata"]["name"] == pod["serviceAccountName"]
    assert account["automountServiceAccountToken"] is pod["automountServiceAccountToken"] is False


def test_cpus_and_memory_are_bounded(container: dict[str, Any]) -> None:
    resources = container["resources"]
    assert resources["limits"]["cpu"] == resources["requests"]["cpu"]
    assert set(resources["limits"]) == {"cpu", "memory"}


def test_selectors_meet_the_pods(deployment: dict[str, Any]) -> None:
    labels = deployment["spec"]["template"]["metadata"]["labels"].items()
    selectors = [service["spec"]["selector"] for service in of_kind(KUBERNETES, "Service")]
    for kind in ("Deployment", "PodDisruptionBudget"):
        selectors += [found["spec"]["selector"]["matchLabels"] for found in of_kind(KUBERNETES, kind)]
    selectors += [found["spec"]["podSelector"]["matchLabels"] for found in of_kind(KUBERNETES, "NetworkPolicy")]
    selectors += [document(KUBERNETES / "monitoring" / "pod-monitor.yaml")["spec"]["selector"]["matchLabels"]]
    assert len(selectors) == 6
    assert all(selector and selector.items() <= labels for selector in selectors)


def test_clients_that_balance_find_every_pod() -> None:
    services = {service["metadata"]["name"]: service["spec"].get("clusterIP") for service in of_kind(KUBERNETES, "Service")}
    assert services == {"triptych": None, "triptych-pods": "None"}


def test_the_autoscaler_reads_what_the_adapter_gives(deployment: dict[str, Any]) -> None:
    [autoscaler] = of_kind(KUBERNETES, "HorizontalPodAutoscaler")
    assert autoscaler["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    assert "replicas" not in deployment["spec"]
    [metric] = autoscaler["spec"]["metrics"]
    assert metric["pods"]["metric"]["name"] == METRIC
    [rule] = document(KUBERNETES / "prometheus-adapter.yaml")["rules"]["custom"]
    assert rule["seriesQuery"].startswith(f"{METRIC}{{")


def test_a_volume_is_read_and_never_written() -> None:
    pod = document(KUBERNETES / "models" / "volume.yaml")["spec"]["template"]["spec"]
    [container], [volume] = pod["containers"], pod["volumes"]
    [mount] = container["volumeMounts"]
    assert mount["name"] == volume["name"]
    assert mount["readOnly"] is volume["persistentVolumeClaim"]["readOnly"] is True
    variables = {variable["name"]: variable["value"] for variable in container["env"]}
    assert variables["TRIPTYCH_MODELS"] == mount["mountPath"]
    assert serve_options(["--models", mount["mountPath"], "--model-control", variables["TRIPTYCH_MODEL_CONTROL"]])


def test_a_gpu_is_asked_for_and_must_be_used(deployment: dict[str, Any]) -> None:
    patch = document(KUBERNETES / "gpu" / "gpu.yaml")
    assert patch["metadata"]["name"] == deployment["metadata"]["name"]
    pod = patch["spec"]["template"]["spec"]
    [container] = pod["containers"]
    [own] = deployment["spec"]["template"]["spec"]["containers"]
    assert container["name"] == own["name"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert "nvidia.com/gpu" in [toleration["key"] for toleration in pod["tolerations"]]
    [variable] = container["env"]
    assert variable["name"] == "TRIPTYCH_DEVICE"
    assert serve_options(["--device", variable["value"]])["device"] != serve_options([])["device"]


@pytest.mark.parametrize("version", VERSIONS)
def test_what_the_gpu_changes_is_valid(deployment: dict[str, Any], version: str) -> None:
    patch = document(KUBERNETES / "gpu" / "gpu.yaml")
    deployment["spec"]["strategy"] |= patch["spec"]["strategy"]
    pod, more = deployment["spec"]["template"]["spec"], patch["spec"]["template"]["spec"]
    pod["tolerations"] = more["tolerations"]
    pod["containers"][0]["env"] = more["containers"][0]["env"]
    for name, values in more["containers"][0]["resources"].items():
        pod["containers"][0]["resources"][name] |= values
    kubernetes_validate.validate(deployment, version, strict=True)
