"""Objects that have a queue label and are not queued: which ones, and why."""

from __future__ import annotations

import pytest
from kind_manifests import GOLDEN, document

from admission.kinds import all_kinds, frameworks_known
from admission.kinds.not_queued import not_queued

ON = all_kinds(frameworks=frameworks_known())
KNOWN = {(kind.group, kind.kind) for kind in ON.gated}
LABELS = {"sluice.dev/queue-name": "lq"}
TEMPLATE = {"spec": {"containers": [{"name": "c"}]}}


def why(name, obj, *, is_on=True):
    kind = next(kind for kind in ON.gated if kind.kind == name)
    found = not_queued(kind, obj, is_on=is_on, known=KNOWN)
    return "" if found is None else found.sentence


def obj(name="x", *, namespace="team-a", labels=LABELS, spec=None, **metadata):
    meta = {"name": name, "namespace": namespace, "uid": "u", "resourceVersion": "1", "labels": labels, **metadata}
    meta.setdefault("creationTimestamp", "2026-01-02T03:04:05Z")
    return {"metadata": meta, "spec": spec or {"template": TEMPLATE}}


OTHERS = ("trainjob-v2", "statefulset", "deployment", "leaderworkerset", "pod", "pod-group-kueue", "volcano-torchx-ddp")


@pytest.mark.parametrize("name", [*GOLDEN, *OTHERS])
def test_object_of_a_kind_that_is_off_is_told_of(name):
    found = document(name)
    group, kind = found["apiVersion"].rpartition("/")[0], found["kind"]
    found["metadata"] |= {
        "namespace": "team-a",
        "uid": "u",
        "resourceVersion": "1",
        "creationTimestamp": "2026-01-02T03:04:05Z",
    }
    found["metadata"].setdefault("labels", {}).setdefault("kueue.x-k8s.io/queue-name", "lq")
    told = not_queued(
        next(each for each in ON.gated if (each.group, each.kind) == (group, kind)), found, is_on=False, known=KNOWN
    )
    assert told is not None
    whose = f"{kind} team-a/{found['metadata']['name']}"
    assert told.sentence == f"{whose} has a queue label, but {kind}s are off: it runs without quota"


def test_object_in_an_excluded_namespace_is_told_of():
    text = "JobSet kube-system/x has a queue label, but nothing is queued in namespace kube-system: it runs without"
    assert why("JobSet", obj(namespace="kube-system", spec={})).startswith(text)


@pytest.mark.parametrize(("kind", "spec"), [("StatefulSet", {}), ("Deployment", {}), ("Pod", {"containers": []})])
def test_object_that_was_created_before_its_kind_was_queued_is_told_of(kind, spec):
    before = obj(spec={"template": TEMPLATE, **spec})
    assert f"{kind} team-a/x has a queue label, but was created while {kind}s were not queued" in why(kind, before)


def test_queued_objects_are_not_told_of():
    assert why("JobSet", obj(spec={"suspend": True})) == ""
    labelled = {"metadata": {"labels": LABELS}, **TEMPLATE}
    assert why("Deployment", obj(spec={"template": labelled})) == ""
    assert why("Pod", obj(labels={**LABELS, "sluice.dev/managed": "true"}, spec=TEMPLATE["spec"])) == ""
    marked = {"labels": LABELS, "annotations": {"sluice.dev/pod-group-total-count": "1"}}
    assert why("StatefulSet", obj(spec={"template": {"metadata": marked, **TEMPLATE}})) == ""


@pytest.mark.parametrize("labels", [{}, None, {"app": "x"}, {"sluice.dev/queue-name": ""}])
def test_objects_without_a_queue_label_are_not_told_of(labels):
    assert why("JobSet", obj(labels=labels, spec={}), is_on=False) == ""


def test_finished_deleted_foreign_and_owned_objects_are_not_told_of():
    finished = obj(spec={}) | {"status": {"conditions": [{"type": "Completed", "status": "True"}]}}
    assert why("JobSet", finished, is_on=False) == ""
    assert why("JobSet", obj(spec={}, deletionTimestamp="2026-01-02T03:04:06Z"), is_on=False) == ""
    assert why("JobSet", obj(spec={"managedBy": "example.com/another"}), is_on=False) == ""
    owner = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "name": "t", "controller": True}
    assert why("JobSet", obj(spec={}, ownerReferences=[owner]), is_on=False) == ""
    cron = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "t", "controller": True}
    assert why("Job", obj(spec=document("job")["spec"], ownerReferences=[cron]), is_on=False) != ""
    assert why("Pod", obj(spec=TEMPLATE["spec"], ownerReferences=[cron])) == ""
