"""Storm with policies: Budgets, limits of users, Reservations and calendars, which admins edit the whole time.

The checks compute from the ledger's rows and the versions of objects what was permitted at each commit, without code of
the policies. The order is that of revisions, and a row says up to which revision its leader knew the objects.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import Counter
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from zlib import crc32

from sqlalchemy import select
from sqlalchemy.sql.functions import count

from admission.cli.demo.children import alongside
from admission.cli.demo.live_pods import LivePods, is_gated
from admission.cli.demo.plan import FLAVOR, queue_object
from admission.cluster.client import Client
from admission.cluster.informer import Informer
from admission.model.quantity import amount, format_amount
from admission.store.database.connection import Location, connect
from admission.store.database.tables import admissions, queue_object_versions, transitions, workloads
from tests.chaos.schedule import Fault
from tests.chaos.stepped import offset_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence

    from admission.cli.demo.plan import Document, ScenePlan, Team
    from tests.chaos.fleet import Fleet
    from tests.chaos.ledger import Promise
    from tests.chaos.storm import OneCluster

USERS: Final = ("alice", "bob", "admin")
_OBJECTS: Final = "/apis/sluice.dev/v1"
_LIMIT: Final = "sluice.dev/max-exec-time-seconds"
_HOUR: Final = 3600
_STEADY_LIMITS: Final = (300, 600)
"""Time limits of Jobs (s), if no clock is set: longer than any outage."""
_LIMITS: Final = (3 * _HOUR, 6 * _HOUR)
"""... and if clocks are up to two hours apart: no Job may be over because of that."""
_AT_ONCE: Final = {"company": 32, "platform": 10, "students": 9, "research": 22}
"""For so many Jobs at the same time Budgets have hours left."""
_OF_ALICE: Final = "0.3"
"""Hours that the Budget of a user gets at a time."""
_RUNNING: Final = 12
"""Most Jobs of a user at the same time."""
_RESERVED_AFTER: Final = 3
_RESERVED_FOR: Final = 10
_CALENDAR_AFTER: Final = 2
_CALENDAR_FOR: Final = 6
"""Seconds."""
_RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
_ROLE_BINDING: Final = {
    "metadata": {"name": "users"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user} for user in USERS[:-1]],
}
_PAST: Final = {"start": "2026-01-01T00:00:00", "end": "2026-01-01T00:00:01"}
_REASONS: Final = ("BudgetExhausted", "UserLimitReached", "ReservedForOthers")
_SLACK: Final = 1.0
"""Core seconds: times are stored in microseconds."""


def user_of(job: str) -> str:
    """Return who submits a Job."""
    return USERS[crc32(job.encode()) // 64 % len(USERS)]


class Policies:
    """The policies of a storm: its objects, their edits, and what has to hold of them."""

    def __init__(self, plan: ScenePlan, *, steady: bool) -> None:
        """`steady`: no clock is set."""
        self._plan = plan
        self._steady = steady
        self._limits = _STEADY_LIMITS if steady else _LIMITS
        self._cores = sum(plan.jobs[0].requests["cpu"] for _ in range(plan.jobs[0].pods)) // 1000
        most = {user: {"cpu": _RUNNING * self._cores * 1000} for user in USERS}
        self._live = LivePods(most, {"cpu": plan.total("cpu")}, payer=lambda pod: user_of(_job_of(pod)))
        self._began: dict[str, float] = {}
        """Since when pods run, by key, in real seconds."""
        self._used = 0.0
        """Core seconds of all pods, in real time."""
        self._spent: dict[str, float] = {}
        """By Budget: what the leader says at the end, in core seconds."""

    # --- objects

    def documents(self) -> list[Document]:
        """Return the Budgets, limits and Reservations at the beginning."""
        budgets = [
            self._budget("company", None, self._room("company")),
            *(self._budget(name, {"namespaces": [name]}, self._room(name)) for name in [*_AT_ONCE][1:]),
            queue_object("Budget", "alice", spec={
                "scope": {"users": ["alice"]}, "parent": "company", "period": {"every": "Year"},
                "resources": [{"name": "cpu", "hours": _OF_ALICE}], "action": "PreemptAfter", "graceSeconds": 3,
            }),
        ]  # fmt: skip
        limits = [
            ("everybody", {"running": _RUNNING, "resources": {"cpu": str(_RUNNING * self._cores)}}),
            ("alice", {"users": ["alice"], "running": 9, "submitted": 60}),
            ("both", {"users": ["alice", "bob"], "together": True, "clusterQueue": "research", "running": 10}),
        ]
        begins = time.time() + sum(self._limits) / 2  # some Jobs may run until then, and others would run into it
        far = {"start": local(begins), "end": local(begins + 2 * max(self._limits))}
        kept = [self._reservation(f"near-{team.name}", team, "alice", _PAST) for team in self._plan.teams]
        kept.append(self._reservation("far", self._plan.teams[1], "bob", far))
        return [*budgets, *(queue_object("UserLimit", name, spec=spec) for name, spec in limits), *kept]

    def _room(self, budget: str) -> float:
        return _AT_ONCE[budget] * self._cores * max(self._limits) / _HOUR

    def _budget(self, name: str, scope: Document | None, hours: float) -> Document:
        spec = {
            "resources": [{"name": "cpu", "hours": f"{hours:.2f}"}],
            "period": {"every": "Year"},
            "enforcement": "Reserve",
            **({} if scope is None else {"scope": scope, "parent": "company"}),
        }
        return queue_object("Budget", name, spec=spec)

    def _reservation(self, name: str, team: Team, user: str, window: Mapping[str, str]) -> Document:
        quota = {"flavor": FLAVOR, "resource": "cpu", "amount": format_amount("cpu", team.nominal["cpu"])}
        return queue_object("Reservation", name, spec={
            "clusterQueue": team.name, "quotas": [quota], "holders": {"users": [user]}, **window
        })  # fmt: skip

    def limited(self, job: Document) -> Document:
        """Return a Job with a time limit."""
        chance = crc32(job["metadata"]["name"].encode()) // 4096
        job["metadata"]["labels"][_LIMIT] = str(self._limits[chance % len(self._limits)])
        return job

    # --- edits

    async def grant(self, fleet: Fleet) -> None:
        """Give Budgets hours again that are used up, until cancelled."""
        while True:
            await asyncio.sleep(1)
            for budget in await self._listed(fleet):
                (found,) = budget["status"].get("resources") or [{"hours": "0", "spent": "0"}]
                room = float(_OF_ALICE) if (name := budget["metadata"]["name"]) == "alice" else self._room(name)
                spent = float(found["spent"])
                if float(budget["spec"]["resources"][0]["hours"]) - spent < room / 2:
                    hours = [{"name": "cpu", "hours": f"{spent + room:.2f}"}]
                    await fleet.written("PATCH", f"{_OBJECTS}/budgets/{name}", {"spec": {"resources": hours}})

    async def _listed(self, fleet: Fleet) -> list[Document]:
        for replica in fleet.replicas:
            status, body = await fleet.get(replica, f"{_OBJECTS}/budgets")
            if status == 200:
                return list(json.loads(body)["items"])
        return []

    def faults(self, fleet: Fleet) -> dict[Fault, Callable[[float], Awaitable[None]]]:
        """Return what happens at each fault of policies."""

        def edit(kind: str, name: str, spec: Mapping[str, Any]) -> Awaitable[None]:
            return fleet.written("PATCH", f"{_OBJECTS}/{kind}/{name}", {"spec": dict(spec)})

        async def edit_budget(draw: float) -> None:
            name = [*_AT_ONCE][int(draw * len(_AT_ONCE))]
            how = int(draw * 1009) % 3
            path = f"{_OBJECTS}/budgets/{name}"
            scope = None if name == "company" else {"namespaces": [name]}
            if how == 0 or scope is None:  # less than may be reserved, or spent, already
                less = self._room(name) * (draw * 9973 % 1)
                await edit("budgets", name, {"resources": [{"name": "cpu", "hours": f"{less:.2f}"}]})
            elif how == 1:  # it charges others, and then its own again
                await edit("budgets", name, {"scope": {"users": ["bob"], "namespaces": None}})
                await edit("budgets", name, {"scope": {**scope, "users": None}})
            else:
                await fleet.written("DELETE", path, None)
                await fleet.written("POST", f"{_OBJECTS}/budgets", self._budget(name, scope, self._room(name)))

        async def change_limit(draw: float) -> None:
            await edit("userlimits", "everybody", {"running": 4 + int(draw * (_RUNNING - 3))})
            await edit("userlimits", "both", {"running": 4 + int(draw * 1009 % 1 * 7)})

        async def reserve(draw: float) -> None:
            team = self._plan.teams[int(draw * len(self._plan.teams))]
            start = await _now(fleet) + _RESERVED_AFTER
            window = {"start": local(start), "end": local(start + _RESERVED_FOR)}
            at_start = ("Wait", "Preempt")[int(draw * 1009) % 2]
            for other in self._plan.teams:  # all together would keep all quota, if a clock is set back by an hour then
                if other is not team:
                    await edit("reservations", f"near-{other.name}", _PAST)
            await edit("reservations", f"near-{team.name}", {**window, "atStart": at_start})

        async def change_calendar(draw: float) -> None:
            team = self._plan.teams[int(draw * len(self._plan.teams))]
            start, share = await _now(fleet) + _CALENDAR_AFTER, 0.5 + (draw * 1009 % 1) / 4
            nominal = format_amount("cpu", int(team.nominal["cpu"] * share) // 1000 * 1000)
            entry = {
                "name": "short", "start": local(start), "end": local(start + _CALENDAR_FOR),
                "quotas": [{"flavor": FLAVOR, "resource": "cpu", "nominalQuota": nominal}],
            }  # fmt: skip
            await edit("clusterqueues", team.name, {"calendar": {"entries": [entry]}})

        return {
            Fault.EDIT_BUDGET: edit_budget,
            Fault.CHANGE_LIMIT: change_limit,
            Fault.RESERVE: reserve,
            Fault.CALENDAR: change_calendar,
        }

    # --- what is observed

    @asynccontextmanager
    async def observing(self, ground: OneCluster) -> AsyncIterator[None]:
        """Have Jobs submitted by several users, and watch their pods during the block."""
        pods = Informer(ground.hub, "/api/v1/pods", page=0)
        async with AsyncExitStack() as stack:
            ground.users = {}
            for user in USERS[:-1]:
                client = Client.from_kubeconfig(str(ground.kubeconfig.parent / f"{user}.kubeconfig"))
                ground.users[user] = await stack.enter_async_context(client)
            for team in self._plan.teams:
                await ground.hub.create(f"{_RBAC}/namespaces/{team.name}/rolebindings", _ROLE_BINDING)
            await stack.enter_async_context(alongside(self._follow(pods)))
            await pods.synced.wait()
            yield

    async def _follow(self, pods: Informer) -> None:
        async with aclosing(pods.batches()) as batches:
            async for batch in batches:
                now = time.monotonic()
                for change in batch:
                    gone = change.type == "DELETED" or change.object is None or is_gated(change.object)
                    self._see(change.key, None if gone else change.object, now)

    def _see(self, key: str, pod: Document | None, now: float) -> None:
        self._live.pod(key, pod, now)
        if pod is None or pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
            if (began := self._began.pop(key, None)) is not None:
                self._used += self._plan.jobs[0].requests["cpu"] / 1000 * (now - began)
        else:
            self._began.setdefault(key, now)

    async def note_spent(self, fleet: Fleet) -> None:
        """Read what Budgets have charged, when all Jobs are over."""
        status, body = await fleet.get(await fleet.leader(), "/metrics")
        assert status == 200, body
        for name, state, hours in re.findall(
            r'^sluice_budget_hours{budget="(.*?)".*state="(.*?)"} (.*)$', body, re.MULTILINE
        ):
            if state == "spent":
                self._spent[name] = float(hours) * _HOUR

    # --- what has to hold

    async def promises(self, database_url: str) -> tuple[Promise, ...]:
        """Check ledger and objects, and compare them with what was observed."""
        past = await Past.read(database_url)
        budgets, limits, calendars = past.wrong_budgets(), past.wrong_limits(), past.wrong_calendars()
        kept = past.wrong_reservations([team.name for team in self._plan.teams])
        charged = {name: past.spent(name) for name in self._spent}
        differing = [name for name, spent in self._spent.items() if abs(spent - charged[name]) > _SLACK]
        in_all = charged.get("company", 0.0)
        waits = ", ".join(f"{past.reasons[reason]} x {reason}" for reason in _REASONS)
        both = ", ".join(f"{name} {spent:.3f} of {charged[name]:.3f}" for name, spent in sorted(self._spent.items()))
        queues = len(past.written)
        return (
            (not budgets, f"nothing was admitted for which a Budget had too few hours ({waits}) {budgets[:2] or ''}"),
            (bool(both) and not differing, f"Budgets have charged what the ledger has, in core seconds: {both}"),
            (
                not self._steady or self._used <= in_all + _SLACK,
                f"pods have used {self._used:.0f} core seconds, of {in_all:.0f} that were charged",
            ),
            (not limits, f"no user was given more than a limit permits {limits[:2] or ''}"),
            (
                not self._live.violations and self._live.checks > 0,
                f"nor had more pods at any time, in {self._live.checks} checks {self._live.violations[:1] or ''}",
            ),
            (not kept, f"nothing was admitted into what is reserved {kept[:2] or ''}"),
            (not calendars, f"quota is what calendars say, in {queues} versions of queues {calendars[:2] or ''}"),
        )


class Row(NamedTuple):
    """An amount of cpu that a workload held."""

    uid: str
    user: str
    namespace: str
    queue: str
    amount: int
    begins: float
    ends: float | None
    first: int
    """The revision that added it; `last`: that closed it."""
    last: float
    known: int
    admitted: float
    """When the workload was admitted: earlier than `begins` if it was resized since."""
    limit: int
    """Its time limit (s)."""

    def ends_by(self, now: float) -> float:
        """Return when its time limit is over; infinite: it is over, and it still holds quota."""
        return self.admitted + self.limit if self.admitted + self.limit > now else inf


class Version(NamedTuple):
    """All objects that policies need as of a revision, by kind and name."""

    revision: int
    specs: Mapping[tuple[str, str], Document]


@dataclass(frozen=True)
class Past:
    """The ledger and the versions of objects of a storm."""

    rows: Sequence[Row]
    """In order of `first`."""
    history: Sequence[Version]
    """In order of revision, the first one without objects."""
    written: Sequence[tuple[float, str, Document]] = ()
    """When each version of a ClusterQueue with a calendar was written, its name and spec."""
    reasons: Mapping[str, int] = field(default_factory=dict)
    """How often workloads began to wait for a reason."""

    @staticmethod
    async def read(database_url: str) -> Past:
        """Read them."""
        database = connect(Location.parse(database_url))
        columns, versions = admissions.c, queue_object_versions.c
        try:
            async with database.read() as connection:
                found = await connection.execute(
                    select(
                        columns.workload_uid, columns.submitted_by, columns.namespace, columns.cluster_queue,
                        columns.amount, columns.from_at, columns.to_at, columns.from_revision, columns.to_revision,
                        columns.known_revision, columns.began_at, workloads.c.max_seconds,
                    ).join(workloads, workloads.c.uid == columns.workload_uid)
                    .where(columns.resource == "cpu").order_by(columns.from_revision, columns.id)
                )  # fmt: skip
                rows = [
                    Row(*row[:8], inf if row[8] is None else row[8], row[9], row[10] or row[5], row[11])
                    for row in found
                ]
                objects = await connection.execute(
                    select(versions.revision, versions.operation, versions.kind, versions.name, versions.content,
                           versions.at).order_by(versions.id)
                )  # fmt: skip
                history, written = [Version(0, {})], []
                for revision, operation, kind, name, content, at in objects:
                    specs = {**history[-1].specs, (kind, name): content.get("spec") or {}}
                    if operation == "delete":
                        del specs[kind, name]
                    elif kind == "ClusterQueue" and content["spec"].get("calendar"):
                        written.append((at, name, specs[kind, name]))
                    history.append(Version(revision, specs))
                counts = select(transitions.c.reason, count()).group_by(transitions.c.reason)
                reasons = Counter(dict((await connection.execute(counts)).all()))
        finally:
            await database.close()
        return Past(rows, history, written, reasons)

    def _known(self, row: Row) -> list[Version]:
        """Return the versions of objects with which an admission may have been decided."""
        known = [each for each in self.history if each.revision <= row.first]
        before = max((n for n, each in enumerate(known) if each.revision <= row.known), default=0)
        return known[before:]

    def _commits(self) -> Iterator[tuple[list[Row], list[Row], list[Row]]]:
        """Yield the rows of each commit that admitted workloads, those that were held beside, and those closed then."""
        for first, together in groupby(self.rows, key=attrgetter("first")):
            admitted = [row for row in together if row.admitted == row.begins]
            if admitted:
                beside = [row for row in self.rows if row.first <= first < row.last and row not in admitted]
                yield admitted, beside, [row for row in self.rows if row.last <= first]

    def wrong_budgets(self) -> list[str]:
        """Return the admissions for which Budgets had too few hours left."""
        found = []
        for admitted, beside, closed in self._commits():
            now = max(row.begins for row in admitted)
            problems = [self._lacking(version, admitted, beside, closed, now) for version in self._known(admitted[0])]
            if all(problems):
                found.append(f"revision {admitted[0].first}: {problems[-1]}")
        return found

    def _lacking(self, version: Version, admitted: list[Row], beside: list[Row], closed: list[Row], now: float) -> str:
        for name, spec in _of_kind(version, "Budget"):
            if not any(_charges(version, name, row) for row in admitted):
                continue
            used = sum(row.amount * (row.ends - row.begins) for row in closed if row.ends is not None
                       if _charges(version, name, row))  # fmt: skip
            reserves = spec.get("enforcement") == "Reserve"
            for row in (*beside, *(admitted if reserves else ())):
                if _charges(version, name, row):
                    until = max(row.admitted + row.limit, now) if reserves else now
                    used += row.amount * max(until - row.begins, 0)
            most = float(spec["resources"][0]["hours"]) * 1000 * _HOUR
            if used > most + 1000 * _SLACK or (not reserves and used >= most + 1000 * _SLACK):
                return f"Budget {name} had {used / 1000:.3f} of {most / 1000:.3f} core seconds used or reserved"
        return ""

    def spent(self, budget: str) -> float:
        """Return the core seconds of all rows that a Budget charges."""
        version = self.history[-1]
        return sum(
            row.amount * (round(row.ends * 1e6) - round(row.begins * 1e6))
            for row in self.rows
            if row.ends is not None and _charges(version, budget, row)
        ) / 1e9  # fmt: skip

    def wrong_limits(self) -> list[str]:
        """Return the admissions beyond what users may have."""
        found = []
        for admitted, beside, _ in self._commits():
            problems = [_beyond(version, admitted, [*beside, *admitted]) for version in self._known(admitted[0])]
            if all(problems):
                found.append(f"revision {admitted[0].first}: {problems[-1]}")
        return found

    def wrong_reservations(self, queues: Sequence[str]) -> list[str]:
        """Return the admissions beside which less than what is reserved is free at its start, or still less."""
        found = []
        for admitted, beside, _ in self._commits():
            now = max(row.begins for row in admitted)
            problems = [_short(version, queues, admitted, beside, now) for version in self._known(admitted[0])]
            if all(problems):
                found.append(f"revision {admitted[0].first}: {problems[-1]}")
        return found

    def wrong_calendars(self) -> list[str]:
        """Return the versions of ClusterQueues in which the quota is not that of their calendars."""
        found = []
        for at, name, spec in self.written:
            for entry in spec["calendar"]["entries"]:
                (given,) = entry["quotas"]
                wanted = given["nominalQuota"] if _instant(entry["start"]) <= at < _instant(entry["end"]) else None
                (quota,) = (each for each in _quotas(spec) if each["name"] == "cpu")
                if quota.get("currentQuota") != wanted and quota["nominalQuota"] != wanted:
                    found.append(f"{name} at {local(at)}: {quota} instead of {wanted}")
        return found


def _of_kind(version: Version, kind: str) -> list[tuple[str, Document]]:
    return sorted((name, spec) for (each, name), spec in version.specs.items() if each == kind)


def _charges(version: Version, budget: str, row: Row) -> bool:
    """Whether a Budget charges a row: by its own scope, or by that of one whose parent it is."""
    for name, spec in _of_kind(version, "Budget"):
        scope = spec.get("scope")
        if (name != budget and spec.get("parent") != budget) or scope is None:
            continue
        if row.namespace in (scope.get("namespaces") or [row.namespace]) and row.user in (
            scope.get("users") or [row.user]
        ):
            return True
    return False


def _beyond(version: Version, admitted: Sequence[Row], held: Sequence[Row]) -> str:
    """Return which limit a user, or those who share one, exceed who have admitted something."""
    limits = _of_kind(version, "UserLimit")
    for name, spec in limits:
        queue, users, running = spec.get("clusterQueue"), spec.get("users"), spec.get("running")
        together = bool(spec.get("together"))
        for whose in [set(users)] if together else [{user} for user in users or USERS]:
            own = {each for _, other in limits if not other.get("together") for each in other.get("users") or ()}
            if not together and not users and whose & own:
                continue  # a limit that names the user replaces that for everybody
            mine = {row.uid: row.amount for row in held if row.user in whose and queue in (None, "", row.queue)}
            if not any(row.uid in mine for row in admitted):
                continue
            most = spec.get("resources", {}).get("cpu")
            if len(mine) > running or (most is not None and sum(mine.values()) > amount("cpu", most)):
                return f"{sorted(whose)} have {len(mine)} of {running} in {queue or 'all'}, with limit {name}"
    return ""


def _short(version: Version, queues: Sequence[str], admitted: list[Row], beside: list[Row], now: float) -> str:
    """Return at which instant less of a reservation is free with what was admitted than without it."""
    reservations = [
        (_instant(spec["start"]), _instant(spec["end"]), name, spec)
        for name, spec in _of_kind(version, "Reservation")
        if _instant(spec["end"]) > now
    ]
    for at in sorted({max(begins, now) for begins, *_ in reservations}):
        kept = [each for each in sorted(reservations, key=lambda each: each[::2]) if each[0] <= at < each[1]]
        # Quota is that of the calendar as soon as the leader has written it.
        for written in (True, False) if at == now else (False,):
            quotas = {name: _nominal(version.specs["ClusterQueue", name], at, written=written) for name in queues}
            before = _lacks(quotas, kept, beside, at, now)
            after = _lacks(quotas, kept, [*beside, *admitted], at, now)
            if after <= before:
                break
        else:
            names = [each[2] for each in kept]
            return f"{after} instead of {before} lacks of {names} at {local(at)}; it is {local(now)}"
    return ""


def _lacks(
    quotas: Mapping[str, tuple[int, float]], kept: Sequence[Any], rows: Sequence[Row], at: float, now: float
) -> float:
    """Return by how much what is free is less than what is kept at an instant, in a Cohort that lends everything."""
    runs = [row for row in rows if row.ends_by(now) > at]
    used = dict[str, float].fromkeys(quotas, 0)
    for row in runs:
        used[row.queue] += row.amount
    most, lacks = dict[str, float].fromkeys(quotas, 0), 0.0
    for _, _, _, spec in kept:
        queue, (user,) = spec["clusterQueue"], spec["holders"]["users"]
        limit = quotas[queue][1]
        whole = sum(each for each, _ in quotas.values())
        can = min(amount("cpu", spec["quotas"][0]["amount"]), limit - most[queue], whole - sum(most.values()))
        most[queue] += can
        rest = can - sum(row.amount for row in runs if (row.queue, row.user) == (queue, user))
        if rest <= 0:
            continue
        free = min(rest, max(min(limit - used[queue], whole - sum(used.values())), 0))
        used[queue] += free
        lacks += rest - free
    return lacks


def _nominal(spec: Document, at: float, *, written: bool) -> tuple[int, float]:
    """Return nominal quota of cpu at an instant, by calendar, and the most that may be used with what is borrowed.

    `written`: that of now, as it is written.
    """
    (quota,) = (each for each in _quotas(spec) if each["name"] == "cpu")
    nominal = quota["nominalQuota"] if not written else quota.get("currentQuota") or quota["nominalQuota"]
    for entry in () if written else (spec.get("calendar") or {}).get("entries", ()):
        if _instant(entry["start"]) <= at < _instant(entry["end"]):
            nominal = entry["quotas"][0]["nominalQuota"]
    borrowing = quota.get("borrowingLimit")
    milli = amount("cpu", nominal)
    return milli, inf if borrowing is None else milli + amount("cpu", borrowing)


def _quotas(spec: Document) -> list[Document]:
    return list(spec["resourceGroups"][0]["flavors"][0]["resources"])


def _job_of(pod: Document) -> str:
    return str(pod["metadata"]["ownerReferences"][0]["name"])


async def _now(fleet: Fleet) -> float:
    """Return the time of the leader's clock."""
    return time.time() + offset_of((await fleet.leader()).clock)


def local(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()[:19]


def _instant(local: str) -> float:
    return datetime.fromisoformat(local).replace(tzinfo=UTC).timestamp()
