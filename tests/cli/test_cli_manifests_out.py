"""`sluice export --as`: all queue objects as manifests that can be applied again, here or to Kueue."""

from __future__ import annotations

import pytest
import yaml

OBJECTS = """
{apiVersion: kueue.x-k8s.io/v1beta1, kind: ResourceFlavor, metadata: {name: default}, spec: {nodeLabels: {pool: x}}}
---
{apiVersion: kueue.x-k8s.io/v1beta1, kind: Cohort, metadata: {name: a-child}, spec: {parent: z-parent}}
---
{apiVersion: kueue.x-k8s.io/v1beta1, kind: Cohort, metadata: {name: z-parent}}
---
apiVersion: sluice.dev/v1
kind: ClusterQueue
metadata: {name: team-a, labels: {team: a}, annotations: {note: hello}}
spec:
  cohortName: a-child
  namespaceSelector: {}
  overQuota: {evictAfterSeconds: 60}
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: default, resources: [{name: cpu, nominalQuota: "4", borrowingLimit: "1"}]}]
---
{apiVersion: sluice.dev/v1, kind: LocalQueue, metadata: {name: main, namespace: team-a}, spec: {clusterQueue: team-a}}
---
{apiVersion: kueue.x-k8s.io/v1beta2, kind: WorkloadPriorityClass, metadata: {name: high}, value: 5}
"""


@pytest.mark.costly
async def test_exported_manifests_can_be_applied_without_changes(sluice):
    assert (await sluice("apply", "-f", "-", stdin=OBJECTS)).exit_code == 0
    exported = await sluice("export", "--as", "sluice")
    assert exported.exit_code == 0, exported.stderr
    documents = list(yaml.safe_load_all(exported.stdout))
    assert {document["apiVersion"] for document in documents} == {"sluice.dev/v1"}
    assert [document["metadata"]["name"] for document in documents] == [
        "default", "high", "z-parent", "a-child", "team-a", "main",
    ]  # fmt: skip
    team_a = documents[4]
    assert team_a["metadata"] == {"name": "team-a", "labels": {"team": "a"}, "annotations": {"note": "hello"}}
    assert "status" not in team_a
    again = await sluice("apply", "-f", "-", stdin=exported.stdout)
    assert all(line.endswith(" unchanged") for line in again.stdout.splitlines())


async def test_export_for_kueue_drops_and_reports_fields_unknown_to_kueue(sluice, tmp_path):
    await sluice("apply", "-f", "-", stdin=OBJECTS)
    done = await sluice("export", "--as", "kueue", str(tmp_path / "kueue.yaml"))
    assert (done.exit_code, done.stdout) == (0, "")
    assert "ClusterQueue team-a: spec.overQuota is left out: Kueue has no such field" in done.stderr
    documents = {item["metadata"]["name"]: item for item in yaml.safe_load_all((tmp_path / "kueue.yaml").read_text())}
    assert {document["apiVersion"] for document in documents.values()} == {"kueue.x-k8s.io/v1beta2"}
    assert "overQuota" not in documents["team-a"]["spec"]
    assert documents["a-child"]["spec"]["parentName"] == "z-parent"
    assert documents["team-a"]["spec"]["resourceGroups"][0]["flavors"][0]["resources"] == [
        {"name": "cpu", "nominalQuota": "4", "borrowingLimit": "1"}
    ]
