"""Adapter for Volcano Job: no suspend field and an immutable template, so its pods are gated, as one group.

Volcano's own commands to abort and resume a Job would count against `maxRetry`. If pods with its annotation
`volcano.sh/controller-out-of-sync` (`pkg/controllers/job/helpers` in Volcano) are deleted, it applies no policy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

import orjson

from admission.kinds import paths
from admission.kinds.base import Object, Outcome
from admission.kinds.declared_pods import LONGEST_NAME, MOST_POD_SETS, POD_SET, POD_SETS
from admission.kinds.grouped import GroupedKind, GroupTemplate
from admission.kinds.grouping import VOLCANO_JOB
from admission.kinds.limits import NamespaceContext
from admission.kinds.requests import pod_requests
from admission.model import names
from admission.model.errors import Misconfigured
from admission.model.quantity import format_amount
from admission.model.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterable

_REPLICAS: Final = ("replicas",)
_DEFAULT: Final = "default"
"""Queue that Volcano uses for a Job that names none."""
_OVER: Final = {"Completed": True, "Failed": False, "Aborted": False, "Terminated": False}
"""Phases in which a Job creates no more pods, and whether it has succeeded."""


@dataclass(frozen=True, slots=True)
class VolcanoJobKind(GroupedKind):
    """Adapter for batch.volcano.sh/v1alpha1 Job (see `Kind`)."""

    group: ClassVar[str] = "batch.volcano.sh"
    versions: ClassVar[tuple[str, ...]] = ("v1alpha1",)
    plural: ClassVar[str] = "jobs"
    kind: ClassVar[str] = "Job"
    named_by: ClassVar[tuple[str, ...]] = (VOLCANO_JOB,)

    reads_queue_field: bool = True
    """Whether a Job without a queue label is queued, by `spec.queue`."""

    @property
    def is_always_queued(self) -> bool:
        """Whether each Job names a queue: then `spec.queue` does, which has a default."""
        return self.reads_queue_field

    def queue_name(self, obj: Object) -> str:
        """Return the queue as for all kinds; without a label, Volcano's `spec.queue` if it is read."""
        if not self.reads_queue_field:
            return GroupedKind.queue_name(self, obj)
        metadata = obj["metadata"]
        if metadata.get("namespace") in self.conventions.excluded_namespaces:
            return ""
        return GroupedKind.queue_name(self, obj) or str(obj["spec"].get("queue") or _DEFAULT)

    def group_templates(self, obj: Object) -> list[GroupTemplate]:
        """Return one template for each task."""
        return [
            GroupTemplate(("spec", "tasks", str(number), "template"), task.get("template") or {})
            for number, task in enumerate(_tasks(obj))
        ]

    def pods_of_a_group(self, obj: Object) -> int:
        """Return the number of all its pods, whatever `minAvailable` is: all are created, and use resources."""
        return sum(_pods(task) for task in _tasks(obj))

    def starts_with_first_pod(self, obj: Object) -> bool:
        """Always False: where tasks depend on others, its pods declare the pod sets."""
        return False

    def pod_set_marks(self, obj: Object) -> list[Object]:
        """Return, where tasks depend on others, a declared pod set per task: its pods may be created later."""
        tasks = _tasks(obj)
        if not any(map(_waits_for_others, tasks)):
            return []
        try:
            pod_sets = [_declared(task, number) for number, task in enumerate(tasks)]
        except Misconfigured:
            return []  # the Job is denied, with its faults as the message
        declaration = orjson.dumps([each for each in pod_sets if each["count"]]).decode()
        return [
            {"labels": {POD_SET: each["name"]}, "annotations": {POD_SETS: declaration}} if each["count"] else {}
            for each in pod_sets
        ]

    def owner_of(self, group: str) -> str:
        """Return the group's name: the object has the same."""
        return group

    def has_group(self, obj: Object, group: str) -> bool:
        """Always True: all pods are in its one group."""
        return True

    def outcome(self, obj: Object) -> Outcome | None:
        """Return the outcome by `status.state.phase`."""
        state: dict[str, Any] = (obj.get("status") or {}).get("state") or {}
        phase = state.get("phase", "")
        if phase not in _OVER:
            return None
        detail = clean(state.get("message") or state.get("reason") or "")
        return Outcome(_OVER[phase], phase, f"The Volcano Job is {phase}{f': {detail}' if detail else ''}.")

    def form_faults(self, obj: Object) -> Iterable[tuple[str, str]]:
        """Return what keeps its pods from being queued as a group."""
        queue = obj["spec"].get("queue")
        if queue and not names.is_dns_subdomain(queue):
            yield "spec.queue", 'is no name: use lower-case letters, digits, "-" and "."'
        tasks = _tasks(obj)
        waiting = [number for number, task in enumerate(tasks) if _waits_for_others(task)]
        if waiting and len(tasks) > MOST_POD_SETS:
            fault = f"no task can wait for others in a Job of more than {MOST_POD_SETS} tasks: each is a pod set then"
            yield f"spec.tasks[{waiting[0]}].dependsOn", fault
        for number, task in enumerate(tasks) if waiting else ():
            if ((task.get("template") or {}).get("spec") or {}).get("runtimeClassName"):
                fault = "must not be set where tasks depend on others: what it adds to pods created later is not known"
                yield f"spec.tasks[{number}].template.spec.runtimeClassName", fault
        for number, task in enumerate(tasks):
            yield from paths.number_fault(task, _REPLICAS, before=("spec", "tasks", str(number)))
        if not 0 < self.pods_of_a_group(obj) < 100_000:
            yield "spec.tasks", "must ask for 1 to 99999 pods: they are queued as a whole"


def _tasks(obj: Object) -> list[Object]:
    tasks: list[Object] = obj["spec"].get("tasks") or []
    return tasks


def _pods(task: Object) -> int:
    return max(paths.number(task, _REPLICAS, 1), 0)


def _waits_for_others(task: Object) -> bool:
    return bool((task.get("dependsOn") or {}).get("name"))


def _declared(task: Object, number: int) -> Object:
    """Return the pod set of a task as in a group's declaration (`declared_pods`)."""
    name, spec = task.get("name") or "", (task.get("template") or {}).get("spec") or {}
    requests = pod_requests(spec, NamespaceContext(), path="")
    tolerations = [
        {key: each[key] for key in ("key", "operator", "value", "effect") if each.get(key)}
        for each in spec.get("tolerations") or ()
    ]
    found = {
        # Volcano accepts longer names than pod sets may have.
        "name": name if names.is_dns_label(name) and len(name) <= LONGEST_NAME else f"task-{number}",
        "count": _pods(task),
        "requests": {resource: format_amount(resource, amount) for resource, amount in requests.items()},
        "nodeSelector": dict(spec.get("nodeSelector") or {}),
        "tolerations": tolerations,
    }
    return {key: value for key, value in found.items() if value or key in ("name", "count", "requests")}
