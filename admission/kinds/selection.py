"""How the pods of a workload are selected in a cluster, by parameters of list requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from admission.kinds.base import POD, POD_OWNER, WORKLOAD_UID
from admission.kinds.grouping import GROUP_NAME
from admission.kinds.pod_group import PodGroupKind

if TYPE_CHECKING:
    from collections.abc import Mapping

_JOB: Final = ("batch", "Job")
_GROUP: Final = (PodGroupKind.group, PodGroupKind.kind)


def own_pods(kind: tuple[str, str], name: str, uid: str) -> list[Mapping[str, str]]:
    """Return selectors, to try in order, of the pods of a workload in the cluster of its object.

    `kind`: API group and kind of the object. The pods of a group have a label since Sluice has started them.
    """
    if kind == POD:
        return [{"fieldSelector": f"metadata.name={name}"}]
    labels = [(POD_OWNER if kind == _JOB else WORKLOAD_UID, uid)]
    labels += [(label, name) for label in GROUP_NAME if kind == _GROUP]
    return [{"labelSelector": f"{label}={value}"} for label, value in labels]


def sent_pods(uid: str) -> Mapping[str, str]:
    """Return the selector of the pods of a workload in another cluster. Users there can give others the label, too."""
    return {"labelSelector": f"{WORKLOAD_UID}={uid}"}
