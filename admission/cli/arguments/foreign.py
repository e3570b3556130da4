"""Recognition of documents of other systems: which `sluice import` reads them, and which have no equivalent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from admission.model.manifests import Document

_SOURCES: Final = {
    ("scheduling.volcano.sh", "Queue"): "volcano",
    ("scheduling.run.ai", "Queue"): "kai",
    ("scheduling.sigs.k8s.io", "ElasticQuota"): "koordinator",
    ("scheduling.x-k8s.io", "ElasticQuota"): "scheduler-plugins",
    ("quota.codeflare.dev", "QuotaSubtree"): "mcad",
}
"""(API group, kind) -> name of the import."""
_KUEUE: Final = "kueue.x-k8s.io"
PROFILES: Final = "multicluster.x-k8s.io"
"""API group of ClusterProfiles, from which MultiKueue may take credentials."""
_KUEUE_SETTINGS: Final = "config.kueue.x-k8s.io"
KUEUE_SETTINGS_KEY: Final = "controller_manager_config.yaml"
"""Key of Kueue's ConfigMap `kueue-manager-config` with its configuration."""
_KUSTOMIZATIONS: Final = ("kustomization.yaml", "kustomization.yml")
_WITHOUT_EQUIVALENT: Final = {
    (_KUEUE, "MultiKueueCluster"): "a Cluster takes its place",
    (_KUEUE, "MultiKueueConfig"): "ResourceFlavors name their clusters",
    (
        PROFILES,
        "ClusterProfile",
    ): "a Cluster with a kubeconfig takes its place, which may have the address and the exec "
    "plugin of one of its access providers",
}
"""(API group, kind) of MultiKueue that Sluice does not have -> what this means for users."""


def import_source(body: Mapping[str, Any]) -> str:
    """Return the name of the `sluice import` that reads this document; empty: none."""
    data = body.get("data")
    # YuniKorn's queues are no Kubernetes object, but a file, often in a ConfigMap.
    if "partitions" in body or (body.get("kind") == "ConfigMap" and isinstance(data, dict) and "queues.yaml" in data):
        return "yunikorn"
    return _SOURCES.get((api_group(body), str(body.get("kind", ""))), "")


def is_kueue_configuration(body: Mapping[str, Any]) -> bool:
    """Return whether a document is Kueue's own configuration, bare or in the ConfigMap of its installation."""
    data = body.get("data")
    in_config_map = body.get("kind") == "ConfigMap" and isinstance(data, dict) and KUEUE_SETTINGS_KEY in data
    return in_config_map or api_group(body) == _KUEUE_SETTINGS


def is_kustomization(document: Document) -> bool:
    """Return whether a document is a file of kustomize, which need not have an apiVersion."""
    name = Path(document.source.partition(": ")[0]).name
    return name in _KUSTOMIZATIONS or api_group(document.body) == "kustomize.config.k8s.io"


def without_equivalent(body: Mapping[str, Any]) -> str:
    """Return what it means that Sluice has no object of this kind of MultiKueue; empty: it is not of these kinds."""
    return _WITHOUT_EQUIVALENT.get((api_group(body), str(body.get("kind", ""))), "")


def api_group(body: Mapping[str, Any]) -> str:
    """Return the API group of a document; empty: the core group, or none."""
    return str(body.get("apiVersion") or "").rpartition("/")[0]
