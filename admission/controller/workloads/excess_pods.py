"""Whether an owner has as many pods as it holds quota for, so that one more of its pods must not run.

An owner reference proves nothing, as users can write it. Neither is the number of an owner's pods enough where it has
several pod sets: a user could delete small pods, and create large ones in their place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from admission.kinds.children import fitting_pod_sets
from admission.kinds.pod_matching import has_room
from admission.model.errors import Misconfigured

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from admission.controller.state.context import Context
    from admission.controller.workloads.child_requests import Child
    from admission.kinds.base import Kind, Object, PodCount
    from admission.kinds.pod_matching import Fitting
    from admission.model.workload import PodSet

MAX_OWNER_DEPTH: Final = 10
"""Levels of owners above an object that are followed, as in Kueue."""


class ExcessPods:
    """Compares the running pods of an owner with its pod sets."""

    def __init__(self, children: Mapping[str, Child], by_owner: Mapping[str, set[str]], context: Context) -> None:
        """`children`: by uid. `by_owner`: uids of children by the owner's uid."""
        self._children = children
        self._by_owner = by_owner
        self._context = context

    def has(self, child: Child, uid: str, owner_kind: Kind, owner: Object, held: Mapping[str, int]) -> bool:
        """Return whether the owner needs no further pod such as `child`, whose uid is `uid`.

        `held`: number of pods that the owner holds quota for, by pod set. Pods of the owner's children count, such as
        those of the Jobs of a JobSet. If the pod itself runs, only older ones count.
        """
        counts = [
            count._replace(wanted=max(count.wanted, held.get(count.name, 0)), left=None) if count.stays else count
            for count in owner_kind.observe(owner).counts
        ]
        own_age = (*_age(child), uid)
        preceding = [
            other
            for other, each in self._pods_of(child.owner)
            if each.runs and other != uid and (not child.runs or (*_age(each), other) < own_age)
        ]
        if len(preceding) >= sum(count.needed for count in counts):
            return True
        return len(counts) > 1 and not self._fits(child, preceding, owner_kind, owner, counts)

    def _fits(
        self, child: Child, preceding: Sequence[str], owner_kind: Kind, owner: Object, counts: Sequence[PodCount]
    ) -> bool:
        """Return whether a pod has room beside others (their uids) in the pod sets of its owner."""
        try:
            limits = owner_kind.pod_sets(owner, self._context.of_namespace(owner["metadata"]["namespace"]))
        except Misconfigured:  # reported where the owner is handled
            return True
        needed = {limit.name: 0 for limit in limits}
        needed |= {count.name: count.needed for count in counts if count.name in needed}
        metadata = owner["metadata"]
        version = f"{metadata['uid']} {metadata.get('generation')}"
        others = [self._fitting(self._children[each], limits, version) for each in preceding]
        return has_room(self._fitting(child, limits, version), others, needed)

    def _fitting(self, child: Child, limits: Sequence[PodSet], version: str) -> Fitting:
        """Return the pod sets of an owner that a pod fits; all if it fits none, as it may have any pod's place.

        Computed once for each version of the pod and of the owner (`version`).
        """
        key = f"{version} {child.version}"
        if child.fitting is None or child.fitting[0] != key:
            obj = child.object
            context = self._context.of_namespace(obj["metadata"]["namespace"])
            found = fitting_pod_sets(limits, child.kind, obj, context)
            child.fitting = key, found or frozenset(limit.name for limit in limits)
        return child.fitting[1]

    def _pods_of(self, owner: str, *, levels: int = MAX_OWNER_DEPTH) -> Iterator[tuple[str, Child]]:
        """Yield (uid, pod) of the pods of an owner and of its children. `levels`: depth of children to follow."""
        for uid in self._by_owner.get(owner, ()) if levels else ():
            child = self._children[uid]
            if child.kind.ends_by_deletion:
                yield uid, child
            else:
                yield from self._pods_of(uid, levels=levels - 1)


def _age(child: Child) -> tuple[str, bool]:
    """Return the sort key of pods by age; of pods of the same second those that Sluice has ungated come first."""
    return child.created, not child.was_ungated
