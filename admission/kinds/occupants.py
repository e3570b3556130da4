"""Which workload a pod belongs to, of any kind, by what the pod itself says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from admission.kinds.base import POD_OWNER
from admission.kinds.common import first
from admission.kinds.declared import WORKLOAD_UID
from admission.kinds.grouping import GROUP_NAME

if TYPE_CHECKING:
    from collections.abc import Mapping


class Occupant(NamedTuple):
    """A pod that has not ended on a node."""

    namespace: str
    uids: tuple[str, ...]
    """Uids of which one may be that of its workload: what its labels name, and its own."""
    group: str
    """Name of its pod group, which is that of the workload; empty: it is in none."""


def occupant(pod: Mapping[str, Any]) -> Occupant | None:
    """Return what a pod says about its workload; None: it has ended."""
    if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return None
    metadata = pod["metadata"]
    labels = metadata.get("labels") or {}
    named = (labels.get(WORKLOAD_UID, ""), labels.get(POD_OWNER, ""), metadata["uid"])
    return Occupant(metadata.get("namespace", ""), tuple(filter(None, named)), first(labels, GROUP_NAME))
