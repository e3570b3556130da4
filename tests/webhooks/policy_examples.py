"""Reconciler of the gate and example Jobs, for tests of admission policies."""

from __future__ import annotations

from admission.kinds import all_kinds
from webhooks.gate_reconciler import GateReconciler
from webhooks.scope import Scope

JOBS = "/apis/batch/v1/namespaces/default/jobs"
GROUP = "/apis/admissionregistration.k8s.io/v1"
SLUICE = "system:serviceaccount:sluice-system:sluice"
SUBMITTED_BY = "sluice.dev/submitted-by"
QUEUE, KUEUE_QUEUE = "sluice.dev/queue-name", "kueue.x-k8s.io/queue-name"
TEAMS = ({"key": "team", "operator": "Exists"},)


def make_reconciler(client, mode="policies", *, webhook=None, managed=TEAMS, is_leader=lambda: True, kinds=None):
    return GateReconciler(
        client, mode, tuple(kinds or all_kinds()), Scope((SLUICE,), managed=managed), webhook, is_leader
    )


def job(name, labels=None, annotations=None, **spec):
    metadata = {"name": name, "labels": labels or {}, "annotations": annotations or {}}
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
    return {"metadata": metadata, "spec": {"template": {"spec": pod}, **spec}}
