"""A Volcano Job: no suspend field, and a template that nobody may change; so its pods are gated, as one group.

Volcano itself would count a command that aborts and resumes it against `maxRetry`. Pods that carry its annotation
`volcano.sh/controller-out-of-sync` (`pkg/controllers/job/helpers` there) are deleted without any policy being applied.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

import orjson

from admission.kinds import paths
from admission.kinds.base import Object, Outcome
from admission.kinds.declared_pods import LONGEST_NAME, MOST_POD_SETS, POD_SET, POD_SETS
from admission.kinds.grouped import GroupedKind, GroupTemplate
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
"""The queue that Volcano takes for a Job that names none."""
_OVER: Final = {"Completed": True, "Failed": False, "Aborted": False, "Terminated": False}
"""The phases in which a Job makes no pods any more, and whether it has succeeded."""


@dataclass(frozen=True, slots=True)
class VolcanoJobKind(GroupedKind):
    """The adapter for batch.volcano.sh/v1alpha1 Job (see `Kind`)."""

    group: ClassVar[str] = "batch.volcano.sh"
    versions: ClassVar[tuple[str, ...]] = ("v1alpha1",)
    plural: ClassVar[str] = "jobs"
    kind: ClassVar[str] = "Job"
    is_always_queued: ClassVar[bool] = True

    def queue_name(self, obj: Object) -> str:
        """As for all kinds; without a label, what `spec.queue` says to Volcano."""
        metadata = obj["metadata"]
        if metadata.get("namespace") in self.conventions.excluded_namespaces:
            return ""
        return GroupedKind.queue_name(self, obj) or str(obj["spec"].get("queue") or _DEFAULT)

    def group_templates(self, obj: Object) -> list[GroupTemplate]:
        """One for each task."""
        return [
            GroupTemplate(("spec", "tasks", str(number), "template"), task.get("template") or {})
            for number, task in enumerate(_tasks(obj))
        ]

    def pods_of_a_group(self, obj: Object) -> int:
        """All of its pods, whatever `minAvailable` says: all of them are made, and cost."""
        return sum(_pods(task) for task in _tasks(obj))

    def starts_by_the_first(self, obj: Object) -> bool:
        """It does not: where tasks depend on others, its pods say which ones there will be."""
        return False

    def said_of_pods(self, obj: Object) -> list[Object]:
        """Where tasks depend on others: a pod set for each task, whose pods may come when others run."""
        tasks = _tasks(obj)
        if not any(map(_waits_for_others, tasks)):
            return []
        try:
            pod_sets = [_declared(task, number) for number, task in enumerate(tasks)]
        except Misconfigured:
            return []  # the Job is refused, and told so, by its faults
        declaration = orjson.dumps([each for each in pod_sets if each["count"]]).decode()
        return [
            {"labels": {POD_SET: each["name"]}, "annotations": {POD_SETS: declaration}} if each["count"] else {}
            for each in pod_sets
        ]

    def owner_of(self, group: str) -> str:
        """Of the same name."""
        return group

    def has_group(self, obj: Object, group: str) -> bool:
        """All are in its one group."""
        return True

    def outcome(self, obj: Object) -> Outcome | None:
        """By `status.state.phase`."""
        state: dict[str, Any] = (obj.get("status") or {}).get("state") or {}
        phase = state.get("phase", "")
        if phase not in _OVER:
            return None
        told = clean(state.get("message") or state.get("reason") or "")
        return Outcome(_OVER[phase], phase, f"The Volcano Job is {phase}{f': {told}' if told else ''}.")

    def form_faults(self, obj: Object) -> Iterable[tuple[str, str]]:
        """What is not a whole of pods."""
        queue = obj["spec"].get("queue")
        if queue and not names.is_dns_subdomain(queue):
            yield "spec.queue", 'is no name: use lower-case letters, digits, "-" and "."'
        tasks = _tasks(obj)
        waiting = [number for number, task in enumerate(tasks) if _waits_for_others(task)]
        if waiting and len(tasks) > MOST_POD_SETS:
            told = f"in a Job of more than {MOST_POD_SETS} tasks none can wait for others: their quota is said by task"
            yield f"spec.tasks[{waiting[0]}].dependsOn", told
        for number, task in enumerate(tasks) if waiting else ():
            if ((task.get("template") or {}).get("spec") or {}).get("runtimeClassName"):
                told = "must not be set where tasks depend on others: what it adds to pods that come later is not known"
                yield f"spec.tasks[{number}].template.spec.runtimeClassName", told
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
    """As a group declares the pods that it will have."""
    name, spec = task.get("name") or "", (task.get("template") or {}).get("spec") or {}
    requests = pod_requests(spec, NamespaceContext(), path="")
    tolerations = [
        {key: each[key] for key in ("key", "operator", "value", "effect") if each.get(key)}
        for each in spec.get("tolerations") or ()
    ]
    found = {
        # Volcano lets names be longer than those of pod sets.
        "name": name if names.is_dns_label(name) and len(name) <= LONGEST_NAME else f"task-{number}",
        "count": _pods(task),
        "requests": {resource: format_amount(resource, amount) for resource, amount in requests.items()},
        "nodeSelector": dict(spec.get("nodeSelector") or {}),
        "tolerations": tolerations,
    }
    return {key: value for key, value in found.items() if value or key in ("name", "count", "requests")}
