"""Helpers for tests of kinds: a Job, its adapter, ResourceFlavors, an admission and a pod set update."""

from __future__ import annotations

from admission.kinds import all_kinds
from admission.model.checks import PodSetUpdate
from admission.model.manifests import parse_manifest
from admission.model.workload import Admission, PodSetAssignment

JOBS = all_kinds().get("batch", "Job")


def make_job(*, labels=None, annotations=None, status=None, owners=None, template=None, **spec):
    metadata = {
        "name": "train",
        "namespace": "team-a",
        "uid": "u-1",
        "resourceVersion": "42",
        "generation": 3,
        "creationTimestamp": "2026-01-02T03:04:05Z",
        "labels": {"sluice.dev/queue-name": "main"} if labels is None else labels,
    }
    if annotations:
        metadata["annotations"] = annotations
    if owners:
        metadata["ownerReferences"] = owners
    template = template or {}
    containers = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]
    pod = {"metadata": {"labels": {"job-name": "train"}}, "spec": {"containers": containers, **template}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {"suspend": True, "parallelism": 3, "completions": 6, "template": pod, **spec},
        "status": status or {},
    }


def flavor(name, labels=None, tolerations=()):
    return parse_manifest(
        {
            "apiVersion": "sluice.dev/v1",
            "kind": "ResourceFlavor",
            "metadata": {"name": name},
            "spec": {"nodeLabels": labels or {}, "tolerations": list(tolerations)},
        }
    )


SPOT = flavor("spot", {"pool": "spot"}, [{"key": "spot", "operator": "Exists", "effect": "NoSchedule"}])
A100 = flavor("a100", {"gpu": "a100"})
PLAIN = flavor("plain")
FLAVORS = {item.name: item for item in (SPOT, A100, PLAIN)}


def admission(*flavors, count=3):
    by_resource = {f"resource-{index}": name for index, name in enumerate(flavors)}
    return Admission("cq", (PodSetAssignment("main", by_resource, {}, count),))


def update(**fields):
    return PodSetUpdate.model_validate({"name": "main", **fields})
