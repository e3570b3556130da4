"""Limits of what each user may have admitted at the same time: workloads, and the resources that their pods request.

A user is who submitted the workload, as the webhook has recorded it. Workloads without a recorded user count together,
as those of one more user, so that nobody escapes a limit by them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from admission.engine.policies.contract import AdmissionPolicy, Refusal
from admission.engine.vocabulary import USER_LIMIT_REACHED
from admission.model.quantity import format_amount

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from admission.engine.clusterqueue import Held
    from admission.engine.policies.contract import EngineView
    from admission.engine.tree import FlavorResource
    from admission.model.workload import Workload

_EVERYWHERE: Final = ""


@dataclass(frozen=True, slots=True)
class UserLimit:
    """What each user may have admitted at the same time."""

    cluster_queue: str = _EVERYWHERE
    """The ClusterQueue in which it counts; empty: all of them together."""
    users: tuple[str, ...] = ()
    """The users for whom it holds, instead of the one for everybody; empty: everybody."""
    workloads: int | None = None
    """Workloads that hold quota; None: no limit."""
    resources: Mapping[str, int] = field(default_factory=dict)
    """Resource to the amount that pods may request, in the model's units; no limit of others."""


@dataclass(frozen=True, slots=True)
class UserLimits:
    """Configuration: limits, of which at most one of a ClusterQueue, or of all together, names a user."""

    limits: tuple[UserLimit, ...]

    def start(self, view: EngineView) -> UsageOfUsers:
        """Create the policy's state, with nothing admitted."""
        del view
        return UsageOfUsers(self.limits)


class _Charge(NamedTuple):
    user: str
    cluster_queue: str
    requests: Mapping[str, int]


class UsageOfUsers(AdmissionPolicy):
    """The policy: refuses workloads with which their user would exceed a limit."""

    def __init__(self, limits: tuple[UserLimit, ...]) -> None:
        self._of_everybody = {limit.cluster_queue: limit for limit in limits if not limit.users}
        self._of_user = {(limit.cluster_queue, user): limit for limit in limits for user in limit.users}
        self._charges: dict[str, _Charge] = {}
        """By uid of the workload."""
        self._workloads: Counter[tuple[str, str]] = Counter()
        self._used: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        """Requests by resource; both by user and ClusterQueue, which is empty for all of them together."""

    def filter(
        self,
        workload: Workload,
        cluster_queue: str,
        usage: Mapping[FlavorResource, int],
        victims: Collection[Held] = (),
    ) -> Refusal | None:
        """Refuse a workload that does not fit with what its user has admitted; a slice takes over what it replaces."""
        del usage, victims  # limits are about the requests of pods that are admitted
        for scope in (_EVERYWHERE, cluster_queue):
            limit = self._of_user.get((scope, workload.user)) or self._of_everybody.get(scope)
            if limit is not None and (excess := self._excess(limit, workload)):
                return Refusal(USER_LIMIT_REACHED, excess)
        return None

    def _excess(self, limit: UserLimit, workload: Workload) -> str:
        """Return what is more than the limit, with the numbers; empty: the workload fits."""
        account = workload.user, limit.cluster_queue
        replaced = self._charges.get(workload.replaces) if workload.replaces else None
        if replaced is not None and limit.cluster_queue not in (_EVERYWHERE, replaced.cluster_queue):
            replaced = None
        user = f"user {workload.user}" if workload.user else "workloads without a recorded user"
        where = f"in ClusterQueue {limit.cluster_queue}" if limit.cluster_queue else "in all ClusterQueues"
        if limit.workloads is not None:
            running = self._workloads[account] - (replaced is not None)
            if running >= limit.workloads:
                return f"{user}: {running} of at most {limit.workloads} workloads are admitted {where}"
        if not limit.resources:
            return ""
        requests = _requests(workload, {})
        for resource, most in limit.resources.items():
            needed = requests.get(resource, 0)
            used = self._used[account][resource] if account in self._used else 0
            if replaced is not None:
                used -= replaced.requests.get(resource, 0)
            if needed and used + needed > most:
                in_use, limited, this = (format_amount(resource, amount) for amount in (used, most, needed))
                return f"{user}: {in_use} of at most {limited} {resource} are in use {where}, this needs {this}"
        return ""

    def charge(self, held: Held, *, restored: bool) -> None:
        """Count the workload and the requests of its admitted pods."""
        del restored
        workload, admission = held.workload, held.admission
        admitted = {one.name: one.count for one in admission.pod_sets}
        charge = _Charge(workload.user, admission.cluster_queue, _requests(workload, admitted))
        self._charges[workload.uid] = charge
        for account in ((charge.user, _EVERYWHERE), (charge.user, charge.cluster_queue)):
            self._workloads[account] += 1
            self._used[account].update(charge.requests)

    def release(self, held: Held) -> None:
        """Stop counting the workload."""
        charge = self._charges.pop(held.workload.uid)
        for account in ((charge.user, _EVERYWHERE), (charge.user, charge.cluster_queue)):
            self._workloads[account] -= 1
            if not self._workloads[account]:
                del self._workloads[account], self._used[account]
            else:
                self._used[account].subtract(charge.requests)


def _requests(workload: Workload, admitted: Mapping[str, int]) -> Counter[str]:
    """Return what all pods request, by resource; `admitted`: numbers of pods by pod set, where they may be fewer."""
    total: Counter[str] = Counter()
    for pod_set in workload.pod_sets:
        count = admitted.get(pod_set.name, pod_set.count)
        total.update(pod_set.total(count))
    return total
