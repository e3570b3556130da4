"""Names that lead to a workload: of its object, of its pods and other parts, and of what creates several workloads."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from api_and_cluster import ADMIN_TOKEN, ApiAndCluster, serving_with_cluster
from workload_records import NOW, record

from admission.kinds.base import POD_OWNER, WORKLOAD_UID
from admission.store.records import Changes, State, WorkloadRecord
from admission.store.store import Store
from tests.conftest import Clock

UID = "00000000-0000-4000-8000-00000000000"
JOB, PODS, APPS = ("Job", "batch/v1"), ("Pod", "v1"), "apps/v1"
GROUP = ("PodGroup", "sluice.dev/v1")
NOTHING = "check the namespace (-n), that the object has the label sluice.dev/queue-name, and that no other controller"


def of_kind(
    kind: tuple[str, str], name: str, uid: str = "", *, age: float = 0, namespace: str = "a", **fields: Any
) -> WorkloadRecord:
    found = record(uid or f"uid-{namespace}-{name}", name, namespace=namespace, created=NOW - age, **fields)
    return replace(found, workload=replace(found.workload, kind=kind[0], api_version=kind[1]))


RECORDS = (
    of_kind(JOB, "train", f"{UID}1"),
    of_kind(("JobSet", "jobset.x-k8s.io/v1alpha2"), "set", f"{UID}2"),
    of_kind(("RayJob", "ray.io/v1"), "ray", f"{UID}3"),
    of_kind(GROUP, "db"),
    of_kind(GROUP, "llm-0"),
    of_kind(GROUP, "llm-1"),
    of_kind(GROUP, "gang"),
    of_kind(PODS, "web-765cbf7b9f-tghgp"),
    of_kind(PODS, "web-765cbf7b9f-czq6z", age=1),
    of_kind(PODS, "web-765cbf7b9f-zzzzz", state=State.FINISHED, outcome="Deleted", finished_at=NOW),
    of_kind(JOB, "nightly-29930474", age=9, state=State.FINISHED, outcome="Succeeded", finished_at=NOW),
    of_kind(JOB, "nightly-29930475"),
    of_kind(JOB, "elsewhere", namespace="b"),
    of_kind(JOB, "secret", f"{UID}9", namespace="b"),
)


def owner(kind: str, name: str, uid: str, api_version: str = "batch/v1") -> list[dict[str, Any]]:
    return [{"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": True}]


def pod(name: str, *, labels: dict[str, str] | None = None, owners: Any = ()) -> dict[str, Any]:
    metadata = {"name": name, "labels": labels or {}, "ownerReferences": [*owners]}
    return {"metadata": metadata, "spec": {"containers": [{"name": "main", "image": "pause"}]}}


@pytest.fixture
async def server(store: Store, tmp_path: Path, clock: Clock) -> AsyncIterator[ApiAndCluster]:
    await store.commit(Changes(workloads=RECORDS), epoch=await store.lead("tests"))
    async with serving_with_cluster(store, tmp_path, clock=clock) as found:
        admin = found.sandbox.local("admin")
        await admin.create("namespaces", "", {"metadata": {"name": "a"}})
        child = await admin.create(
            "jobs",
            "a",
            {
                "metadata": {"name": "set-workers-0", "ownerReferences": owner("JobSet", "set", f"{UID}2")},
                "spec": {"template": {"spec": {**pod("x")["spec"], "restartPolicy": "Never"}}},
            },
        )
        for name, labels in (("plain", {}), ("unmanaged", {"sluice.dev/queue-name": "main"})):
            template = {"spec": {**pod("x")["spec"], "restartPolicy": "Never"}}
            await admin.create(
                "jobs", "a", {"metadata": {"name": name, "labels": labels}, "spec": {"template": template}}
            )
        template = {"metadata": {"labels": {"app": "db"}}, "spec": pod("x")["spec"]}
        spec = {"selector": {"matchLabels": {"app": "db"}}, "serviceName": "db", "template": template}
        await admin.create("statefulsets", "a", {"metadata": {"name": "db"}, "spec": spec})
        for each in (
            pod("train-x7k2p", labels={POD_OWNER: f"{UID}1"}),
            pod("set-workers-0-x7k2p", owners=owner("Job", "set-workers-0", child["metadata"]["uid"])),
            pod("ray-abcde-head-0", labels={WORKLOAD_UID: f"{UID}3"}),
            pod("db-0", owners=owner("StatefulSet", "db", "some-uid", APPS)),
            pod("llm-1-1", owners=owner("StatefulSet", "llm-1", "another-uid", APPS)),
            pod("member", labels={"sluice.dev/pod-group-name": "gang"}),
            pod("traversing", owners=owner("Job", "../jobs/set-workers-0", "no-uid")),
            pod("forged", labels={WORKLOAD_UID: f"{UID}9"}),
            pod("alone"),
        ):
            await admin.create("pods", "a", each)
        yield found


async def found_by(
    server: ApiAndCluster, name: str, *, kind: str = "", user: str = "", path: str = ""
) -> tuple[int, str]:
    """Status of a GET, and the name of the workload's object or the message."""
    token = server.sandbox.token(user) if user else ADMIN_TOKEN
    query = f"?objectKind={kind}" if kind else ""
    said = await server.send("GET", f"namespaces/a/workloads/{name}{path}{query}", token=token)
    body = said.body
    return said.status, body["spec"]["object"]["name"] if said.status == 200 and not path else body.get("message", "")


