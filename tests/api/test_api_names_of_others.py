"""Isolation of two teams: no list, watch event or error for a user of one team contains a name of the other team.

Each route of the API is requested with names of both teams, names that do not exist, and prefixes of names of the other
team. A name that is part of the request may be repeated in the response, which must then equal the response for a name
that does not exist.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from api_and_cluster import PREFIX, ApiAndCluster, serving_with_cluster
from api_client import Answer, Events
from queue_objects import cluster_queue, cohort, flavor, local_queue, manifest
from user_permissions import bind, create_roles
from workload_records import MAIN, NOW, record

from admission.api.resources.explaining_engine import NoController
from admission.engine.vocabulary import OF_ANOTHER_NAMESPACE
from admission.model.manifests import parse_manifest
from admission.model.workload import Admission, PodSetAssignment
from admission.sandbox.auth.users import AUTHENTICATED, MASTERS, User
from admission.store.audit_log import Author
from admission.store.records import Changes, Opened, State, Transition, WorkloadRecord
from admission.store.store import Store

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
MERGE = {"Content-Type": "application/merge-patch+json"}


@dataclass(frozen=True)
class Team:
    """A team with a user, a namespace and objects; all names start with the team's, and none is part of another."""

    name: str

    @property
    def user(self) -> str:
        return f"{self.name}-user"

    @property
    def names(self) -> tuple[str, ...]:
        parts = ("user", "space", "local", "second", "cluster", "waits", "runs", "rests", "comes", "hears", "edits")
        return tuple(f"{self.name}-{part}" for part in parts)

    def record(self, part: str, state: State = State.PENDING, **fields: Any) -> WorkloadRecord:
        name = f"{self.name}-{part}"
        options = {"namespace": f"{self.name}-space", "queue": f"{self.name}-local", "user": self.user} | fields
        found = record(f"uid-{len(name)}-{hash(name) & 0xFFFF}", name, state, **options)
        return replace(found, cluster_queue=f"{self.name}-cluster" if part == "runs" else "shared")

    def documents(self) -> Iterator[dict[str, Any]]:
        name = self.name
        yield cluster_queue(f"{name}-cluster", cpu="1", cohortName="root")  # its workload borrows
        yield local_queue(f"{name}-local", f"{name}-space", "shared")
        yield local_queue(f"{name}-second", f"{name}-space", f"{name}-cluster")
        spec = {"receiver": "pager", "events": ["Admitted"]}
        yield manifest("Subscription", f"{name}-hears", namespace=f"{name}-space", spec=spec)


TEAMS = Team("aardvark"), Team("zebra")
as_each_team = pytest.mark.parametrize(
    "own", [TEAMS[0], pytest.param(TEAMS[1], marks=pytest.mark.long)], ids=lambda team: team.name
)


class Replica(NoController):
    """A replica that knows the cluster and does not lead, so that responses come from the database."""

    def namespaces(self) -> dict[str, dict[str, str]]:
        return {f"{team.name}-space": {} for team in TEAMS}


def admission(cluster_queue: str) -> Admission:
    return Admission(cluster_queue, (PodSetAssignment("main", {"cpu": "default"}, {"cpu": 1500}, 3),))


async def write(store: Store, epoch: int, *records: WorkloadRecord) -> None:
    """Commit records as the leader does, with the message of a preemption."""
    said = f"Preempted to accommodate {OF_ANOTHER_NAMESPACE} (UID: uid-other) due to prioritization in the ClusterQueue"
    await store.commit(
        Changes(
            workloads=tuple(replace(each, message=said, evict_reason="Preempted") for each in records),
            opened=tuple(
                Opened(each.workload, admission(each.cluster_queue), NOW)
                for each in records
                if each.state is State.ADMITTED
            ),
            transitions=tuple(Transition(each.workload.uid, NOW, each.state, "Preempted", said) for each in records),
        ),
        epoch=epoch,
    )


@pytest.fixture
async def epoch(store: Store) -> int:
    return await store.lead("tests")


