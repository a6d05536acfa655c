"""What KServe is told. Its own schemas are not here: the fields are those that were checked against them."""

from typing import Any

import kubernetes_validate
import pytest

from .files import DEPLOY, KUBERNETES, document, serve_options

RUNTIME_FIELDS = {"annotations", "supportedModelFormats", "protocolVersions", "multiModel", "containers"}
FORMAT_FIELDS = {"name", "version", "autoSelect", "priority"}
MODEL_FIELDS = {"runtime", "modelFormat", "protocolVersion", "storageUri"}
GRACE_SECONDS = 30.0  # of pods that do not say otherwise


@pytest.fixture
def runtime() -> dict[str, Any]:
    content = document(DEPLOY / "kserve" / "serving-runtime.yaml")
    assert (content["apiVersion"], content["kind"]) == ("serving.kserve.io/v1alpha1", "ServingRuntime")
    return content


@pytest.fixture
def predictor() -> dict[str, Any]:
    content = document(DEPLOY / "kserve" / "inference-service.yaml")
    assert (content["apiVersion"], content["kind"]) == ("serving.kserve.io/v1beta1", "InferenceService")
    return content["spec"]["predictor"]


def test_the_fields_are_kserves(runtime: dict[str, Any], predictor: dict[str, Any]) -> None:
    assert set(runtime["spec"]) == RUNTIME_FIELDS
    assert all(set(supported) == FORMAT_FIELDS for supported in runtime["spec"]["supportedModelFormats"])
    assert set(predictor) == {"minReplicas", "maxReplicas", "model"}
    assert set(predictor["model"]) == MODEL_FIELDS


def test_its_container_is_a_container(runtime: dict[str, Any]) -> None:
    [container] = runtime["spec"]["containers"]
    assert container["name"] == "kserve-container"  # by which KServe knows it
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": {"containers": [container]}}
    kubernetes_validate.validate(pod, "1.37", strict=True)


def test_the_server_takes_its_arguments(runtime: dict[str, Any]) -> None:
    [container] = runtime["spec"]["containers"]
    options = serve_options(container["args"])
    assert str(options["models"]) == "/mnt/models"  # where the storage initializer puts what it brings
    assert options["exit_timeout_secs"] < GRACE_SECONDS
    assert [port["containerPort"] for port in container["ports"]] == [options["port"]]
    assert runtime["spec"]["annotations"]["prometheus.kserve.io/port"] == str(options["metrics_port"])


def test_the_service_finds_the_runtime(runtime: dict[str, Any], predictor: dict[str, Any]) -> None:
    model, spec = predictor["model"], runtime["spec"]
    assert model["runtime"] == runtime["metadata"]["name"]
    assert model["protocolVersion"] in spec["protocolVersions"]
    [supported] = spec["supportedModelFormats"]
    assert model["modelFormat"] == {name: supported[name] for name in ("name", "version")}


def test_it_is_fenced_in_as_elsewhere(runtime: dict[str, Any]) -> None:
    [container] = runtime["spec"]["containers"]
    pod = document(KUBERNETES / "deployment.yaml")["spec"]["template"]["spec"]
    [other] = pod["containers"]
    fences = {name: pod["securityContext"][name] for name in ("runAsNonRoot", "runAsUser", "seccompProfile")}
    assert container["securityContext"] == {**other["securityContext"], **fences}
