"""Workloads of other namespaces in responses to users of one namespace: their existence is shown, not their names."""

from __future__ import annotations

from dataclasses import replace

import pytest
from api_and_cluster import ADMIN_TOKEN, serving_with_cluster
from queue_objects import cluster_queue, flavor, local_queue
from workload_records import NOW, record

from admission.api.resources.explaining_engine import NoController
from admission.model.manifests import parse_manifest
from admission.model.workload import PodSet
from admission.store.audit_log import Author
from admission.store.records import Changes, State, Transition

RESOURCES = ["workloads", "workloads/explain", "workloads/history"]
READ = [{"apiGroups": ["sluice.dev"], "resources": RESOURCES, "verbs": ["get", "list"]}]
PREEMPTED = "Preempted to accommodate {} (UID: uid-secret) due to prioritization in the ClusterQueue"
FOREIGN = "a workload of another namespace"


class Replica(NoController):
    """A replica that knows the cluster and does not lead, so that responses come from the database."""

    def namespaces(self) -> dict[str, dict[str, str]]:
        return {"team-a": {}, "team-b": {}}


@pytest.fixture
async def server(store, tmp_path, clock):
    for document in (
        flavor("default"),
        cluster_queue("one", cpu="1"),
        local_queue("main", "team-a", "one"),
        local_queue("main", "team-b", "one"),
    ):
        await store.queues.create(parse_manifest(document), author=Author("ada"))
    pods = (PodSet(name="main", count=1, requests={"cpu": 1000}),)
    records = [
        record("uid-secret", "secret-project", namespace="team-b", created=NOW - 20),
        record("uid-own", "own", namespace="team-a", created=NOW - 10),
        record("uid-last", "last", namespace="team-a", evict_reason="Preempted", message=PREEMPTED.format(FOREIGN)),
    ]
    records = [replace(each, workload=replace(each.workload, pod_sets=pods)) for each in records]
    preempted = Transition("uid-last", NOW, State.PENDING, "Preempted", PREEMPTED.format(FOREIGN))
    changes = Changes(workloads=tuple(records), transitions=(preempted,))
    await store.commit(changes, epoch=await store.lead("tests"))
    async with serving_with_cluster(store, tmp_path, clock=clock, deciding=Replica()) as found:
        for name in ("team-a", "team-b"):
            await found.sandbox.local("admin").create("namespaces", "", {"metadata": {"name": name}})
        await found.grant("alice", READ, namespace="team-a")
        await found.grant("bob", READ, namespace="team-a")
        await found.grant("bob", READ, namespace="team-b")
        yield found


@pytest.mark.parametrize("user", ["alice", "bob", ""])
async def test_workloads_ahead_are_named_only_in_the_own_namespace(server, user):
    token = server.sandbox.token(user) if user else ADMIN_TOKEN
    answer = await server.send("GET", "namespaces/team-a/workloads/last/explain", token=token)
    assert (answer.status, answer.body["aheadFirst"]) == (200, ["team-a/own"])


@pytest.mark.parametrize(("user", "named"), [("alice", FOREIGN), ("", "workload team-b/secret-project")])
async def test_preempting_workload_is_named_only_to_users_who_may_read_all_namespaces(server, user, named):
    token = server.sandbox.token(user) if user else ADMIN_TOKEN
    answer = await server.send("GET", "namespaces/team-a/workloads/last/history", token=token)
    assert answer.status == 200
    assert [item["message"] for item in answer.body["items"]] == [PREEMPTED.format(named)]


async def test_workload_documents_do_not_name_workloads_of_other_namespaces(server):
    for path in ("", "/explain", "/history"):
        answer = await server.as_user("alice", "GET", f"namespaces/team-a/workloads/last{path}")
        assert answer.status == 200
        assert "secret" not in str(answer.body).replace("(UID: uid-secret)", "")
