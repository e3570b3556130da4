"""Limits of people: workloads that one user may have running and waiting, and the resources that their pods request.

A user is who submitted the workload, as the webhook has recorded it, and has the groups that were recorded with it.
Workloads without a recorded user count together, as those of one more user, so that nobody escapes a limit by them.

Of the limits of one scope (a ClusterQueue, or all together), those that name the user hold; if there is none, those
that name one of the groups; if there is none, those for everybody. If several hold, it is enough that one permits the
workload. Limits that people have `together` hold beside them, and all of them must permit it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from admission.engine.events import QueueObjectChanged, QueueObjectDeleted
from admission.engine.policies.contract import AdmissionPolicy, Refusal
from admission.engine.vocabulary import USER_LIMIT_REACHED
from admission.model import sentences
from admission.model.queues import UserLimit

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from admission.engine.clusterqueue import Held
    from admission.engine.pending_item import Item, Rank
    from admission.engine.policies.contract import EngineView, PolicyEvent
    from admission.engine.tree import FlavorResource
    from admission.model.user_limits import UserLimitSpec
    from admission.model.workload import Workload

_EVERYWHERE: Final = ""


@dataclass(frozen=True, slots=True)
class UserLimits:
    """Configuration: none, as UserLimits are queue objects. Without one it is idle."""

    def start(self, view: EngineView) -> UsageOfUsers:
        """Create the policy's state, with nothing admitted."""
        del view
        return UsageOfUsers()


@dataclass(frozen=True, slots=True)
class _Limit:
    """A UserLimit, with its amounts in the model's units."""

    name: str
    spec: UserLimitSpec
    amounts: Mapping[str, int]
    users: frozenset[str]
    groups: frozenset[str]

    def names(self, workload: Workload) -> bool:
        """Whether it is for the workload's user, as all are that name nobody."""
        if not self.users and not self.groups:
            return True
        return workload.user in self.users or not self.groups.isdisjoint(workload.groups)


class _Charge(NamedTuple):
    workload: Workload
    cluster_queue: str
    requests: Mapping[str, int]


class _Account:
    """What one user has, or what those have that share a limit, in one scope."""

    __slots__ = ("pending", "requests", "running")

    def __init__(self) -> None:
        self.running = 0
        self.requests: Counter[str] = Counter()
        self.pending: list[Rank] = []
        """Ranks of pending workloads, in the order of their queue."""