@pytest.fixture
async def server(store: Store, epoch: int, tmp_path: Path, clock: Any) -> AsyncIterator[ApiAndCluster]:
    shared = (flavor("default"), cohort("root"), cluster_queue("shared", cpu="2", cohortName="root"))
    for document in (*shared, *(each for team in TEAMS for each in team.documents())):
        await store.queues.create(parse_manifest(document), author=Author("ada"))
    for place, team in enumerate(TEAMS):
        records = [
            team.record("runs", State.ADMITTED, admitted_at=NOW),
            team.record("rests", State.FINISHED, finished_at=NOW, outcome="Succeeded"),
            team.record("waits", created=NOW - place),
        ]
        await write(store, epoch, *(replace(each, workload=replace(each.workload, pod_sets=MAIN)) for each in records))
    users = {f"{team.user}-token": User(team.user, groups=(AUTHENTICATED,)) for team in TEAMS}
    users |= {"root-token": User("root", groups=(MASTERS,)), "sluice-token": User("sluice", groups=(MASTERS,))}
    async with serving_with_cluster(store, tmp_path, clock=clock, users=users, deciding=Replica()) as found:
        root = found.sandbox.local("root")
        await create_roles(root)
        for team in TEAMS:
            await root.create("namespaces", "", {"metadata": {"name": f"{team.name}-space"}})
            for role in ("admin", "sluice-team-lead"):
                await bind(root, role, team.user, namespace=f"{team.name}-space")
        yield found


def leaked_names(asked: str, answered: str, other: Team) -> set[str]:
    """Names of the other team in the response that are not part of the request."""
    return {name for name in other.names if name in answered and name not in asked}


# ------------------------------------------------------------------ responses


async def ask(server: ApiAndCluster, team: Team, method: str, path: str, body: Any = None, **headers: str) -> Answer:
    for header in MERGE if method == "PATCH" else ():
        headers[header] = MERGE[header]
    data = None if body is None else json.dumps(body)
    if body is not None:
        headers.setdefault("Content-Type", "application/json")
    return await server.send(method, path, token=f"{team.user}-token", data=data, headers=headers)


def routes(server: ApiAndCluster) -> list[tuple[str, str]]:
    found = {(route.method, route.resource.canonical) for route in server.app.router.routes() if route.resource}
    return sorted(each for each in found if each[0] != "HEAD" and not each[1].startswith(("/ui", "/login", "/logout")))


NAMED = {"workloads": "waits", "localqueues": "local", "subscriptions": "hears"}
"""Part of the name that both teams gave to an object of a kind; for other kinds it is "cluster"."""


def paths_of(pattern: str, own: Team, other: Team) -> dict[str, bool]:
    """Paths of a route with names of both teams, and with a prefix of a name of the other team.

    The value says whether a path is telling. The others get a single query and body: a name of another kind is as
    unknown as the prefix, and in the namespace of the other team no name is known but its own.
    """
    if "{name}" not in pattern:
        return {pattern.replace("{namespace}", f"{team.name}-space"): True for team in (own, other)}
    named = next((part for plural, part in NAMED.items() if f"/{plural}/" in pattern), "cluster")
    mine, theirs, prefix = f"{own.name}-{named}", f"{other.name}-{named}", f"{other.name}-{named[:-1]}"
    telling = {(own, mine), (own, theirs), (own, prefix), (other, theirs)}
    names = sorted({mine, prefix, *(f"{other.name}-{part}" for part in (*NAMED.values(), "cluster"))})
    return {
        pattern.replace("{namespace}", f"{team.name}-space").replace("{name}", name): (team, name) in telling
        for team in ((own, other) if "{namespace}" in pattern else (own,))
        for name in names
    }


def queries(method: str, pattern: str, own: Team, other: Team) -> tuple[str, ...]:
    if method != "GET":
        return ("?dryRun=All",)
    if "{name}" in pattern:
        return ("",)
    if not pattern.startswith((PREFIX, "/session")):  # discovery and health checks, which read no query
        return ("", f"?limit=1&namespace={other.name}-space&find={other.name}")
    by_field = quote(f"metadata.name={other.name}-waits,metadata.namespace={other.name}-space")
    by_value = quote(f"spec.queueName={other.name}-local")
    return (
        "",
        "?limit=1",
        f"?fieldSelector={by_field}",
        f"?fieldSelector={by_value}",
        "?groupBy=user,namespace,localQueue,clusterQueue",
        f"?groupBy=user&user={other.user}",
        f"?namespace={other.name}-space&groupBy=clusterQueue",
        f"?find={other.name}",
        f"?find={own.name}",
        f"?namespace={other.name}-space&by=user",
        "?by=namespace",
        "?by=clusterqueue",
    )


