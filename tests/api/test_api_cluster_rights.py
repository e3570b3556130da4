"""What users of the API see of workloads in another cluster: what the RBAC of that cluster allows them, too."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace

import orjson
import pytest
from api_and_cluster import ADMIN_TOKEN, serving_with_cluster
from queue_objects import cluster_queue, flavor, local_queue
from user_permissions import allow
from workload_records import NOW, record

from admission.api.resources.clusters_in_reach import Reached
from admission.api.resources.explaining_engine import NoController
from admission.cluster.client import Client
from admission.cluster.errors import Unreachable
from admission.kinds import all_kinds
from admission.model.manifests import parse_manifest
from admission.model.workload import PodSet
from admission.sandbox.apiserver.requests import User
from admission.sandbox.auth.users import DEFAULT_USERS
from admission.sandbox.sandbox import Sandbox
from admission.store.audit_log import Author
from admission.store.records import Changes, State, Transition

RESOURCES = ["workloads", "workloads/explain", "workloads/history", "localqueues/pendingworkloads"]
READ = {"apiGroups": ["sluice.dev"], "resources": RESOURCES, "verbs": ["get", "list", "watch"]}
PATCH = {"apiGroups": ["sluice.dev"], "resources": ["workloads"], "verbs": ["patch"]}
QUEUES = {"apiGroups": ["sluice.dev"], "resources": ["clusterqueues/pendingworkloads", "reports"], "verbs": ["get"]}
PREEMPTED = "Preempted to accommodate {} (UID: uid-there) due to prioritization in the ClusterQueue"
USERS = {**DEFAULT_USERS, "carol-token": User("carol", "9", ("system:authenticated",))}
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

    @asynccontextmanager
    async def reach(self, cluster):
        assert cluster.name == "b"
        if self.is_cut:
            raise Unreachable("no route to host")
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


def workload(uid: str, name: str, namespace: str = "team-a", *, cluster: str = "b", **fields):
    pods = (PodSet(name="main", count=1, requests={"cpu": 1000}),)
    found = record(uid, name, fields.pop("state", State.PENDING), namespace=namespace, **fields)
    return replace(found, workload=replace(found.workload, pod_sets=pods, cluster=cluster))


@pytest.fixture
async def server(store, other, tmp_path, clock):
    """Alice may read in both clusters, bob in `local` only, carol everywhere here and in team-b there."""
    for document in (
        flavor("default"),
        cluster_queue("one", cpu="1"),
        local_queue("main", "team-a", "one"),
        local_queue("main", "team-b", "one"),
        {"apiVersion": "sluice.dev/v1", "kind": "Cluster", "metadata": {"name": "b"}, "spec": {"kubeconfig": "b"}},
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


async def test_superusers_and_one_cluster_cost_no_reviews_elsewhere(server, other):
    await server.send("GET", "workloads", token=ADMIN_TOKEN)
    assert not any(plural == "subjectaccessreviews" for _, plural, _ in other.sandbox.requests)
