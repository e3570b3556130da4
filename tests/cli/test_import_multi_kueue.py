"""MultiKueue's objects in `sluice import kueue`: Clusters, flavors with their clusters, ClusterQueues that dispatch."""

from __future__ import annotations

import json

import pytest

QUEUES = """
apiVersion: kueue.x-k8s.io/{version}
kind: MultiKueueCluster
metadata: {{name: east}}
spec: {{kubeConfig: {{locationType: Secret, location: east-secret}}}}
---
apiVersion: kueue.x-k8s.io/{version}
kind: MultiKueueCluster
metadata: {{name: west}}
spec: {{kubeConfig: {{locationType: Secret, location: west-secret}}}}
---
apiVersion: kueue.x-k8s.io/{version}
kind: MultiKueueConfig
metadata: {{name: both}}
spec: {{clusters: [west, east]}}
---
apiVersion: kueue.x-k8s.io/{version}
kind: AdmissionCheck
metadata: {{name: elsewhere}}
spec:
  controllerName: kueue.x-k8s.io/multikueue
  parameters: {{apiGroup: kueue.x-k8s.io, kind: MultiKueueConfig, name: both}}
---
{{apiVersion: kueue.x-k8s.io/{version}, kind: ResourceFlavor, metadata: {{name: far}}}}
---
{{apiVersion: kueue.x-k8s.io/{version}, kind: ResourceFlavor, metadata: {{name: shared}}, spec: {{}}}}
---
apiVersion: kueue.x-k8s.io/{version}
kind: ClusterQueue
metadata: {{name: dispatching}}
spec:
  namespaceSelector: {{}}
  {checks}
  resourceGroups:
  - coveredResources: [cpu]
    flavors:
    - {{name: far, resources: [{{name: cpu, nominalQuota: 9}}]}}
    - {{name: shared, resources: [{{name: cpu, nominalQuota: 9}}]}}
---
apiVersion: kueue.x-k8s.io/{version}
kind: ClusterQueue
metadata: {{name: at-home}}
spec:
  namespaceSelector: {{}}
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{{name: shared, resources: [{{name: cpu, nominalQuota: 9}}]}}]
"""


@pytest.mark.parametrize(
    ("version", "checks"),
    [
        ("v1beta1", "admissionChecks: [elsewhere]"),
        ("v1beta2", "admissionChecksStrategy: {admissionChecks: [{name: elsewhere}]}"),
    ],
)
async def test_multikueue_becomes_clusters_and_dispatch(sluice, tmp_path, version, checks):
    file = tmp_path / "queues.yaml"
    file.write_text(QUEUES.format(version=version, checks=checks))
    done = await sluice("import", "kueue", "-f", str(file), "--yes")
    assert done.exit_code == 0, done.stderr
    assert "its credentials are not imported from Secret east-secret: sluice cluster join east" in done.stdout
    assert "flavor shared is also used without MultiKueue" in done.stdout
    assert "flavor far" not in done.stdout

    async def spec(what):
        return json.loads((await sluice("get", what, "-o", "json")).stdout).get("spec", {})

    assert (await spec("cluster/west"))["kubeconfig"] == "west.yaml"
    assert (await spec("rf/far"))["clusters"] == ["east", "west"]
    assert "clusters" not in await spec("rf/shared")
    queue = await spec("cq/dispatching")
    assert queue["dispatch"]["clusters"] == ["west", "east"]  # as the MultiKueueConfig has them
    assert not queue.get("admissionChecksStrategy")
    assert "dispatch" not in await spec("cq/at-home")
    assert (await sluice("get", "ac")).stdout == ""
    again = await sluice("import", "kueue", "-f", str(file))
    assert "there is nothing to do" in again.stdout


async def test_apply_names_the_import_of_multikueue(sluice, tmp_path):
    file = tmp_path / "queues.yaml"
    file.write_text(QUEUES.format(version="v1beta2", checks="").partition("---")[0])
    refused = await sluice("apply", "-f", str(file))
    assert refused.exit_code != 0
    assert "a Cluster takes its place; remove it, or use sluice import kueue" in refused.stderr


PROFILE = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: MultiKueueCluster
metadata: {name: east}
spec: {clusterSource: {clusterProfileRef: {name: fleet-east}}}
---
apiVersion: multicluster.x-k8s.io/v1alpha1
kind: ClusterProfile
metadata: {name: fleet-east, namespace: kueue-system}
spec: {displayName: east, clusterManager: {name: fleet}}
status:
  accessProviders:
  - {name: google, cluster: {server: https://east.example.com, certificate-authority-data: LS0t}}
"""


async def test_cluster_profile_is_not_imported_and_its_access_provider_is_named(sluice, tmp_path):
    file = tmp_path / "profile.yaml"
    file.write_text(PROFILE)
    done = await sluice("import", "kueue", "-f", str(file), "--yes")
    assert done.exit_code == 0, done.stderr
    assert "its credentials are not imported from the ClusterProfile fleet-east: sluice cluster join" in done.stdout
    assert "an access provider of the profile (google for https://east.example.com)" in done.stdout
    assert "Sluice has no ClusterProfile: a Cluster with a kubeconfig takes its place" in done.stdout
    assert json.loads((await sluice("get", "cluster/east", "-o", "json")).stdout)["spec"]["kubeconfig"] == "east.yaml"

    file.write_text(PROFILE.partition("---")[2])
    refused = await sluice("apply", "-f", str(file))
    assert refused.exit_code != 0
    assert "Sluice has no ClusterProfile: a Cluster with a kubeconfig takes its place" in refused.stderr
