"""Recognition of other schedulers' quota objects: which `sluice import` reads a document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_SOURCES: Final = {
    ("scheduling.volcano.sh", "Queue"): "volcano",
    ("scheduling.run.ai", "Queue"): "kai",
    ("scheduling.sigs.k8s.io", "ElasticQuota"): "koordinator",
    ("scheduling.x-k8s.io", "ElasticQuota"): "scheduler-plugins",
    ("quota.codeflare.dev", "QuotaSubtree"): "mcad",
}
"""(API group, kind) -> name of the import."""


def import_source(body: Mapping[str, Any]) -> str:
    """Return the name of the `sluice import` that reads this document; empty: none."""
    data = body.get("data")
    # YuniKorn's queues are no Kubernetes object, but a file, often in a ConfigMap.
    if "partitions" in body or (body.get("kind") == "ConfigMap" and isinstance(data, dict) and "queues.yaml" in data):
        return "yunikorn"
    return _SOURCES.get((str(body.get("apiVersion", "")).partition("/")[0], str(body.get("kind", ""))), "")