@pytest.mark.parametrize(
    ("name", "kind", "leads_to"),
    [
        ("train", "", "train"),
        ("train", "job.batch", "train"),
        ("train", "workload.sluice.dev", "train"),
        ("train", "wl", "train"),
        ("train-x7k2p", "", "train"),
        ("train-x7k2p", "pods", "train"),
        ("set-workers-0", "", "set"),
        ("set-workers-0", "jobs", "set"),
        ("set-workers-0-x7k2p", "", "set"),
        ("ray-abcde-head-0", "po", "ray"),
        ("db", "sts", "db"),
        ("db-0", "", "db"),
        ("llm-1-1", "", "llm-1"),
        ("member", "", "gang"),
        ("nightly", "", "nightly-29930475"),
        ("nightly", "cj", "nightly-29930475"),
    ],
)
async def test_name_leads_to_the_workload_that_the_object_is_or_belongs_to(
    server: ApiAndCluster, name: str, kind: str, leads_to: str
) -> None:
    assert await found_by(server, name, kind=kind) == (200, leads_to)
    if not kind:
        assert (await found_by(server, name, path="/explain"))[0] == 200
        assert (await found_by(server, name, path="/history"))[0] == 200


@pytest.mark.parametrize(
    ("name", "kind", "says"),
    [
        ("web", "", '"web" has 2 workloads in namespace "a", use one of these names: pod/web-765cbf7b9f-tghgp, pod/'),
        ("web", "deployment.apps", '"web" has 2 workloads'),
        ("llm", "", "use one of these names: podgroup/llm-1, podgroup/llm-0"),
        ("train", "pod", 'of kind pod not found in namespace "a"; the one there is of kind Job: use job/train'),
        ("trian", "", 'workloads.sluice.dev "trian" not found in namespace "a"; did you mean "train"?'),
        ("set-workers-0-gone9", "", '; did you mean "set"?'),
        ("nightly-2993", "", '; did you mean "nightly-29930475"?'),
        ("elsewhere", "", '; there is one in namespace "b": add -n b'),
        ("alone", "", "; the Pod alone exists, but has no queue label (sluice.dev/queue-name), so that it is"),
        ("plain", "", "; the Job plain exists, but has no queue label"),
        ("plain", "job", "; the Job plain exists, but has no queue label"),
        ("unmanaged", "", "; the Job unmanaged exists, but is not queued: check that its kind is in the setting"),
        ("traversing", "", "; the Pod traversing exists, but has no queue label"),
        ("forged", "", "; the Pod forged exists, but has no queue label"),
        ("x", "configmap", NOTHING),
    ],
)  # fmt: skip
async def test_name_that_leads_to_no_single_workload_is_answered_with_names_that_do(
    server: ApiAndCluster, name: str, kind: str, says: str
) -> None:
    status, message = await found_by(server, name, kind=kind)
    assert status == 404
    assert says in message


@pytest.mark.parametrize("name", ["train-x7k2p", "nightly", "web"])
async def test_workload_is_changed_only_by_its_own_name(server: ApiAndCluster, name: str) -> None:
    headers = {"Content-Type": "application/merge-patch+json"}
    said = await server.send(
        "PATCH", f"namespaces/a/workloads/{name}", {"spec": {"priority": 7}}, token=ADMIN_TOKEN, headers=headers
    )
    assert said.status == 404
    assert "use " in said.body["message"]
    assert (await server.send("GET", "namespaces/a/workloads/train", token=ADMIN_TOKEN)).body["spec"]["priority"] == 5


async def test_names_of_workloads_are_told_only_to_those_who_may_list_them(server: ApiAndCluster) -> None:
    rule = {"apiGroups": ["sluice.dev"], "resources": ["workloads"], "verbs": ["get"]}
    names = ["member", "trian", "web", "elsewhere"]
    await server.grant("alice", [{**rule, "resourceNames": names}], namespace="a")
    for name in names:
        status, message = await found_by(server, name, user="alice")
        assert (status, NOTHING in message) == (404, True), message
    await server.grant("bob", [{**rule, "verbs": ["get", "list"]}], namespace="a")
    assert await found_by(server, "member", user="bob") == (200, "gang")
    assert "exists" not in (await found_by(server, "plain", user="bob"))[1], "he may not read Jobs"
    assert (
        '"trian" not found in namespace "a"; did you mean "train"?' in (await found_by(server, "trian", user="bob"))[1]
    )
    assert NOTHING in (await found_by(server, "elsewhere", user="bob"))[1]


async def test_search_finds_the_workload_of_a_pod(server: ApiAndCluster) -> None:
    said = await server.send("GET", "/session/workloads?find=set-workers-0-x7k2p", token=ADMIN_TOKEN)
    assert [each["metadata"]["ownerReferences"][0]["name"] for each in said.body["items"]] == ["set"]


@pytest.mark.parametrize(
    "name",
    [
        "..%2Fjobs%2Fplain",
        "plain%2Fstatus",
        "plain%3Fx=1",
        "..%2F..%2F..%2Fv1%2Fsecrets",
        ".",
        "%25",
        "a,b",
        "Ä",
        "x" * 300,
    ],
)
@pytest.mark.parametrize("kind", ["", "job", "pod"])
async def test_name_that_no_object_can_have_is_not_looked_for_in_the_cluster(
    server: ApiAndCluster, name: str, kind: str
) -> None:
    before = sum(server.sandbox.requests.values())
    said = await server.send("GET", f"namespaces/a/workloads/{name}?objectKind={kind}", token=ADMIN_TOKEN)
    assert said.status in (400, 404)
    assert "exists" not in str(said.body)
    assert sum(server.sandbox.requests.values()) == before
