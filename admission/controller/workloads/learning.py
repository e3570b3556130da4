"""What only pods show: requests beyond their templates, and numbers beyond the declared ones. Pure functions.

An object's operator, or a webhook, may add containers to its pods. Those that Sluice knows are counted from the start
(`Place.with_container`); all others show in the first pods only. Quota is raised to what these request, also beyond
what is free: the pods run. Quota is never lowered by this, and the next admission asks for it.

An AppWrapper of an object that is not watched has the number of pods that it declares. If there are more, because too
few are declared or the object was scaled, it is stopped, and does not queue again before its user says so.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from admission.controller.state.learned import with_more
from admission.model import sentences
from admission.store.records import LEARNED, State

if TYPE_CHECKING:
    from collections.abc import Mapping

    from admission.controller.state.workload_change import WorkloadChange
    from admission.controller.workloads.environment import Environment
    from admission.controller.workloads.triggers import RequestsMeasured
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
