"""The PromQL expressions that the repository ships, and the names in them."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import yaml

DEPLOY = Path(__file__).parents[2] / "serving" / "deploy"
DASHBOARD = DEPLOY / "grafana" / "triptych.json"
ALERTS = DEPLOY / "prometheus" / "alerts.yaml"
GUIDE = DEPLOY.parent / "docs" / "observability.md"

STRING = re.compile(r'"[^"]*"')
METRIC = re.compile(r"\b(?:triptych|process)_\w+")
SELECTOR = re.compile(r"\b((?:triptych|process)_\w+)\{([^}]*)\}")
MATCHER = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
GROUPING = re.compile(r"\bby\s*\(([^)]*)\)")


def dashboard_expressions() -> Iterator[str]:
    """Of all panels and variables."""
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield target["expr"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]["query"]


def alert_expressions() -> Iterator[str]:
    """Of all rules."""
    for group in yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]:
        for rule in group["rules"]:
            yield rule["expr"]


def metrics_of_guide() -> set[str]:
    """Those in its table."""
    lines = GUIDE.read_text(encoding="utf-8").splitlines()
    return {metric for line in lines if line.startswith("| `triptych_") for metric in METRIC.findall(line.partition(" | ")[0])}


def metrics_in(expression: str) -> set[str]:
    """Names of time series."""
    return set(METRIC.findall(STRING.sub('""', expression)))


def labels_in(expression: str) -> Iterator[tuple[str, str]]:
    """Every label by which series of a metric are chosen or grouped, with the metric."""
    bare = STRING.sub('""', expression)
    for metric, matchers in SELECTOR.findall(bare):
        yield from ((metric, label) for label in MATCHER.findall(matchers))
    for labels in GROUPING.findall(bare):
        yield from ((metric, label.strip()) for metric in metrics_in(bare) for label in labels.split(","))
