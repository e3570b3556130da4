"""Dashboards and alerts: metrics and labels in their queries exist, alerts have runbooks and pass promtool's tests."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy/prometheus/rules.yaml"
DASHBOARDS = sorted((ROOT / "deploy/grafana").glob("*.json"))
DOCUMENTED = re.compile(r"\| `([a-z_]+)` \| (counter|gauge|histogram) \| ([^|]*) \|")
METRIC = re.compile(r"\b((?:sluice|process)_[a-z_]+)")
SELECTOR = re.compile(r"\b((?:sluice|process)_[a-z_]+)\{([^}]*)\}")
AGGREGATION = re.compile(r"\b(?:by|on) \(([^)]*)\)")
OF_SCRAPES = {"instance", "job", "le"}


def documented() -> dict[str, set[str]]:
    """Return the labels of each metric in docs/metrics.md, which `tests/cli/test_cli_metrics.py` verifies."""
    found: dict[str, set[str]] = {}
    for name, kind, labels in DOCUMENTED.findall((ROOT / "docs/metrics.md").read_text()):
        for suffix in ("_bucket", "_sum", "_count") if kind == "histogram" else ("",):
            found[name + suffix] = set(re.findall("`([a-z_]+)`", labels))
    return found


def dashboard_queries() -> list[tuple[str, str]]:
    found = []
    for path in DASHBOARDS:
        board = json.loads(path.read_text())
        texts = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
        found += [(path.name, text) for text in texts]
        found += [(path.name, one["query"]["query"]) for one in board["templating"]["list"] if one["type"] == "query"]
    return found


def alerts() -> list[dict]:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    return group["rules"]


@pytest.mark.parametrize(
    ("where", "query"), [*dashboard_queries(), *((alert["alert"], alert["expr"]) for alert in alerts())]
)
def test_queries_use_only_documented_metrics_and_labels(where, query):
    known = documented()
    named = METRIC.findall(query)
    assert named, f"{where}: {query}"
    assert set(named) <= known.keys(), f"{where}: {query}"
    for name, selector in SELECTOR.findall(query):
        labels = set(re.findall(r"([a-z_]+)\s*(?:=~|!~|!=|=)", re.sub(r'"[^"]*"', '""', selector)))
        assert labels <= known[name] | OF_SCRAPES, f"{where}: {query}"
    all_labels = set().union(*(known[name] for name in named)) | OF_SCRAPES
    for labels in AGGREGATION.findall(query):
        assert set(re.split(r",\s*", labels)) <= all_labels, f"{where}: {query}"


def test_each_alert_has_a_runbook_and_each_runbook_an_alert():
    text = (ROOT / "docs/runbooks.md").read_text()
    sections = dict(re.findall(r"^## (\w+)\n\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    assert sections.keys() == {alert["alert"] for alert in alerts()}
    for alert in alerts():
        assert alert["annotations"]["runbook_url"] == f"docs/runbooks.md#{alert['alert'].lower()}"
        section = sections[alert["alert"]]
        assert f"`{alert['expr']}`" in section
        assert f"Severity: {alert['labels']['severity']}." in section
        for part in ("**What it means.**", "**What to look at.**\n\n    ", "**What to do.**"):
            assert part in section


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert["alert"])
def test_each_alert_has_rule_tests_in_which_it_fires_and_in_which_it_does_not(alert):
    """Without its metrics an alert is silent in any case, so only tests that have them count."""
    name, metrics, fires = alert["alert"], set(METRIC.findall(alert["expr"])), set()
    for group in yaml.safe_load((RULES.parent / "rules_test.yaml").read_text())["tests"]:
        if metrics <= {METRIC.match(series["series"])[0] for series in group["input_series"]}:
            fires |= {bool(test.get("exp_alerts")) for test in group["alert_rule_test"] if test["alertname"] == name}
    assert fires == {True, False}


@pytest.mark.costly
def test_alert_rules_pass_promtool():
    checked = subprocess.run(["promtool", "check", "rules", str(RULES)], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    run = subprocess.run(
        ["promtool", "test", "rules", "rules_test.yaml"], cwd=RULES.parent, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_dashboard_queries_can_be_parsed_by_prometheus(tmp_path):
    variables = {"$cluster_queue": ".*", "$namespace": ".*", "$queue": ".*"}
    rules = []
    for number, (_, query) in enumerate(dashboard_queries()):
        if query.startswith("label_values("):
            continue
        for name, value in variables.items():
            query = query.replace(name, value)
        rules.append({"record": f"q{number}", "expr": query})
    (tmp_path / "queries.yaml").write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    checked = subprocess.run(
        ["promtool", "check", "rules", str(tmp_path / "queries.yaml")], capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
