"""Cancelling workloads: the deletion of their objects in the cluster, by the rights of the user and of Sluice."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import pytest
from api_and_cluster import ADMIN_TOKEN, ApiAndCluster, serving_with_cluster
from api_client import Answer
from workload_records import record

from admission.sandbox.auth.users import AUTHENTICATED, DEFAULT_USERS, User
from admission.store.records import State
from admission.store.store import Store
from tests.conftest import Clock

CANCEL = {"apiGroups": ["sluice.dev"], "resources": ["workloads/cancel"], "verbs": ["create"]}
DELETE = {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["delete"]}
PODS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["delete"]}
REVIEWS = [
    {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]},
    {
        "apiGroups": ["authorization.k8s.io"],
        "resources": ["subjectaccessreviews", "selfsubjectaccessreviews"],
        "verbs": ["create"],
    },
    {"apiGroups": ["", "batch"], "resources": ["configmaps", "jobs", "pods"], "verbs": ["get", "list", "watch"]},
]
CONTAINERS = [{"name": "main", "image": "pause"}]
JOB = {"template": {"spec": {"restartPolicy": "Never", "containers": CONTAINERS}}}
USERS = DEFAULT_USERS | {"sluice-token": User("sluice", "6", (AUTHENTICATED,))}


@pytest.fixture
async def server(store: Store, tmp_path: Path, clock: Clock) -> AsyncIterator[ApiAndCluster]:
    """The API and a cluster in which Sluice has the rights of its role, but not to delete; alice may cancel in a."""
    async with serving_with_cluster(store, tmp_path, clock=clock) as opened:
        for namespace in ("a", "b"):
            await opened.sandbox.local("admin").create("namespaces", "", {"metadata": {"name": namespace}})
        await opened.grant("alice", [CANCEL, DELETE], namespace="a")
        yield opened


async def job(server: ApiAndCluster, commit: Any, name: str = "train", namespace: str = "a") -> Any:
    """Create a Job and its workload."""
    admin = server.sandbox.local("admin")
    made = await admin.create("jobs", namespace, {"metadata": {"name": name}, "spec": JOB})
    await commit(record(made["metadata"]["uid"], name, namespace=namespace))
    return made


async def cancel(server: ApiAndCluster, user: str, name: str, body: Any = None, **options: Any) -> Answer:
    path = f"namespaces/{options.pop('namespace', 'a')}/workloads/{name}/cancel"
    return await server.as_user(user, "POST", path, body or {}, **options)


def exists(server: ApiAndCluster, plural: str, name: str, namespace: str = "a") -> bool:
    found = server.sandbox.local("admin").get(plural, namespace, name)
    return found is not None and "deletionTimestamp" not in found["metadata"]


async def test_a_job_is_deleted_and_its_history_and_the_audit_say_by_whom(server, store, commit):
    made = await job(server, commit)
    uid = made["metadata"]["uid"]
    preview = await cancel(server, "alice", "train", {"uid": uid}, params={"dryRun": "All"})
    assert preview.status == 200
    assert preview.body["objects"] == [
        {"apiVersion": "batch/v1", "kind": "Job", "namespace": "a", "name": "train", "uid": uid}
    ]
    assert exists(server, "jobs", "train")
    assert (await store.workloads.history(uid)) == ()
    answer = await cancel(server, "alice", "train", {"uid": uid}, params={"reason": "The data is wrong"})
    assert (answer.status, answer.body["objects"]) == (200, preview.body["objects"])
    assert not exists(server, "jobs", "train")
    (line,) = await store.workloads.history(uid)
    assert (line.state, line.reason) == (State.PENDING, "DeletionOrdered")
    assert "alice" in line.message
    assert "The data is wrong" in line.message
    (audited,) = (await store.audit.list({"verb": "cancel"})).records
    assert (audited.user, audited.namespace, audited.name, audited.reason) == (
        "alice",
        "a",
        "train",
        "The data is wrong",
    )


async def test_only_what_the_user_may_delete_in_the_cluster_is_cancelled(server, store, commit):
    await job(server, commit)
    await job(server, commit, "other", "b")
    await server.grant("alice", [CANCEL], namespace="b")
    await server.grant("bob", [CANCEL], namespace="a")
    for user, name, namespace in (("bob", "train", "a"), ("alice", "other", "b")):
        refused = await cancel(server, user, name, namespace=namespace)
        assert refused.status == 403
        assert f'User "{user}" cannot delete jobs.batch "{name}"' in refused.body["message"]
        assert exists(server, "jobs", name, namespace)
    # The right to delete alone does not suffice either.
    await server.grant("bob", [DELETE], namespace="b")
    assert (await cancel(server, "bob", "other", namespace="b")).status == 403
    assert (await store.audit.list({"verb": "cancel"})).records == ()


async def test_a_token_that_is_no_user_of_the_cluster_cancels_nothing(server, commit):
    await job(server, commit)
    refused = await server.send("POST", "namespaces/a/workloads/train/cancel", {}, token=ADMIN_TOKEN)
    assert refused.status == 403
    assert "admin token" in refused.body["message"]
    assert exists(server, "jobs", "train")


async def test_a_job_that_was_created_again_under_the_name_stays(server, store, commit):
    made = await job(server, commit)
    admin = server.sandbox.local("admin")
    await admin.delete("jobs", "a", "train", propagation="Background")
    again = await admin.create("jobs", "a", {"metadata": {"name": "train"}, "spec": JOB})
    refused = await cancel(server, "alice", "train")
    assert (refused.status, exists(server, "jobs", "train")) == (409, True)
    assert (await store.audit.list({"verb": "cancel"})).records == ()
    # By now its own workload is known: whoever still looks at the page of the former one does not cancel it.
    await commit(record(again["metadata"]["uid"], "train", created=2e9))
    refused = await cancel(server, "alice", "train", {"uid": made["metadata"]["uid"]})
    assert (refused.status, exists(server, "jobs", "train")) == (409, True)
    assert (await cancel(server, "alice", "train", {"uid": again["metadata"]["uid"]})).status == 200


async def test_what_is_finished_or_deleted_is_not_cancelled(server, commit):
    made = await job(server, commit)
    await server.sandbox.local("admin").delete("jobs", "a", "train", propagation="Background")
    assert (await cancel(server, "alice", "train")).status == 409
    await commit(replace(record(made["metadata"]["uid"], "train"), state=State.FINISHED, outcome="Succeeded"))
    assert (await cancel(server, "alice", "train")).status == 409


async def test_without_an_answer_of_the_cluster_nothing_is_lost_and_it_can_be_repeated(server, store, commit):
    made = await job(server, commit)
    match = {"verb": "delete", "resource": "jobs"}
    server.sandbox.faults.install({"rules": [{"match": match, "probability": 1, "do": "error", "code": 500}]})
    assert (await cancel(server, "alice", "train")).status == 503
    server.sandbox.faults.remove()
    assert exists(server, "jobs", "train")
    assert (await cancel(server, "alice", "train", {"uid": made["metadata"]["uid"]})).status == 200
    assert not exists(server, "jobs", "train")


async def test_the_history_says_that_a_deletion_failed_after_its_dry_run(server, store, commit):
    made = await job(server, commit)
    match = {"verb": "delete", "resource": "jobs"}
    rule = {"match": match, "probability": 0.5, "do": "error", "code": 500}
    server.sandbox.faults.install({"seed": 31, "rules": [rule]})  # strikes the second request
    assert (await cancel(server, "alice", "train")).status == 503
    ordered, failed = await store.workloads.history(made["metadata"]["uid"])
    assert (ordered.reason, failed.reason) == ("DeletionOrdered", "NotDeleted")
    assert "the cluster did not answer" in failed.message
    assert exists(server, "jobs", "train")


async def test_sluice_says_that_it_lacks_the_right(store, tmp_path, clock, commit):
    async with serving_with_cluster(store, tmp_path, clock=clock, users=USERS) as server:
        await server.sandbox.local("admin").create("namespaces", "", {"metadata": {"name": "a"}})
        await server.grant("sluice", REVIEWS)
        await server.grant("alice", [CANCEL, DELETE])
        await job(server, commit)
        review = {"reviews": [{"verb": "create", "resource": "workloads", "subresource": "cancel", "namespace": "a"}]}
        assert (await server.as_user("alice", "POST", "/session/access", review)).body == {"allowed": [False]}
        refused = await cancel(server, "alice", "train")
        assert refused.status == 403
        assert "Sluice itself lacks the right to cancel workloads" in refused.body["message"]
        await server.grant("sluice", [CANCEL])
        assert (
            "Sluice itself lacks the right to delete jobs.batch"
            in ((await cancel(server, "alice", "train")).body["message"])
        )
        assert (await store.audit.list({"verb": "cancel"})).records == ()
        await server.grant("sluice", [DELETE])
        assert (await cancel(server, "alice", "train")).status == 200


async def test_a_group_is_cancelled_with_its_pods_and_a_later_group_of_the_name_stays(server, commit):
    admin = server.sandbox.local("admin")
    pods = []
    for name in ("first", "second"):
        metadata = {"name": name, "labels": {"sluice.dev/pod-group-name": "gang"}}
        pods.append(await admin.create("pods", "a", {"metadata": metadata, "spec": {"containers": CONTAINERS}}))
    uid = str(uuid5(NAMESPACE_URL, f"{pods[0]['metadata']['uid']}/gang"))
    await server.grant("alice", [PODS], namespace="a")
    await server.grant("bob", [CANCEL, DELETE], namespace="a")
    earlier = record("an-earlier-group", "gang")
    earlier = replace(earlier, workload=replace(earlier.workload, kind="PodGroup", api_version="sluice.dev/v1"))
    await commit(earlier)
    refused = await cancel(server, "alice", "gang")
    assert (refused.status, exists(server, "pods", "first")) == (409, True)
    found = replace(earlier, workload=replace(earlier.workload, uid=uid, created=2e9))
    await commit(found)
    assert (await cancel(server, "bob", "gang")).status == 403
    assert exists(server, "pods", "first")
    answer = await cancel(server, "alice", "gang", {"uid": uid})
    assert [each["name"] for each in answer.body["objects"]] == ["first", "second"]
    assert not exists(server, "pods", "first")
    assert not exists(server, "pods", "second")


async def test_a_pod_whose_controller_would_replace_it_is_not_deleted(server, commit):
    admin = server.sandbox.local("admin")
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": True}
    metadata = {"name": "web-1", "ownerReferences": [owner]}
    pod = await admin.create("pods", "a", {"metadata": metadata, "spec": {"containers": CONTAINERS}})
    found = record(pod["metadata"]["uid"], "web-1")
    await commit(replace(found, workload=replace(found.workload, kind="Pod", api_version="v1")))
    await server.grant("alice", [PODS], namespace="a")
    refused = await cancel(server, "alice", "web-1")
    assert refused.status == 409
    assert "ReplicaSet web" in refused.body["message"]
    assert exists(server, "pods", "web-1")