BODIES: tuple[Any, ...] = (
    {},
    {"reviews": [{"verb": "get", "resource": "workloads"}]},
    {"spec": {"queueName": "OTHER-loca"}},
    {"spec": {"queueName": "OTHER-local"}},
    {"spec": {"order": {"before": "OTHER-space/OTHER-waits"}}},
    {"spec": {"order": {"before": "OTHER-wait"}}},
    {"spec": {"order": {"top": True}}},
    {"spec": {"priority": 2**31 - 1}},
    {
        "apiVersion": "sluice.dev/v1",
        "kind": "Subscription",
        "metadata": {"name": "OTHER-edit"},
        "spec": {"receiver": "OTHER-page", "events": ["Admitted"], "localQueue": "OTHER-loca"},
    },
)


def bodies(method: str) -> tuple[Any, ...]:
    if method in ("GET", "DELETE"):
        return (None,)
    return BODIES if method == "PATCH" else (BODIES[1], BODIES[-1])


def requests_of(server: ApiAndCluster, own: Team, other: Team) -> Iterator[tuple[str, str, Any]]:
    """Method, path with query, and body of all requests."""
    for method, pattern in routes(server):
        for path, telling in sorted(paths_of(pattern, own, other).items()):
            asked = queries(method, pattern, own, other), bodies(method)
            for query, body in product(*asked if telling else (each[:1] for each in asked)):
                yield method, path + query, json.loads(json.dumps(body).replace("OTHER", other.name))


@pytest.mark.costly
@as_each_team
async def test_responses_contain_no_unrequested_names_of_the_other_team(server, own, clock):
    (other,) = {*TEAMS} - {own}
    leaks, statuses = [], {}
    for method, path, sent in requests_of(server, own, other):
        answer = await ask(server, own, method, path, sent)
        statuses[answer.status] = statuses.get(answer.status, 0) + 1
        shown = json.dumps(answer.body) + str(dict(answer.headers))
        if found := leaked_names(f"{path}{json.dumps(sent)}", shown, other):
            leaks.append((method, path, sent, answer.status, sorted(found)))
        clock.advance(0.1)
    assert leaks == []
    assert statuses.keys() >= {200, 400, 403, 404, 422}
    assert 500 not in statuses


@as_each_team
async def test_user_sees_the_names_of_the_own_team(server, own):
    """Guards the tests for leaked names, which would also pass if responses contained no names at all."""
    space = f"{PREFIX}/namespaces/{own.name}-space"
    seen = ""
    for path in (f"{space}/workloads", f"{space}/localqueues", f"{space}/subscriptions", "/session/namespaces"):
        seen += json.dumps((await ask(server, own, "GET", path)).body)
    wanted = {f"{own.name}-{part}" for part in ("space", "local", "second", "waits", "runs", "rests", "hears", "user")}
    assert {name for name in wanted if name in seen} == wanted


_HINT = re.compile(r'did you mean \\"[a-z-]+\\"\?|check the namespace[^"]*')
"""Hint after the name of a workload that does not exist: it depends on the similar names of the own team."""


@pytest.mark.costly
@as_each_team
async def test_objects_of_the_other_team_are_answered_like_objects_that_do_not_exist(server, own, clock):
    (other,) = {*TEAMS} - {own}
    unequal = []
    for method, pattern in routes(server):
        if "{name}" not in pattern:
            continue
        names = [f"{other.name}-{part}" for part in ("waits", "local", "cluster", "hears")]
        for namespace in [f"{own.name}-space", f"{other.name}-space"] if "{namespace}" in pattern else [""]:
            answers = {}
            for asked in ("nobody", *names):
                path = pattern.replace("{namespace}", namespace).replace("{name}", asked)
                answer = await ask(server, own, method, f"{path}?dryRun=All", None if method == "GET" else {})
                answers[asked] = answer.status, _HINT.sub("", re.sub(rf"\b{asked}\b", "NAME", json.dumps(answer.body)))
                clock.advance(0.1)
            different = {name: answers[name] for name in names if answers[name] != answers["nobody"]}
            if different:
                unequal.append((method, pattern, namespace, answers["nobody"], different))
    assert unequal == []


# ------------------------------------------------------------------ watches


