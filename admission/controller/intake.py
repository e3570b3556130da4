"""Reads a workload off a Kubernetes object: its pod sets, priority and queue, or why it could never start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from admission.model.errors import Misconfigured
from admission.model.workload import Workload

if TYPE_CHECKING:
    from admission.controller.context import Context
    from admission.kinds.base import Kind, Object, Observed
    from admission.model.workload import PodSet


@dataclass(frozen=True, slots=True)
class Reading:
    """A workload as its object asks for it; with a `fault` it must not be admitted."""

    workload: Workload
    fault: str = ""


def read(kind: Kind, seen: Observed, obj: Object, context: Context) -> Reading:
    """The workload of an object that names a queue."""
    pod_sets: tuple[PodSet, ...] = ()
    priority = 0
    fault = ""
    try:
        pod_sets = kind.pod_sets(obj, context.of_namespace(seen.namespace))
        priority = context.priority(workload_class=seen.priority_class, pod_class=seen.pod_priority_class)
    except Misconfigured as error:
        fault = str(error)
    workload = Workload(
        uid=seen.uid,
        namespace=seen.namespace,
        name=seen.name,
        queue=seen.queue,
        priority=priority,
        created=seen.created,
        pod_sets=pod_sets,
        kind=kind.kind,
        priority_class=seen.priority_class,
        user=seen.user,
    )
    return Reading(workload, fault)
