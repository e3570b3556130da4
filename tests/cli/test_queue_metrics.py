"""Gauges of queues, from the state of the engine and counts in the database."""

from __future__ import annotations

import pytest

from admission.cli.serve.queue_metrics import queue_families
from admission.engine import Engine
from admission.engine.events import NamespaceChanged, QueueObjectChanged
from admission.model.manifests import parse_documents, parse_manifest
from admission.store.records import State, UnfinishedCount

QUEUES = """
apiVersion: sluice.dev/v1
kind: ClusterQueue
metadata: {name: cq}
spec: {namespaceSelector: {}}
---
apiVersion: sluice.dev/v1
kind: LocalQueue
metadata: {name: lq, namespace: team-a}
spec: {clusterQueue: cq}
"""


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("unadmitted_workloads", {"cluster_queue": "cq"}),
        ("local_queue_unadmitted_workloads", {"name": "lq", "namespace": "team-a"}),
    ],
)
def test_unadmitted_workloads_include_those_waiting_for_admission_checks(name, place):
    engine = Engine()
    engine.observe(NamespaceChanged("team-a", {}), now=0.0)
    for document in parse_documents(QUEUES, source="queues"):
        engine.observe(QueueObjectChanged(parse_manifest(document.body)), now=0.0)
    engine.cycle(now=0.0)
    counts = [
        UnfinishedCount("team-a", "lq", "cq", state, checks, reason, number)
        for state, checks, reason, number in (
            (State.PENDING, False, "WaitingForQuota", 3),
            (State.ADMITTED, True, "WaitingForChecks", 2),
            (State.ADMITTED, False, "", 5),
        )
    ]
    families = queue_families(engine, counts, [], fair_sharing=False)
    (family,) = (each for each in families if each.name == f"sluice_{name}")
    assert {sample.labels["reason"]: sample.value for sample in family.samples} == {
        "WaitingForQuota": 3,
        "WaitingForChecks": 2,
    }
    assert all(place.items() <= sample.labels.items() for sample in family.samples)
