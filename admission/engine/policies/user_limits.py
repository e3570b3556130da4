"""Limits of people: workloads that one user may have running and waiting, and the resources that their pods request.

A user is who submitted the workload, as the webhook has recorded it, and has the groups that were recorded with it.
Workloads without a recorded user count together, as those of one more user, so that nobody escapes a limit by them, and
so do those that service accounts have submitted in a namespace.

Of the limits of one scope (a ClusterQueue, or all together), those that name the user hold; if there is none, those
that name one of the groups; if there is none, those for everybody. If several hold, it is enough that one permits the
workload. Limits that people have `together` hold beside them, and all of them must permit it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from admission.engine.events import QueueObjectChanged, QueueObjectDeleted
from admission.engine.policies.contract import AdmissionPolicy, Refusal
from admission.engine.vocabulary import USER_LIMIT_REACHED
from admission.model import sentences
from admission.model.queues import UserLimit
from admission.model.workload import person_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

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
    accounts: tuple[_Account, ...]


class _Waiting(NamedTuple):
    workload: Workload
    cluster_queue: str
    rank: Rank
    accounts: tuple[_Account, ...]


class _Account:
    """What one user has, or what those have that share a limit, in one scope."""

    __slots__ = ("key", "pending", "requests", "running")

    def __init__(self, key: tuple[str, str, str]) -> None:
        self.key = key
        """ClusterQueue or `_EVERYWHERE`, user, and name of the limit if it is shared (without a user)."""
        self.running = 0
        self.requests: dict[str, int] = {}
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
        self._pending: dict[str, _Waiting] = {}
        """Both by uid."""
        self._accounts: dict[tuple[str, str, str], _Account] = {}
        """By their keys, those that count anything."""

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
            uid, accounts = charge.workload.uid, self._of(charge.workload, charge.cluster_queue)
            self._charges[uid] = charge._replace(accounts=accounts)
            self._count(self._charges[uid], 1)
        for one in pending:
            self._wait(one._replace(accounts=self._of(one.workload, one.cluster_queue)))

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

    def _of(self, workload: Workload, cluster_queue: str) -> tuple[_Account, ...]:
        """Return the accounts that count a workload in a ClusterQueue."""
        person = person_of(workload.user, workload.namespace)
        keys = [(_EVERYWHERE, person, ""), (cluster_queue, person, "")]
        for scope in (_EVERYWHERE, cluster_queue) if self._shared else ():
            keys += [(scope, "", limit.name) for limit in self._shared.get(scope, ()) if limit.names(workload)]
        return tuple(self._accounts.get(key) or self._accounts.setdefault(key, _Account(key)) for key in keys)

    def arrive(self, item: Item) -> None:
        """Count a pending workload."""
        accounts = self._of(item.workload, item.cluster_queue)
        self._wait(_Waiting(item.workload, item.cluster_queue, item.rank, accounts))

    def _wait(self, one: _Waiting) -> None:
        self._pending[one.workload.uid] = one
        for account in one.accounts:
            insort(account.pending, one.rank)

    def leave(self, uid: str) -> None:
        """Stop counting a pending workload."""
        if (known := self._pending.pop(uid, None)) is None:
            return
        for account in known.accounts:
            del account.pending[bisect_left(account.pending, known.rank)]
        self._forget_empty(known.accounts)

    def charge(self, held: Held, *, restored: bool) -> None:
        """Count the workload and the requests of its admitted pods."""
        del restored
        workload, queue = held.workload, held.admission.cluster_queue
        known = self._pending.get(workload.uid)
        accounts = self._of(workload, queue) if known is None or known.cluster_queue != queue else known.accounts
        admitted = {one.name: one.count for one in held.admission.pod_sets}
        charge = self._charges[workload.uid] = _Charge(workload, queue, _requests(workload, admitted), accounts)
        self._count(charge, 1)
        self.leave(workload.uid)  # within a cycle it is both, pending and admitted

    def release(self, held: Held) -> None:
        """Stop counting the workload."""
        charge = self._charges.pop(held.workload.uid)
        self._count(charge, -1)
        self._forget_empty(charge.accounts)

    def _count(self, charge: _Charge, sign: int) -> None:
        for account in charge.accounts:
            account.running += sign
            requests = account.requests
            for resource, amount in charge.requests.items():
                requests[resource] = requests.get(resource, 0) + sign * amount

    def _forget_empty(self, accounts: tuple[_Account, ...]) -> None:
        for account in accounts:
            if not account.running and not account.pending:
                self._accounts.pop(account.key, None)

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
                excess = self._excess(limit, workload, person_of(workload.user, workload.namespace))
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
        key = (scope, "", limit.name) if user is None else (scope, user, "")
        account = self._accounts.get(key) or _Account(key)
        replaced = self._charges.get(workload.replaces) if workload.replaces else None
        if replaced is not None and account not in replaced.accounts:
            replaced = None  # of somebody else, or elsewhere
        whose = sentences.whose_limit(user, limit.name)
        running = account.running - (replaced is not None)
        if spec.running is not None and running >= spec.running:
            return sentences.limit_reached(whose, running, spec.running, "admitted", scope)
        if replaced is None and (known := self._pending.get(workload.uid)) is not None:
            before = bisect_left(account.pending, known.rank)
            if spec.pending is not None and before >= spec.pending:
                return sentences.limit_reached(whose, spec.pending, spec.pending, "pending", scope)
            if spec.submitted is not None and before + running >= spec.submitted:
                return sentences.limit_reached(whose, spec.submitted, spec.submitted, "submitted", scope)
        if not limit.amounts:
            return ""
        requests = _requests(workload, {})
        for resource, most in limit.amounts.items():
            needed, used = requests.get(resource, 0), account.requests.get(resource, 0)
            if replaced is not None:
                used -= replaced.requests.get(resource, 0)
            if needed and used + needed > most:
                return sentences.in_use(whose, resource, (used, most, needed), scope)
        return ""


def _requests(workload: Workload, admitted: Mapping[str, int]) -> dict[str, int]:
    """Return what all pods request, by resource; `admitted`: numbers of pods by pod set, where they may be fewer."""
    total: dict[str, int] = {}
    for pod_set in workload.pod_sets:
        for resource, amount in pod_set.total(admitted.get(pod_set.name, pod_set.count)).items():
            total[resource] = total.get(resource, 0) + amount
    return total
