"""Admission policies in the tests: who writes them, and the Jobs that they judge."""

from __future__ import annotations

from admission.kinds import all_kinds
from webhooks.scope import Scope
from webhooks.standing import Standing

JOBS = "/apis/batch/v1/namespaces/default/jobs"
GROUP = "/apis/admissionregistration.k8s.io/v1"
SLUICE = "system:serviceaccount:sluice-system:sluice"
SUBMITTED_BY = "sluice.dev/submitted-by"
QUEUE, KUEUE_QUEUE = "sluice.dev/queue-name", "kueue.x-k8s.io/queue-name"
TEAMS = ({"key": "team", "operator": "Exists"},)


def standing(client, mode="policies", *, webhook=None, managed=TEAMS, leads=lambda: True, kinds=None):
    return Standing(client, mode, tuple(kinds or all_kinds()), Scope((SLUICE,), managed=managed), webhook, leads)


def job(name, labels=None, annotations=None, **spec):
    metadata = {"name": name, "labels": labels or {}, "annotations": annotations or {}}
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
    return {"metadata": metadata, "spec": {"template": {"spec": pod}, **spec}}
