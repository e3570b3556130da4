"""Manifests of the declared kinds as objects of the API server, and their admissions."""

from __future__ import annotations

import jsonpatch
from kind_manifests import document

from admission.kinds import NamespaceContext, all_kinds, frameworks_known
from admission.model.workload import Admission, PodSetAssignment

KINDS = all_kinds(frameworks=frameworks_known())
CONTEXT = NamespaceContext()


def manifest(name):
    """Return the kind of a file's first document, and the object as the API server would store it, gated."""
    obj = document(name)
    obj["metadata"] |= {
        "uid": "u-1",
        "resourceVersion": "7",
        "generation": 1,
        "creationTimestamp": "2026-01-02T03:04:05Z",
        "annotations": {**(obj["metadata"].get("annotations") or {}), "sluice.dev/submitted-by": "alice"},
    }
    kind = KINDS.get(obj["apiVersion"].rpartition("/")[0], obj["kind"])
    return kind, jsonpatch.apply_patch(obj, kind.gate(obj))


def admission(kind, obj, flavor="spot"):
    sets = kind.pod_sets(obj, CONTEXT)
    return Admission("cq", tuple(PodSetAssignment(each.name, {"cpu": flavor}, {}, each.count) for each in sets))
