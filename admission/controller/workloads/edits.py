"""Whether an admitted object was edited by others, so that it no longer matches its admission. Pure functions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from admission.controller.state.context import read
from admission.controller.workloads import scaling
from admission.kinds.abilities import restored
from admission.model.errors import Misconfigured
from admission.store.records import State

if TYPE_CHECKING:
    from admission.controller.state.tracked import Tracked
    from admission.controller.workloads.environment import Environment
    from admission.kinds.base import Kind, Object, Observed
    from admission.kinds.limits import NamespaceContext
    from admission.model.workload import PodSet


def is_edited(tracked: Tracked, seen: Observed, obj: Object, before: Object | None, environment: Environment) -> bool:
    """Return whether an admitted object no longer matches its admission.

    `before`: the previous version of a running object that others may have changed; None: nothing to compare with.
    """
    original, suspension = tracked.record.original or {}, seen.kind.suspension
    if not seen.suspended:
        is_violated = scaling.violates_admission(tracked, seen)
        if before is None or tracked.record.checks_pending:  # with pending checks it is stopped, and not started yet
            return is_violated
        has_start = tracked.runs_elsewhere or suspension is None or suspension.is_as_started(obj, original)
        return is_violated or not has_start or not _is_unchanged(seen.kind, before, obj, original, environment)
    without = restored(seen.kind, obj, original)
    # An object that still carries its start is resumed with the number of pods that it has.
    if without is not obj and scaling.exceeds(tracked, seen):
        return True
    now = read(environment.kinds, seen, without, environment.context, former=tracked.record.workload)
    is_complete = without is obj or suspension is None or suspension.is_as_started(obj, original)
    return (
        now.fault != ""
        or not is_complete
        or not _are_as_admitted(tracked.record.workload.pod_sets, now.workload.pod_sets)
    )


def _is_unchanged(kind: Kind, before: Object, obj: Object, original: Object, environment: Environment) -> bool:
    """Return whether a running object still has its pod sets.

    Both versions are read with the present limits of the namespace: a changed LimitRange must not stop running objects.
    """
    context = environment.context.of_namespace(obj["metadata"]["namespace"])
    had, has = (_pods(kind, each, original, context) for each in (before, obj))
    if has is None:  # pod sets read from a rendered child: it may be about to be recreated
        return had is None or kind.rendered_by is not None
    # A pod that was just ungated has got node selector, tolerations and affinity by its start, and cannot be restored.
    started = kind.ends_by_deletion and kind.observe(before).suspended

    def is_same(old: PodSet, new: PodSet) -> bool:
        if started:
            new = replace(new, node_selector=old.node_selector, tolerations=old.tolerations, affinity=old.affinity)
        return replace(new, count=old.count, min_count=old.min_count) == old

    return had is None or (len(had) == len(has) and all(map(is_same, had, has)))


def _pods(kind: Kind, obj: Object, original: Object, context: NamespaceContext) -> tuple[PodSet, ...] | None:
    """Return the object's pod sets without what its start injected; None: they cannot be read."""
    try:
        return kind.pod_sets(restored(kind, obj, original), context)
    except Misconfigured:
        return None


def may_be_edited(tracked: Tracked, seen: Observed) -> bool:
    """Return whether a running object has a generation not caused by Sluice, or is observed for the first time."""
    return (
        tracked.record.state is State.ADMITTED
        and not seen.suspended
        and seen.generation != tracked.in_sync
        and (tracked.seen is None or seen.generation != tracked.seen.generation)
    )


def _are_as_admitted(admitted: tuple[PodSet, ...], now: tuple[PodSet, ...]) -> bool:
    """Return whether pod sets equal the admitted ones, except that they may have fewer pods."""
    return len(admitted) == len(now) and all(
        replace(new, count=old.count, min_count=old.min_count) == old and new.count <= old.count
        for old, new in zip(admitted, now, strict=True)
    )
