"""Budgets among the manifests of a simulation."""

from __future__ import annotations

from admission.model.manifests import parse_documents
from admission.simulate import simulate
from admission.simulate.manifests import from_manifests

QUEUES = """
apiVersion: sluice.dev/v1
kind: ResourceFlavor
metadata: {name: default}
---
apiVersion: sluice.dev/v1
kind: ClusterQueue
metadata: {name: cq}
spec:
  namespaceSelector: {}
  resourceGroups: [{coveredResources: [cpu], flavors: [{name: default, resources: [{name: cpu, nominalQuota: 10}]}]}]
---
apiVersion: sluice.dev/v1
kind: LocalQueue
metadata: {name: lq, namespace: default}
spec: {clusterQueue: cq}
---
apiVersion: sluice.dev/v1
kind: Budget
metadata: {name: ml}
spec: {scope: {}, enforcement: Reserve, resources: [{name: cpu, hours: 3}], period: {every: Month}}
"""
JOB = """
---
apiVersion: batch/v1
kind: Job
metadata: {generateName: job-, labels: {sluice.dev/queue-name: lq, sluice.dev/max-exec-time-seconds: "7200"}}
spec: {template: {spec: {containers: [{name: main, image: x, resources: {requests: {cpu: 1}}}]}}}
"""


def test_job_whose_time_limit_exceeds_what_a_budget_has_left_is_not_admitted():
    case = from_manifests(parse_documents(QUEUES + 2 * JOB, source="queues.yaml"))
    final = simulate(case)["final"]
    assert list(final["admitted"]) == ["default/job-1"]