class UsageOfUsers(AdmissionPolicy):
    """The policy: refuses workloads with which their user would exceed a limit."""

    def __init__(self) -> None:
        self.idle = True
        self._limits: dict[str, _Limit] = {}
        self._of_users: dict[tuple[str, str], list[_Limit]] = {}
        """By ClusterQueue and user; this and the next ones: without those that are shared."""
        self._of_groups: dict[tuple[str, str], list[_Limit]] = {}
        self._of_everybody: dict[str, list[_Limit]] = {}
        self._shared: dict[str, list[_Limit]] = {}
        """By ClusterQueue."""
        self._charges: dict[str, _Charge] = {}
        self._pending: dict[str, tuple[Workload, str, Rank]] = {}
        """Both by uid; of a pending workload with its ClusterQueue."""
        self._accounts: defaultdict[tuple[str, str, str], _Account] = defaultdict(_Account)
        """By ClusterQueue or `_EVERYWHERE`, user, and name of a limit that is shared (without a user)."""

    # --- limits

    def observe(self, event: PolicyEvent | QueueObjectChanged | QueueObjectDeleted) -> None:
        """Note a changed UserLimit."""
        if isinstance(event, QueueObjectChanged):
            if not isinstance(event.object, UserLimit):
                return
            name, spec = event.object.name, event.object.spec
            self._limits[name] = _Limit(name, spec, spec.amounts(), frozenset(spec.users), frozenset(spec.groups))
        elif not isinstance(event, QueueObjectDeleted) or event.kind != UserLimit.kind:
            return
        else:
            self._limits.pop(event.name, None)
        self._index()
        self.idle = not self._limits
        charges, pending = list(self._charges.values()), list(self._pending.values())
        self._accounts.clear()
        if self.idle:
            self._charges.clear()
            self._pending.clear()
            return
        for charge in charges:
            self._count(charge, 1)
        for workload, cluster_queue, rank in pending:
            for account in self._of(workload, cluster_queue):
                insort(account.pending, rank)

    def _index(self) -> None:
        for index in (self._of_users, self._of_groups, self._of_everybody, self._shared):
            index.clear()
        for _, limit in sorted(self._limits.items()):
            queue = limit.spec.cluster_queue
            if limit.spec.together:
                self._shared.setdefault(queue, []).append(limit)
                continue
            for user in limit.users:
                self._of_users.setdefault((queue, user), []).append(limit)
            for group in limit.groups:
                self._of_groups.setdefault((queue, group), []).append(limit)
            if not limit.users and not limit.groups:
                self._of_everybody.setdefault(queue, []).append(limit)

    def _own(self, workload: Workload, scope: str) -> list[_Limit]:
        """Return the limits in a scope that the workload's user has alone."""
        if found := self._of_users.get((scope, workload.user)):
            return found
        if self._of_groups and workload.groups:
            of_groups = [each for group in workload.groups for each in self._of_groups.get((scope, group), ())]
            if of_groups:
                return of_groups
        return self._of_everybody.get(scope, [])

    # --- accounts

    def _of(self, workload: Workload, cluster_queue: str) -> Iterator[_Account]:
        """Yield the accounts that count a workload in a ClusterQueue."""
        accounts = self._accounts
        for scope in (_EVERYWHERE, cluster_queue):
            yield accounts[scope, workload.user, ""]
            for limit in self._shared.get(scope, ()):
                if limit.names(workload):
                    yield accounts[scope, "", limit.name]

    def arrive(self, item: Item) -> None:
        """Count a pending workload."""
        self._pending[item.uid] = item.workload, item.cluster_queue, item.rank
        for account in self._of(item.workload, item.cluster_queue):
            insort(account.pending, item.rank)

    def leave(self, uid: str) -> None:
        """Stop counting a pending workload."""
        if (known := self._pending.pop(uid, None)) is None:
            return
        workload, cluster_queue, rank = known
        for account in self._of(workload, cluster_queue):
            del account.pending[bisect_left(account.pending, rank)]
        self._forget_empty(workload, cluster_queue)

    def charge(self, held: Held, *, restored: bool) -> None:
        """Count the workload and the requests of its admitted pods."""
        del restored
        self.leave(held.workload.uid)  # within a cycle it is both, pending and admitted
        admitted = {one.name: one.count for one in held.admission.pod_sets}
        charge = _Charge(held.workload, held.admission.cluster_queue, _requests(held.workload, admitted))
        self._charges[held.workload.uid] = charge
        self._count(charge, 1)

    def release(self, held: Held) -> None:
        """Stop counting the workload."""
        charge = self._charges.pop(held.workload.uid)
        self._count(charge, -1)
        self._forget_empty(charge.workload, charge.cluster_queue)

    def _count(self, charge: _Charge, sign: int) -> None:
        for account in self._of(charge.workload, charge.cluster_queue):
            account.running += sign
            for resource, amount in charge.requests.items():
                account.requests[resource] += sign * amount

    def _forget_empty(self, workload: Workload, cluster_queue: str) -> None:
        for scope in (_EVERYWHERE, cluster_queue):
            account = self._accounts.get((scope, workload.user, ""))
            if account is not None and not account.running and not account.pending:
                del self._accounts[scope, workload.user, ""]

    # --- questions

    def filter(
        self,
        workload: Workload,
        cluster_queue: str,
        usage: Mapping[FlavorResource, int],
        victims: Collection[Held] = (),
    ) -> Refusal | None:
        """Refuse a workload that does not fit with what its user has; a slice takes over what it replaces."""
        del usage, victims  # limits are about the requests of pods that are admitted
        for scope in (_EVERYWHERE, cluster_queue):
            found = ""
            for limit in self._own(workload, scope):
                excess = self._excess(limit, workload, workload.user)
                if not excess:
                    found = ""
                    break
                found = found or excess
            if found:
                return Refusal(USER_LIMIT_REACHED, found)
            for limit in self._shared.get(scope, ()):
                if limit.names(workload) and (found := self._excess(limit, workload, None)):
                    return Refusal(USER_LIMIT_REACHED, found)
        return None

    def _excess(self, limit: _Limit, workload: Workload, user: str | None) -> str:
        """Return what is more than the limit, with the numbers; empty: it fits. `user`: None: all share it."""
        spec = limit.spec
        scope = spec.cluster_queue
        account = self._accounts.get((scope, "", limit.name) if user is None else (scope, user, "")) or _Account()
        replaced = self._replaced(workload, scope)
        whose = sentences.whose_limit(user, limit.name)
        running = account.running - (replaced is not None)
        if spec.running is not None and running >= spec.running:
            return sentences.limit_reached(whose, running, spec.running, "admitted", scope)
        if replaced is None and (known := self._pending.get(workload.uid)) is not None:
            before = bisect_left(account.pending, known[2])
            if spec.pending is not None and before >= spec.pending:
                return sentences.limit_reached(whose, spec.pending, spec.pending, "pending", scope)
            if spec.submitted is not None and before + running >= spec.submitted:
                return sentences.limit_reached(whose, spec.submitted, spec.submitted, "submitted", scope)
        if not limit.amounts:
            return ""
        requests = _requests(workload, {})
        for resource, most in limit.amounts.items():
            needed, used = requests.get(resource, 0), account.requests[resource]
            if replaced is not None:
                used -= replaced.requests.get(resource, 0)
            if needed and used + needed > most:
                return sentences.in_use(whose, resource, (used, most, needed), scope)
        return ""

    def _replaced(self, workload: Workload, scope: str) -> _Charge | None:
        """Return what the workload replaces, if that counts in this scope."""
        replaced = self._charges.get(workload.replaces) if workload.replaces else None
        return replaced if replaced is not None and scope in (_EVERYWHERE, replaced.cluster_queue) else None


def _requests(workload: Workload, admitted: Mapping[str, int]) -> Counter[str]:
    """Return what all pods request, by resource; `admitted`: numbers of pods by pod set, where they may be fewer."""
    total: Counter[str] = Counter()
    for pod_set in workload.pod_sets:
        count = admitted.get(pod_set.name, pod_set.count)
        total.update(pod_set.total(count))
    return total
