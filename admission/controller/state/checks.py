"""Admission checks: which ones a workload has to pass, and what their answers mean. Pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from admission.model.queues import AdmissionCheckRule
    from admission.model.workload import Admission
    from admission.store.records import CheckRecord


def required(rules: Iterable[AdmissionCheckRule], admission: Admission) -> tuple[str, ...]:
    """The names of the checks that an admission needs: those for all flavors, and those for one that it got."""
    flavors = {flavor for pod_set in admission.pod_sets for flavor in pod_set.flavors.values()}
    needed = {rule.name for rule in rules if not rule.on_flavors or not flavors.isdisjoint(rule.on_flavors)}
    return tuple(sorted(needed))


def in_state(checks: Iterable[CheckRecord], state: str) -> list[CheckRecord]:
    """Those that say this."""
    return [check for check in checks if check.state == state]


def all_ready(checks: Iterable[CheckRecord]) -> bool:
    """Whether nothing is left to wait for."""
    return all(check.state == "Ready" for check in checks)


def not_before(retrying: Iterable[CheckRecord]) -> float | None:
    """Until when the checks that say Retry want to be left alone; None: they do not say."""
    times = [check.at + check.requeue_after_seconds for check in retrying if check.requeue_after_seconds is not None]
    return max(times, default=None)


def said(checks: Iterable[CheckRecord]) -> list[tuple[str, str]]:
    """(name, message) of each."""
    return [(check.name, check.message) for check in checks]
