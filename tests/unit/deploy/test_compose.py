"""The compose file. Its published schema is not here: the fields are those that were checked against it."""

import json
from typing import Any

import pytest
import yaml

from ...image.dockerfile import DOCKERFILE
from .files import DEPLOY, IMAGE, ROOT, document, serve_options

FIELDS = {
    "build",
    "cap_drop",
    "command",
    "configs",
    "cpus",
    "depends_on",
    "environment",
    "image",
    "init",
    "mem_limit",
    "pids_limit",
    "ports",
    "read_only",
    "restart",
    "security_opt",
    "stop_grace_period",
    "tmpfs",
    "volumes",
}
COMPOSE = document(DEPLOY / "compose.yaml")
GPU_FIELDS = {"build", "deploy", "environment", "image", "mem_limit", "volumes"}  # that compose.cuda.yaml changes
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
CONFIGS = {name: yaml.safe_load(config["content"]) for name, config in COMPOSE["configs"].items()}


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_fenced_in_and_bounded(name: str) -> None:
    service = SERVICES[name]
    assert set(service) <= FIELDS
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "mem_limit" in service
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])


@pytest.mark.parametrize("name", SERVICES)
def test_what_a_service_needs_is_there(name: str) -> None:
    service = SERVICES[name]
    assert {config["source"] for config in service.get("configs", [])} <= set(CONFIGS)
    assert set(service.get("depends_on", [])) <= set(SERVICES)
    for volume in service.get("volumes", []):
        source = volume.partition(":")[0]
        assert (DEPLOY / source).exists() if source.startswith(".") else source in COMPOSE["volumes"]


def test_the_server_takes_its_arguments_and_has_time_to_end() -> None:
    service = SERVICES["triptych"]
    assert serve_options(service["command"])["exit_timeout_secs"] < float(service["stop_grace_period"].removesuffix("s"))


def test_the_image_is_built_from_what_is_here() -> None:
    build = SERVICES["triptych"]["build"]
    assert (DEPLOY / build["context"]).resolve() == ROOT
    assert ROOT / build["dockerfile"] == DOCKERFILE
    assert build["target"] in IMAGE


def test_the_metrics_reach_the_dashboard() -> None:
    [job] = CONFIGS["prometheus"]["scrape_configs"]
    port = serve_options([])["metrics_port"]
    assert job["static_configs"] == [{"targets": [f"triptych:{port}"]}]
    [source] = CONFIGS["datasource"]["datasources"]
    assert source["type"] == "prometheus"
    mounted = [volume.split(":")[:2] for volume in SERVICES["grafana"]["volumes"] if volume.startswith(".")]
    [provider] = CONFIGS["dashboards"]["providers"]
    [folder] = [DEPLOY / here for here, there in mounted if there == provider["options"]["path"]]
    dashboards = [json.loads(path.read_text(encoding="utf-8")) for path in folder.rglob("*.json")]
    assert dashboards
    assert all(dashboard["title"] for dashboard in dashboards)


def test_the_file_for_a_gpu_changes_the_server_and_nothing_else() -> None:
    gpu = document(DEPLOY / "compose.cuda.yaml")
    assert set(gpu) == {"services"}
    [(name, service)] = gpu["services"].items()
    assert name in SERVICES
    assert set(service) == GPU_FIELDS
    assert service["build"] == {"target": service["image"].removeprefix("triptych:")}
    assert service["build"]["target"] in IMAGE
    [reservation] = service["deploy"]["resources"]["reservations"]["devices"]
    assert reservation == {"driver": "nvidia", "count": 1, "capabilities": ["gpu"]}
    [volume] = service["volumes"]
    folder, _, mode = volume.removeprefix("${MODELS_FOLDER:?a model repository}:").partition(":")
    assert (folder, mode) == (service["environment"]["TRIPTYCH_MODELS"], "ro")
    assert serve_options(["--device", service["environment"]["TRIPTYCH_DEVICE"]])
