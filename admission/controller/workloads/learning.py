"""What only pods show: requests beyond their templates, and numbers beyond the declared ones.

An object's operator, or a webhook, may add containers to its pods. Those that Sluice knows are counted from the start
(`Place.with_container`); all others show in the first pods only. Quota is raised to what these request, also beyond
what is free: the pods run. Quota is never lowered by this, and the next admission asks for it.

An AppWrapper of an object that is not watched has the number of pods that it declares. If there are more, because too
few are declared or the object was scaled, it is stopped, and does not queue again before its user says so.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from admission.controller.state.learned import with_more
from admission.kinds import paths
from admission.kinds.common import NOTHING
from admission.model import sentences
from admission.store.records import LEARNED, State

if TYPE_CHECKING:
    from collections.abc import Mapping

    from admission.controller.state.triggers import RequestsMeasured
    from admission.controller.state.workload_change import WorkloadChange
    from admission.controller.workloads.environment import Environment
    from admission.kinds.base import Object
    from admission.model.workload import PodSet, PodSetAssignment


_NOTHING: Final[Mapping[str, int]] = {}


def requests_measured(change: WorkloadChange, event: RequestsMeasured, environment: Environment) -> None:
    """Raise the quota of pod sets whose pods request more than is counted; stop a workload with too many pods."""
    record = change.tracked.record
    if record.state is not State.ADMITTED or record.admission is None:
        return
    held = {each.name: each.count for each in record.admission.pod_sets}
    for name, number in event.pods.items():
        if number > held.get(name, 0):
            because = sentences.more_pods_than_declared(name, number, held.get(name, 0))
            change.deactivate(cause="MorePodsThanDeclared", because=because)
            return
    more = {each.name: _beyond(each, event.requests.get(each.name, _NOTHING)) for each in record.workload.pod_sets}
    for found in more.values():
        for name in [*filter(environment.context.devices.backs, found)]:
            del found[name]  # counted as the devices that DeviceClasses provide for it
    if not any(more.values()):
        return
    workload = replace(
        record.workload, pod_sets=tuple(with_more(each, more[each.name]) for each in record.workload.pod_sets)
    )
    admission = replace(
        record.admission,
        pod_sets=tuple(_raised(each, more.get(each.name, _NOTHING)) for each in record.admission.pod_sets),
    )
    change.resize(admission, workload, why=LEARNED)
    message = sentences.admitted(workload, admission)
    change.tracked.change(message=message)
    change.write(reason=LEARNED, message=sentences.requests_more(workload.pod_sets))


def _beyond(pod_set: PodSet, requests: Mapping[str, int]) -> dict[str, int]:
    """Return by how much one pod requests more than is counted for it."""
    counted = pod_set.requests
    return {name: amount - counted.get(name, 0) for name, amount in requests.items() if amount > counted.get(name, 0)}


def _raised(assigned: PodSetAssignment, more: Mapping[str, int]) -> PodSetAssignment:
    """Return an assignment with more quota for each of its pods, of resources that have a flavor."""
    usage = {
        name: amount + more.get(name, 0) * assigned.count if name in assigned.flavors else amount
        for name, amount in assigned.usage.items()
    }
    return replace(assigned, usage=usage)


_PAUSE: Final = 10.0
"""Seconds from one sample to the next."""
_MOST: Final = 10_000
"""Sets of alike Jobs that are remembered: a user may give each Job labels of its own."""

_Alike: TypeAlias = tuple[str, frozenset[str]]
"""Namespace, and keys of the labels and annotations of the template."""


class Samples:
    """Which Jobs have a pod read after their start, to see whether webhooks add to it: samples, until one shows more.

    Jobs are what most objects are, and nearly none has more in its pods than in its template. Webhooks that add a
    container (a service mesh, an agent for secrets) choose pods by their namespace, and by labels and annotations. So
    Jobs of a namespace whose templates have the same labels and annotations, whatever their values, are alike: one of
    them is read in `_PAUSE`, and each of them once a pod of one requested more than its template.
    """

    def __init__(self) -> None:
        self._next: dict[_Alike, float] = {}
        """When another one is read (Unix time, s)."""

    def takes(self, job: Object, now: float) -> bool:
        """Return whether a pod of this Job, which has just started, is to be read; if so, it is a sample."""
        alike = _alike(job)
        if now < self._next.get(alike, now):
            return False
        if alike not in self._next and len(self._next) >= _MOST:
            self._next.clear()
        if self._next.get(alike) != 0:
            self._next[alike] = now + _PAUSE
        return True

    def requests_more(self, job: Object) -> None:
        """Note that the pods of a Job request more than its template: those of Jobs that are like it may, too."""
        self._next[_alike(job)] = 0


def _alike(job: Object) -> _Alike:
    metadata: Any = paths.at(job, ("spec", "template", "metadata")) or NOTHING
    keys = (key for field in ("labels", "annotations") for key in metadata.get(field) or ())
    return job["metadata"]["namespace"], frozenset(keys)
