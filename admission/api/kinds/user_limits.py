"""API descriptor of UserLimits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from admission.api.kinds.columns import Column, at
from admission.api.kinds.descriptor import ObjectKind
from admission.model.queues import ClusterQueue, UserLimit

if TYPE_CHECKING:
    from admission.api.http.responses import Document
    from admission.api.kinds.descriptor import WarningContext
    from admission.store.store import Store

_SHOWN: Final = 3


def _for(document: Document, now: float) -> object:
    del now
    spec = document["spec"]
    names = [*spec.get("users", ()), *(f"group/{name}" for name in spec.get("groups", ()))] or ["everybody"]
    more = f",+{len(names) - _SHOWN}" if len(names) > _SHOWN else ""
    return ",".join(names[:_SHOWN]) + more + (" together" if spec.get("together") else "")


def _limits(document: Document, now: float) -> object:
    del now
    spec = document["spec"]
    numbers = {name: spec[name] for name in ("running", "pending", "submitted") if name in spec}
    return ",".join(f"{name}={most}" for name, most in {**numbers, **spec.get("resources", {})}.items())


async def _warnings(store: Store, written: UserLimit, context: WarningContext) -> list[str]:
    del context
    queue = written.spec.cluster_queue
    known = (await store.queues.names(ClusterQueue.kind))[ClusterQueue.kind] if queue else ()
    return [f"there is no ClusterQueue {queue}; it is counted when it is created"] if queue not in (*known, "") else []


USER_LIMIT: Final = ObjectKind(
    UserLimit,
    columns=(
        Column("For", _for, "Users and groups for whom it holds"),
        Column("ClusterQueue", at("spec", "clusterQueue"), "Where it counts; empty: in all ClusterQueues together"),
        Column("Limits", _limits, "Numbers of workloads, and what the pods of those that hold quota may request"),
    ),
    selectable_fields={"spec.clusterQueue": lambda limit: limit.spec.cluster_queue},
    warnings=_warnings,
)
