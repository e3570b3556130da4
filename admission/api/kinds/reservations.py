"""API descriptor of Reservations, whose author also needs the verb `reserve` on the ClusterQueue."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from admission.api.kinds.columns import Column, at
from admission.api.kinds.descriptor import ObjectKind, Right, Status
from admission.api.kinds.fair_sharing import trees_of
from admission.api.kinds.object_schemas import ReservationStatus
from admission.model.names import listed
from admission.model.quantity import format_amount
from admission.model.queues import ClusterQueue, LocalQueue, Reservation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from admission.api.http.responses import Document
    from admission.api.kinds.descriptor import WarningContext
    from admission.store.store import Store


def _quotas(document: Document, now: float) -> object:
    del now
    quotas = document["spec"]["quotas"]
    return ",".join(f"{each['flavor']}/{each['resource']}={each['amount']}" for each in quotas)


async def _inputs(store: Store, reservations: Sequence[Reservation]) -> list[float]:
    now = store.now()
    return [now for _ in reservations]


def _status(reservation: Reservation, now: float) -> Document:
    spec = reservation.spec
    phase = "Pending" if now < spec.begins else "Active" if now < spec.ends else "Ended"
    start, end = (datetime.fromtimestamp(each, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") for each in (spec.begins, spec.ends))
    return {"phase": "Released" if spec.released_at else phase, "start": start, "end": end}


def _rights(reservation: Reservation) -> list[Right]:
    return [Right("reserve", "clusterqueues", name=reservation.spec.cluster_queue)]


async def _warnings(store: Store, written: Reservation, context: WarningContext) -> list[str]:
    spec, texts = written.spec, []
    queues = {each.name for each in await store.queues.list(ClusterQueue.kind)}
    if spec.cluster_queue not in queues:
        return [f"there is no ClusterQueue {spec.cluster_queue}; nothing is kept until it is created"]
    trees = await trees_of(store)
    others = [
        each
        for each in await store.queues.list(Reservation.kind)
        if isinstance(each, Reservation) and each.name != written.name and not each.spec.released_at
        if each.spec.cluster_queue == spec.cluster_queue
        if each.spec.begins < spec.ends and spec.begins < each.spec.ends
    ]
    for (flavor, resource), amount in spec.amounts.items():
        most = trees.most(spec.cluster_queue, (flavor, resource))
        beside = {each.name: kept for each in others if (kept := each.spec.amounts.get((flavor, resource)))}
        if amount + sum(beside.values()) <= most:
            continue
        with_others = f" beside {listed(sorted(beside), limit=3)}" if beside else ""
        can_use = f"ClusterQueue {spec.cluster_queue} can use at most {format_amount(resource, most)} {resource}"
        texts.append(f"{can_use} of {flavor}; not all of {format_amount(resource, amount)} can be kept{with_others}")
    local_queues = [each for each in await store.queues.list(LocalQueue.kind) if isinstance(each, LocalQueue)]
    names = {each.name for each in local_queues if each.spec.cluster_queue == spec.cluster_queue}
    texts += [
        f"no LocalQueue {name} leads to ClusterQueue {spec.cluster_queue}"
        for name in spec.holders.local_queues
        if name not in names
    ]
    if context.namespaces:
        texts += [f"there is no namespace {name}" for name in spec.holders.namespaces if name not in context.namespaces]
    return texts


RESERVATION: Final = ObjectKind(
    Reservation,
    columns=(
        Column("ClusterQueue", at("spec", "clusterQueue"), "ClusterQueue whose workloads use it"),
        Column("Quota", _quotas, "What is kept"),
        Column("Start", at("status", "start"), "When it begins"),
        Column("End", at("status", "end"), "When it ends"),
        Column("State", at("status", "phase"), "Pending, Active, Ended, or Released: ended early, as it was not used"),
    ),
    selectable_fields={"spec.clusterQueue": lambda reservation: reservation.spec.cluster_queue},
    status_schema=ReservationStatus,
    status=Status(_inputs, _status),
    warnings=_warnings,
    rights=_rights,
)
