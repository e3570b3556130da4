"""What users of the API see of workloads in another cluster: what the RBAC of that cluster allows them, too."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

import orjson
import pytest
from api_and_cluster import ADMIN_TOKEN, serving_with_cluster
from queue_objects import cluster_queue, flavor, local_queue
from user_permissions import allow
from workload_records import NOW, record

from admission.api.registry import PREFIX
from admission.api.resources.clusters_in_reach import Reached
from admission.api.resources.explaining_engine import NoController
from admission.client import Sluice
from admission.cluster.client import Client
from admission.cluster.errors import Unreachable
from admission.kinds import all_kinds
from admission.model.manifests import parse_manifest
from admission.model.terms import Dependency, Terms
from admission.model.topology import HOSTNAME, DomainCount, TopologyAssignment
from admission.model.workload import Admission, PodSet, PodSetAssignment
from admission.sandbox.apiserver.requests import User
from admission.sandbox.auth.users import DEFAULT_USERS
from admission.sandbox.sandbox import Sandbox
from admission.store.audit_log import Author
from admission.store.records import Changes, Opened, State, Transition

RESOURCES = ["workloads", "workloads/explain", "workloads/history", "localqueues/pendingworkloads"]
READ = {"apiGroups": ["sluice.dev"], "resources": RESOURCES, "verbs": ["get", "list", "watch"]}
PATCH = {"apiGroups": ["sluice.dev"], "resources": ["workloads"], "verbs": ["patch"]}
QUEUES = {"apiGroups": ["sluice.dev"], "resources": ["clusterqueues/pendingworkloads", "reports"], "verbs": ["get"]}
PREEMPTED = "Preempted to accommodate {} (UID: uid-there) due to prioritization in the ClusterQueue"
ALL = {"apiGroups": ["sluice.dev"], "resources": ["*"], "verbs": ["*"]}
USERS = {
    **DEFAULT_USERS,
    **{f"{name}-token": User(name, name, ("system:authenticated",)) for name in ("carol", "dora")},
}
OF_ANOTHER_CLUSTER = "a workload of another cluster"


class Replica(NoController):
    """A replica that knows the cluster and does not lead, so that responses come from the database."""

    def namespaces(self) -> dict[str, dict[str, str]]:
        return {"team-a": {}, "team-b": {}}


class Other:
    """Another cluster that has joined, and how the API reaches it."""

    def __init__(self, sandbox: Sandbox, client: Client) -> None:
        self.sandbox = sandbox
        self.client = client
        self.is_cut = False
        self.seconds = 0.0
        """How long an answer takes."""

    @asynccontextmanager
    async def reach(self, cluster):
        if self.is_cut or cluster.name != "b":
            raise Unreachable("no route to host")
        await asyncio.sleep(self.seconds)
        yield Reached(self.client, all_kinds())

    async def grant(self, user: str, *rules, namespace: str = "") -> None:
        await allow(self.sandbox.local("admin"), user, *rules, namespace=namespace)


@pytest.fixture
async def other(tmp_path):
    async with Sandbox(controllers=False) as sandbox:
        sandbox.write_kubeconfig(tmp_path / "b", "sluice")
        for name in ("team-a", "team-b"):
            await sandbox.local("admin").create("namespaces", "", {"metadata": {"name": name}})
        async with Client.from_kubeconfig(str(tmp_path / "b")) as client:
            yield Other(sandbox, client)


def joining(name: str):
    return {"apiVersion": "sluice.dev/v1", "kind": "Cluster", "metadata": {"name": name}, "spec": {"kubeconfig": name}}


def workload(uid: str, name: str, namespace: str = "team-a", *, cluster: str = "b", **fields):
    pods = (PodSet(name="main", count=1, requests={"cpu": 1000}),)
    found = record(uid, name, fields.pop("state", State.PENDING), namespace=namespace, **fields)
    return replace(found, workload=replace(found.workload, pod_sets=pods, cluster=cluster))


@pytest.fixture
async def server(store, other, tmp_path, clock):
    """Alice may read in both clusters, bob in `local` only, carol everywhere here and in team-b there.

    Dora may do everything with the API here, and nothing there.
    """
    for document in (
        flavor("default"),
        cluster_queue("one", cpu="1"),
        local_queue("main", "team-a", "one"),
        local_queue("main", "team-b", "one"),
        joining("b"),
    ):
        await store.queues.create(parse_manifest(document), author=Author("ada"))
    message = PREEMPTED.format(OF_ANOTHER_CLUSTER)
    records = (
        workload("uid-here", "here", cluster="local", created=NOW - 30, evict_reason="Preempted", message=message),
        workload("uid-there", "there", created=NOW - 20),
        workload("uid-both-there", "both", created=NOW - 5),
        workload("uid-both", "both", cluster="local", created=NOW - 10),
        workload("uid-b", "of-b", "team-b", created=NOW),
        workload("uid-left", "left", cluster="left", created=NOW - 50, state=State.FINISHED),
    )
    preempted = Transition("uid-here", NOW, State.PENDING, "Preempted", message)
    await store.commit(Changes(workloads=records, transitions=(preempted,)), epoch=await store.lead("tests"))
    deciding = Replica()
    async with serving_with_cluster(
        store, tmp_path, clock=clock, users=USERS, deciding=deciding, reach=other.reach
    ) as found:
        for name in ("team-a", "team-b"):
            await found.sandbox.local("admin").create("namespaces", "", {"metadata": {"name": name}})
        for user in ("alice", "bob"):
            await found.grant(user, [READ, PATCH], namespace="team-a")
        await found.grant("carol", [READ, QUEUES])
        await found.grant("dora", [ALL])
        await other.grant("alice", READ, namespace="team-a")
        await other.grant("carol", READ, namespace="team-b")
        yield found


HERE, THERE = {"here", "both", "left"}, {"there"}


def names(answer) -> set[str]:
    assert answer.status == 200, answer.body
    return {item["spec"]["object"]["name"] for item in answer.body["items"]}


@pytest.mark.parametrize(("user", "seen"), [("alice", HERE | THERE), ("bob", HERE), ("carol", HERE)])
async def test_lists_and_searches_show_what_both_clusters_allow(server, user, seen):
    assert names(await server.as_user(user, "GET", "namespaces/team-a/workloads")) == seen
    answer = await server.as_user(user, "GET", "/session/workloads?namespace=team-a")
    assert names(answer) == seen
    counted = await server.as_user(user, "GET", "/session/workloads?namespace=team-a&by=namespace")
    assert sum(counted.body["items"][0]["counts"].values()) == answer.body["metadata"]["total"]


async def test_all_namespaces_are_listed_of_the_clusters_that_allow_it(server, other, clock):
    assert names(await server.as_user("carol", "GET", "workloads")) == HERE
    assert names(await server.as_user("carol", "GET", "/session/workloads")) == {*HERE, "of-b"}
    assert names(await server.send("GET", "workloads", token=ADMIN_TOKEN)) == {*HERE, *THERE, "of-b"}
    await other.grant("carol", READ)
    clock.advance(31)
    assert names(await server.as_user("carol", "GET", "workloads")) == {*HERE, *THERE, "of-b"}


async def test_list_that_asks_for_a_hidden_cluster_says_what_it_leaves_out(server):
    for field in ("status.clusterName", "spec.cluster"):
        path = f"namespaces/team-a/workloads?fieldSelector={field}%3Db"
        answer = await server.as_user("bob", "GET", path)
        assert names(answer) == set()
        assert "workloads created in cluster b are not shown: you may not list them" in answer.headers["Warning"]
        assert "Warning" not in (await server.as_user("alice", "GET", path)).headers


async def test_name_of_a_hidden_workload_is_that_of_none(server):
    for path in ("", "/explain", "/history"):
        assert (await server.as_user("alice", "GET", f"namespaces/team-a/workloads/there{path}")).status == 200
        answer = await server.as_user("bob", "GET", f"namespaces/team-a/workloads/there{path}")
        assert answer.status == 404
        assert answer.body["message"] == (
            'workloads.sluice.dev "there" not found in namespace "team-a"; '
            'did you mean "here"? (you may not see those of cluster b)'
        )
    # Of two objects with the same name, the one that may be seen is found, though it is older.
    found = {
        user: (await server.as_user(user, "GET", "namespaces/team-a/workloads/both")).body["metadata"]["uid"]
        for user in ("alice", "bob")
    }
    assert found == {"alice": "uid-both-there", "bob": "uid-both"}


async def test_orders_need_the_right_in_the_cluster_of_the_workload(server, other, clock):
    path, patch = "namespaces/team-a/workloads/there", {"spec": {"priority": 0}}
    headers = {"Content-Type": "application/merge-patch+json"}

    async def status() -> int:
        data = orjson.dumps(patch)
        return (await server.as_user("alice", "PATCH", path, data=data, headers=headers)).status

    assert await status() == 404
    await other.grant("alice", PATCH, namespace="team-a")
    clock.advance(6)
    assert await status() == 200


async def test_workloads_of_the_other_cluster_are_not_named_elsewhere(server):
    for user, named in (("alice", "workload team-a/there"), ("bob", OF_ANOTHER_CLUSTER)):
        answer = await server.as_user(user, "GET", "namespaces/team-a/workloads/here/history")
        assert [item["message"] for item in answer.body["items"]] == [PREEMPTED.format(named)]
        pending = await server.as_user(user, "GET", "namespaces/team-a/localqueues/main/pendingworkloads")
        found = {item["metadata"]["uid"] for item in pending.body["items"]}
        assert ("uid-there" in found) is (user == "alice")
        assert {"uid-here", "uid-both"} <= found
    pending = await server.as_user("carol", "GET", "clusterqueues/one/pendingworkloads")
    assert {item["metadata"]["uid"] for item in pending.body["items"]} == {"uid-here", "uid-both"}


async def test_watch_hides_as_the_list_does_also_when_it_resumes(server, store):
    revision = (await server.as_user("bob", "GET", "namespaces/team-a/workloads")).body["metadata"]["resourceVersion"]
    changed = [workload("uid-there", "there", reason="x"), workload("uid-here", "here", cluster="local", reason="x")]
    await store.commit(Changes(workloads=tuple(changed)), epoch=await store.lead("tests"))
    for selector in ("", "&fieldSelector=status.state%3Dfinished"):
        path = f"namespaces/team-a/workloads?watch=true&timeoutSeconds=1&resourceVersion={revision}{selector}"
        answer = await server.as_user("bob", "GET", path)
        events = [orjson.loads(line) for line in answer.body.splitlines()] if isinstance(answer.body, str) else []
        events = events or [answer.body]
        assert {event["object"]["metadata"]["uid"] for event in events} == {"uid-here"}


async def test_last_answer_of_a_cluster_counts_while_it_is_silent(server, other, clock):
    assert names(await server.as_user("alice", "GET", "namespaces/team-a/workloads")) == HERE | THERE
    other.is_cut = True
    clock.advance(60)
    for user, seen in (("alice", HERE | THERE), ("carol", HERE)):
        answer = await server.as_user(user, "GET", "namespaces/team-a/workloads")
        assert names(answer) == seen
        assert ("does not answer whether you may see them" in answer.headers.get("Warning", "")) is (user == "carol")
    clock.advance(3600)
    assert names(await server.as_user("alice", "GET", "namespaces/team-a/workloads")) == HERE
    other.is_cut = False
    clock.advance(11)
    assert names(await server.as_user("alice", "GET", "namespaces/team-a/workloads")) == HERE | THERE


async def test_superusers_cost_no_reviews_in_other_clusters(server, other):
    for token, reviewed in ((ADMIN_TOKEN, False), (server.sandbox.token("carol"), True)):
        await server.send("GET", "workloads", token=token)
        asked = any(plural == "subjectaccessreviews" for _, plural, _ in other.sandbox.requests)
        assert asked is reviewed


# ------------------------------------------------------------------ every route


OWN = {"workloads": "here", "localqueues": "main", "clusterqueues": "one", "resourceflavors": "default"}
OF_ALL = ("auditrecords", "audits", "/metrics", "/ui", "/login", "/logout", "/openapi")
"""What is about the hub itself, as docs/tasks/clusters.md says."""
QUERIES = (
    "", "?limit=1", "?by=workload", "?by=workload&interval=1h", "?by=workload&top=1", "?by=user,workload",
    "?by=workload&measured=true", "?node=n1", "?flavor=default", "?find=zebra", "?fieldSelector=spec.cluster%3Db",
    "?fieldSelector=metadata.name%3Djob-zebra-job-cc72c", "?labelSelector=kueue.x-k8s.io/job-uid%3Duid-zebra",
    "?cluster=b", "?evicted=again", "?from=1d", "?sort=name&limit=5",
)  # fmt: skip
BODIES = ({}, {"spec": {"priority": 1}}, {"spec": {"order": {"top": True}}}, {"spec": {"stopPolicy": "HoldAndDrain"}})


@pytest.mark.costly
async def test_no_route_names_a_workload_that_the_other_cluster_does_not_show(server, store, clock):
    """Of a cluster in which the user has no right, whatever rights the user has here."""
    after = workload("uid-zebra-next", "zebra-next")
    records = (
        workload("uid-zebra", "zebra-job", state=State.ADMITTED, admitted_at=NOW, reason="PodsUnscheduled"),
        replace(after, workload=replace(after.workload, terms=Terms(after=(Dependency("here", "", ok=True),)))),
        workload("uid-zebra-failed", "zebra-failed", state=State.FINISHED, outcome="Failed", finished_at=NOW),
    )
    place = TopologyAssignment((HOSTNAME,), (DomainCount(("n1",), 1),))
    held = Admission("one", (PodSetAssignment("main", {"cpu": "default"}, {"cpu": 1000}, 1, topology=place),))
    records = (replace(records[0], admission=held), *records[1:])
    opened = Opened(records[0].workload, held, NOW)
    await store.commit(Changes(workloads=records, opened=(opened,)), epoch=await store.lead("tests"))
    clock.advance(1800)
    assert await naming(server, clock, server.sandbox.token("dora"), "zebra") == set()
    # Guards this test, which would also pass if nothing was answered.
    named = {path.rpartition("/")[2] for path in await naming(server, clock, ADMIN_TOKEN, "zebra")}
    assert named >= {"workloads", "explain", "pendingworkloads", "attention", "drain", "node", "usage"}


async def naming(server, clock, token: str, text: str) -> set[str]:
    """Return the routes that answer with a text, beyond that of the request and its mention by uid."""
    found = set()
    for method, pattern in sorted({(each.method, each.resource.canonical) for each in server.app.router.routes()}):
        plural = pattern.partition("/{name}")[0].rpartition("/")[2]
        path = pattern.replace("{namespace}", "team-a").replace("{name}", OWN.get(plural, "b"))
        if method not in ("GET", "PATCH") or any(each in path for each in OF_ALL):
            continue
        for query in QUERIES if method == "GET" else ("?dryRun=All",):
            for body in (None,) if method == "GET" else BODIES:
                data, headers = orjson.dumps(body), {"Content-Type": "application/merge-patch+json"}
                answer = await server.send(method, path + query, token=token, data=data, headers=headers)
                shown = orjson.dumps(answer.body).decode() + str(dict(answer.headers))
                if text in shown.replace(query, "").replace(f"(UID: uid-{text})", ""):
                    found.add(f"{method} {path}")
                clock.advance(0.1)
    return found


async def test_workloads_that_one_may_not_see_are_neither_links_nor_places_nor_rows(server, store, other):
    after = workload("uid-next", "next")
    here = workload("uid-here", "here", cluster="local")
    records = (
        replace(after, workload=replace(after.workload, terms=Terms(after=(Dependency("here", "", ok=True),)))),
        replace(here, workload=replace(here.workload, terms=Terms(after=(Dependency("there", "", ok=True),)))),
    )
    await store.commit(Changes(workloads=records), epoch=await store.lead("tests"))
    for user, names_them in (("alice", True), ("bob", False)):
        why = (await server.as_user(user, "GET", "namespaces/team-a/workloads/here/explain")).body
        assert [each["object"] for each in why["waitsFor"]] == ["there"]
        assert ("state" in why["waitsFor"][0]) is names_them
        assert [each["object"] for each in why.get("waitedForBy", ())] == (["next"] if names_them else [])
        assert why.get("waitedForByOthers", 0) == (0 if names_them else 1)
    await server.grant("alice", [PATCH])
    await other.grant("alice", PATCH, namespace="team-a")
    for name, status in (("team-a/there", 200), ("team-b/of-b", 422), ("team-b/nothing", 422)):
        data = orjson.dumps({"spec": {"order": {"before": name}}})
        headers = {"Content-Type": "application/merge-patch+json"}
        path = "namespaces/team-a/workloads/here?dryRun=All"
        assert (await server.as_user("alice", "PATCH", path, data=data, headers=headers)).status == status, name


async def test_dry_run_names_workloads_of_the_namespaces_that_the_cluster_shows(server, store, other):
    """An order about a workload of one namespace has an impact on others, too."""
    await store.queues.create(parse_manifest(cluster_queue("next", cpu="1")), author=Author("ada"))
    await store.queues.create(parse_manifest(local_queue("next", "team-a", "next")), author=Author("ada"))
    held = Admission("one", (PodSetAssignment("main", {"cpu": "default"}, {"cpu": 1000}, 1),))
    here = workload("uid-here", "here", cluster="local", state=State.ADMITTED, admitted_at=NOW)
    first = workload("uid-b", "of-b", "team-b", created=NOW - 100)
    changes = Changes(workloads=(replace(here, admission=held), first), opened=(Opened(here.workload, held, NOW),))
    await store.commit(changes, epoch=await store.lead("tests"))
    await server.grant("alice", [PATCH])
    await other.grant("alice", PATCH, namespace="team-a")
    data, headers = orjson.dumps({"spec": {"queueName": "next"}}), {"Content-Type": "application/merge-patch+json"}
    for token, named in ((server.sandbox.token("alice"), set()), (ADMIN_TOKEN, {"of-b"})):
        path = "namespaces/team-a/workloads/here?dryRun=All"
        answer = await server.send("PATCH", path, token=token, data=data, headers=headers)
        impact = answer.body["status"]["impact"]
        assert {each["name"] for each in impact["admitted"] if each["namespace"] == "team-b"} == named
        assert {each["name"] for each in impact["evicted"]} == {"here"}


async def test_pending_workloads_behind_a_page_of_hidden_ones_are_listed(server, store):
    many = tuple(workload(f"uid-{n}", f"many-{n}", created=NOW - 100) for n in range(1000))
    await store.commit(Changes(workloads=many), epoch=await store.lead("tests"))
    token = server.sandbox.token("bob")
    async with Sluice(server.url, token=token, namespace="team-a", ca=server.ca) as sluice:
        assert {each.metadata.uid async for each in sluice.pending(local_queue="main")} == {"uid-here", "uid-both"}


async def test_watch_ends_when_a_cluster_joins_whose_workloads_are_hidden(server, store, clock):
    session = await server._session(None)
    path = f"{server.url}{PREFIX}/namespaces/team-a/workloads?watch=true"
    async with session.get(path, headers={"Authorization": f"Bearer {server.sandbox.token('bob')}"}) as response:
        for _ in HERE:
            assert orjson.loads(await response.content.readline())["type"] == "ADDED"
        joined = {
            "apiVersion": "sluice.dev/v1",
            "kind": "Cluster",
            "metadata": {"name": "c"},
            "spec": {"kubeconfig": "c"},
        }
        await store.queues.create(parse_manifest(joined), author=Author("ada"))
        clock.advance(2)
        new = workload("uid-c", "of-c", cluster="c")
        await store.commit(Changes(workloads=(new,)), epoch=await store.lead("tests"))
        event = orjson.loads(await response.content.readline())
    assert (event["type"], event["object"]["code"]) == ("ERROR", 410)


# ------------------------------------------------------------------ a cluster that is slow


@pytest.mark.costly
async def test_slow_cluster_is_told_of_in_each_search_and_shown_after_some(server, store, other, clock):
    """A search needs a right for each namespace; the time for all of them is limited."""
    for number in range(6):
        await store.queues.create(parse_manifest(local_queue("main", f"more-{number}", "one")), author=Author("ada"))
    other.seconds = 1.2
    for _ in range(2):
        answer = await server.as_user("carol", "GET", "/session/workloads")
        assert "cluster b are not shown" in answer.headers["Warning"]
    while "Warning" in answer.headers:
        clock.advance(3)
        answer = await server.as_user("carol", "GET", "/session/workloads")
    assert names(answer) == {*HERE, "of-b"}


@pytest.mark.costly
async def test_reviews_of_one_user_that_wait_hide_nothing_from_others_and_keep_no_right(server, other, clock):
    other.seconds = 0.35

    async def flooded(user: str):
        """Return what a user lists behind many reviews."""
        many = (server.as_user(user, "GET", f"namespaces/team-a/workloads/x{number}") for number in range(40))
        *found, listed = await asyncio.gather(*many, server.as_user(user, "GET", "namespaces/team-a/workloads"))
        assert {answer.status for answer in found} == {404}
        return listed

    await flooded("bob")
    answer = await server.as_user("alice", "GET", "namespaces/team-a/workloads")
    assert names(answer) == HERE | THERE
    assert "Warning" not in answer.headers
    admin = other.sandbox.local("admin")
    for binding in admin.list("rolebindings", "team-a"):
        await admin.delete("rolebindings", "team-a", binding["metadata"]["name"])
    clock.advance(61)
    assert names(await flooded("alice")) == HERE


# ------------------------------------------------------------------ notifications


async def test_subscribing_to_another_cluster_needs_the_right_there(server):
    for user in ("alice", "bob"):
        await server.grant(user, [{**ALL, "resources": ["subscriptions"]}], namespace="team-a")
    for user, cluster, status in (("alice", "b", 201), ("bob", "b", 403), ("alice", "new", 403)):
        document = {
            "apiVersion": "sluice.dev/v1",
            "kind": "Subscription",
            "metadata": {"name": f"{user}-{cluster}", "namespace": "team-a"},
            "spec": {"receiver": "pager", "events": ["Admitted"], "clusters": [cluster]},
        }
        answer = await server.as_user(user, "POST", "namespaces/team-a/subscriptions", document)
        assert answer.status == status, answer.body
        assert status == 201 or cluster in answer.body["message"]