@pytest.mark.costly
@pytest.mark.parametrize("accept", ["application/json", TABLE], ids=["objects", "tables"])
@as_each_team
async def test_watch_events_contain_no_names_of_the_other_team(server, store, epoch, own, accept):
    (other,) = {*TEAMS} - {own}
    space = f"{PREFIX}/namespaces/{own.name}-space"
    headers = {"Authorization": f"Bearer {own.user}-token", "Accept": accept}
    session = await server._session(None)
    lines: list[str] = []

    async def listen(path: str) -> None:
        async with session.get(f"{server.url}{path}", headers=headers) as response:
            assert response.status == 200, await response.text()
            opened.release()
            events, last = Events(response), ""
            while f"{own.name}-comes" not in last:
                last = json.dumps(await events.next())
                lines.append(last)

    watched = [
        f"{space}/{plural}?watch=1&allowWatchBookmarks=1{start}"
        for plural in ("workloads", "localqueues", "subscriptions")
        for start in ("", "&resourceVersion=1")
        if not (plural == "workloads" and start)  # workloads cannot be watched from so old a revision
    ]
    opened = asyncio.Semaphore(0)
    async with asyncio.TaskGroup() as group:
        for path in watched:
            group.create_task(listen(path))
        for _ in watched:
            await opened.acquire()
        for team in (other, own):  # the own team is last: its events end the watches
            await write(store, epoch, team.record("waits", State.ADMITTED, admitted_at=NOW), team.record("comes"))
            for document in team.documents():
                if document["kind"] in ("LocalQueue", "Subscription"):
                    document["metadata"]["name"] = f"{team.name}-comes"
                    await store.queues.create(parse_manifest(document), author=Author(team.user))
                    break
            spec = {"receiver": "pager", "events": ["Admitted"]}
            subscription = manifest("Subscription", f"{team.name}-comes", namespace=f"{team.name}-space", spec=spec)
            await store.queues.create(parse_manifest(subscription), author=Author(team.user))
    assert [line for line in lines if leaked_names("", line, other)] == []
    assert any(f"{own.name}-waits" in line for line in lines)


@pytest.mark.costly
@as_each_team
async def test_forbidden_watch_is_refused_without_names_of_the_other_team(server, own, clock):
    (other,) = {*TEAMS} - {own}
    refused = set()
    for _, pattern in routes(server):
        if not pattern.startswith(PREFIX) or "{name}" in pattern:
            continue
        for query in ("", "&resourceVersion=1", f"&fieldSelector=metadata.name%3D{other.name}-waits"):
            path = pattern.replace("{namespace}", f"{other.name}-space") + f"?watch=1{query}"
            status = await server.status("GET", path, token=f"{own.user}-token")
            if status == 200:
                continue
            answer = await ask(server, own, "GET", path)
            assert leaked_names(path, json.dumps(answer.body), other) == set()
            refused.add(path.partition("?")[0])
            clock.advance(0.1)
    for plural in ("workloads", "localqueues", "subscriptions", "clusterqueues", "cohorts"):
        assert any(path.endswith(f"/{plural}") for path in refused)


@pytest.mark.parametrize(
    "selector", ["fieldSelector=status.state%3Dpending", "labelSelector=kueue.x-k8s.io%2Fqueue-name", ""]
)
async def test_watch_from_a_list_version_contains_no_names_of_the_other_team(server, store, epoch, selector):
    own, other = TEAMS
    address = f"namespaces/{own.name}-space/workloads?{selector}"
    listed = await ask(server, own, "GET", f"{PREFIX}/{address}")
    assert listed.status == 200, listed.body
    for team in (other, own):
        await write(store, epoch, team.record("waits", State.ADMITTED, admitted_at=NOW), team.record("comes"))
    session = await server._session(None)
    path = f"{PREFIX}/{address}&watch=1&resourceVersion={listed.body['metadata']['resourceVersion']}"
    headers = {"Authorization": f"Bearer {own.user}-token"}
    async with session.get(f"{server.url}{path}", headers=headers) as response:
        events, last = Events(response), ""
        while f"{own.name}-comes" not in last:
            last = json.dumps(await events.next())
            assert leaked_names("", last, other) == set()


async def test_watch_after_revoked_permission_ends_with_403_without_foreign_names(
    server, store, epoch, clock, monkeypatch
):
    own, other = TEAMS
    monkeypatch.setattr("admission.api.watch.watch_request.RECHECK_SECONDS", 0.01)
    headers = {"Authorization": f"Bearer {own.user}-token"}
    session = await server._session(None)
    path = f"{PREFIX}/namespaces/{own.name}-space/workloads?watch=1"
    async with session.get(f"{server.url}{path}", headers=headers) as response:
        root = server.sandbox.local("root")
        for role in ("admin", "sluice-team-lead"):
            await root.delete("rolebindings", f"{own.name}-space", f"{role}-{own.user}")
        clock.advance(10)
        await write(store, epoch, other.record("comes"))
        events, last = Events(response), {"type": ""}
        while last["type"] != "ERROR":
            last = await events.next()
            assert leaked_names("", json.dumps(last), other) == set()
        assert last["object"]["code"] == 403
