"""Messages for users about objects that are queued as part of another one: children of an owner, pods of a group.

See `admission.model.sentences`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from admission.model.names import listed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_NAMED: Final = 3
"""Queues, and pods of each, that one message lists at most."""

GROUP_OF_SEVERAL_TOTALS: Final = "metadata.annotations: the pods of a group must all name the same total count"
GROUP_OF_SEVERAL_AFFINITIES: Final = (
    "metadata.annotations[sluice.dev/cluster-affinity]: the pods of a group that have it must all have the same, as "
    "they run in one cluster"
)
GROUP_OF_SEVERAL_DECLARATIONS: Final = (
    "metadata.annotations[sluice.dev/pod-group-pod-sets]: the pods of a group that say which pods it will have must "
    "all say the same"
)
GROUP_UNDECLARED: Final = (
    "It starts as a whole, but none of its pods has the annotation sluice.dev/pod-group-pod-sets, which says which "
    "pods it will have: set it in the pod template, or on the first pod."
)
MORE_PODS_THAN_OWNER: Final = "Its owner runs more pods than it has quota for: the newest are deleted."
PODS_BEYOND_GROUP: Final = "Its group already has all the pods that it was admitted with: the newest are deleted."
POD_WITHOUT_OWNER: Final = "Its owner may not run now, nor may its pods: this one was deleted."
STOPPED_WITH_OWNER: Final = (
    "It was suspended, because it is part of an object that is queued as a whole: it starts together with that."
)


def group_of_several_queues(pods: Mapping[str, Sequence[str]]) -> str:
    """The pods of a group are for several queues; `pods`: names by queue, which is empty for pods without one."""
    parts = [f"{listed(names, limit=_NAMED)} for {queue or 'no queue'}" for queue, names in pods.items()]
    return (
        "metadata.labels: the pods of a group must all be for the same queue: delete those that are for another one "
        f"({'; '.join(parts[:_NAMED])}{'; ...' if len(parts) > _NAMED else ''})"
    )


def more_than_owner_holds(owner: str) -> str:
    """A child without a queue label was edited to have more pods than its owner, such as `JobSet train`, holds."""
    return (
        f"{owner} has quota for fewer pods: their number in the object that it created was set back. To ask for more, "
        f"suspend {owner} and change the number there."
    )


def part_of(owner: str) -> str:
    """It is queued only as part of its owner, such as `JobSet train`."""
    return f"It is part of {owner}, which is queued as a whole: it does not queue by itself."


def starts_with_owner(kind: str, name: str) -> str:
    """A child does not run because its owner, such as `JobSet`, `train`, is pending or being stopped."""
    return (
        f"It starts together with {kind} {name}, which it is part of. "
        f"`kubectl describe {kind.lower()} {name}` shows what that waits for."
    )


def older_than_owner(owner: str) -> str:
    """A child does not run because its owner's controller has not yet applied the owner's new template to it."""
    return f"It was created from an older template of {owner}: it starts when its controller has updated it."


def no_room_beside(owner: str) -> str:
    """A pod keeps its scheduling gate because its running owner has quota for no more pods."""
    return f"{owner} already runs all the pods that it has quota for: this one starts when one of them has ended."


def owner_is_gone(owner: str) -> str:
    """A child stays stopped, as its owner was deleted, until Kubernetes deletes it."""
    return f"{owner}, which it was part of, was deleted: it does not start any more, and Kubernetes deletes it."


def owner_has_ended(owner: str) -> str:
    """A child stays stopped because its owner has finished."""
    return f"{owner}, which it is part of, has finished: it does not start any more."


def group_incomplete(there: int, total: int) -> str:
    """A group of pods is not queued yet because pods are missing."""
    return f"It starts as a whole, and {there} of its {total} pods are there."


def group_without_object(kind: str, name: str, api_group: str) -> str:
    """A group of another system is not queued yet: its `PodGroup`, `pg-1` of `scheduling.x-k8s.io`, does not exist."""
    return f"It starts as a whole, but {kind} {name} of {api_group}, which gives its number of pods, does not exist."


def groups_incomplete(composite: str, there: int, needed: int) -> str:
    """A CompositePodGroup is not queued yet because child groups are missing."""
    return f"It starts as a whole, and {there} of the {needed} groups of CompositePodGroup {composite} are there."


def group_without_parent(composite: str) -> str:
    """A group is not queued yet because its parent does not exist."""
    return f"It starts as a whole, but its parent CompositePodGroup {composite} does not exist."


def groups_of_one_name(name: str) -> str:
    """A PodGroup and a CompositePodGroup of the same name are not queued, as the PodGroup is not in the other."""
    return f"It starts as a whole, but PodGroup {name} and CompositePodGroup {name} must not have the same name."


def group_too_deep(kind: str, name: str, levels: int) -> str:
    """A group is never queued: the parents of `PodGroup`, `workers` are too many, or a cycle."""
    return (
        f"It starts as a whole, but {kind} {name} has more than {levels - 1} CompositePodGroups above it, or these "
        f"form a cycle: Kubernetes schedules trees of at most {levels} levels."
    )


def starts_after(composite: str, needed: int) -> str:
    """A child of a CompositePodGroup is not queued yet, because the children that start together come first."""
    groups = "oldest group starts" if needed == 1 else f"{needed} oldest groups start together"
    return f"It is queued after CompositePodGroup {composite} has started, whose {groups} first."


def group_without_number(annotation: str) -> str:
    """A group of another system is not queued yet, as no pod has the annotation with its size."""
    return f"It starts as a whole, but none of its pods has the annotation {annotation}, which gives their number."


def pod_sets_unknown(missing: Sequence[str]) -> str:
    """A group that declares pod sets is not queued yet, as the requests of some pod sets are unknown."""
    named = ", ".join(missing)
    return f"It starts as a whole, but the requests of {named} are unknown: declare them, or create one pod of each."


def declarer_ended(pod: str, phase: str) -> str:
    """A group has finished whose pod sets were declared by one of its pods."""
    return f"Pod {pod}, which declares the group, has {phase.lower()}, and no other pod of it is left."


def waits_beside(group: str, count: int) -> str:
    """A pod of a scale-up keeps its scheduling gate until there is quota for it."""
    return f"{group} has quota for {count} of its pods, which run on: this one starts when there is quota for more."


def beyond_group(group: str, count: int) -> str:
    """A pod of an admitted group keeps its scheduling gate. `count`: pods of its form that the group has quota for."""
    if not count:
        return (
            f"PodGroup {group} was admitted without pods like this one: create it like the others, or when the group "
            "has finished."
        )
    return (
        f"PodGroup {group} already has all the pods like this one that it has quota for ({count}): it starts when one "
        "of them is gone. For more, create the group anew with a larger total count."
    )


def native_gang_too_large(groups: int, most: int) -> str:
    """An admitted RayCluster requests gang scheduling by Kubernetes, and has more pod groups than that supports."""
    return (
        f"It asks for gang scheduling by Kubernetes, and has {groups} groups of pods, more than the {most} that a "
        "Workload of scheduling.k8s.io can have: its pods may not all be scheduled together, although it has quota "
        "for them."
    )


def no_scale_up(path: str, kind: str) -> str:
    """An AppWrapper is created with a RayCluster, RayJob or RayService (`kind`) at `path` that has an autoscaler."""
    return (
        f"{path}: the autoscaler of a {kind} in an AppWrapper gets no quota for more workers than it starts with: "
        f"write those that it needs into replicas, or create the {kind} without an AppWrapper"
    )


INTERACTIVE_RAY_JOB = (
    "It is in InteractiveMode: KubeRay does not suspend it before spec.jobId names a job. Until then it cannot be "
    "evicted, and holds its quota unless it is deleted."
)
"""An admitted RayJob whose job is submitted by its user."""


def group_ended(succeeded: int, total: int) -> str:
    """A group of pods has finished; Kueue's message."""
    return f"Pods succeeded: {succeeded}/{total}."
