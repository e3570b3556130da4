"""Workload orders and usage reports of team leads and users, with the roles of deploy/rbac in the sandbox's RBAC."""

from __future__ import annotations

import pytest
from api_and_cluster import ADMIN_TOKEN, serving_with_cluster
from queue_objects import cluster_queue, flavor, local_queue, priority_class
from user_permissions import bind, create_roles
from workload_records import NOW, record

from admission.model.manifests import parse_manifest
from admission.sandbox.apiserver.requests import User
from admission.sandbox.auth.users import AUTHENTICATED, MASTERS
from admission.store.audit_log import Author
from admission.store.records import Changes

OWN, OTHER = "namespaces/team-a/workloads", "namespaces/team-b/workloads"


@pytest.fixture
async def server(store, tmp_path, clock):
    """Workloads of two teams in one queue: a-first, b-first, a-last; lea leads team-a, eva has the role edit there."""
    for document in (
        cluster_queue("one"),
        *(local_queue(name, "team-a", "one") for name in ("main", "fast")),
        local_queue("main", "team-b", "one"),
        priority_class("high", 100),
    ):
        await store.queues.create(parse_manifest(document), author=Author("ada"))
    line = [("a-first", "team-a"), ("b-first", "team-b"), ("a-last", "team-a")]
    records = [record(name, name, namespace=namespace, created=NOW + age) for age, (name, namespace) in enumerate(line)]
    await store.commit(Changes(workloads=tuple(records)), epoch=await store.lead("tests"))
    users = {f"{name}-token": User(name, groups=(AUTHENTICATED,)) for name in ("lea", "eva")}
    users |= {"root-token": User("root", groups=(MASTERS,)), "sluice-token": User("sluice", groups=(MASTERS,))}
    async with serving_with_cluster(store, tmp_path, clock=clock, users=users) as found:
        root = found.sandbox.local("root")
        await create_roles(root)
        for name in ("team-a", "team-b"):
            await root.create("namespaces", "", {"metadata": {"name": name}})
        for user, role in (("lea", "sluice-team-lead"), ("lea", "view"), ("eva", "edit")):
            await bind(root, role, user, namespace="team-a")
        yield found


async def patch(server, user: str, path: str, spec: dict[str, object]):
    token = ADMIN_TOKEN if user == "admin" else f"{user}-token"
    return await server.send(
        "PATCH", path, {"spec": spec}, token=token, headers={"Content-Type": "application/merge-patch+json"}
    )


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"queueName": "fast"}, ""),
        ({"order": {"top": True}}, ""),
        ({"order": {"before": "a-first"}}, ""),
        ({"priority": 1}, ""),
        ({"priority": 100}, "would come before workloads of other namespaces"),
        ({"priority": 101}, "spec.priority: more than 100, which is the highest of all WorkloadPriorityClasses"),
        ({"order": {"before": "team-b/b-first"}}, "a place before a workload of another namespace"),
        ({"hold": True}, "spec.hold needs the right to patch workloads in all namespaces"),
        ({"active": False}, "spec.active needs the right"),
    ],
)
async def test_team_lead_may_order_workloads_only_within_the_namespace(server, spec, says):
    answer = await patch(server, "lea", f"{OWN}/a-last", spec)
    if says:
        assert answer.status in (403, 422)
        assert says in answer.body["message"]
        assert (await patch(server, "admin", f"{OWN}/a-last", spec)).status == 200
    else:
        assert answer.status == 200, answer.body
        assert (await patch(server, "lea", f"{OTHER}/b-first", spec)).status == 403
        assert (await patch(server, "eva", f"{OWN}/a-last", spec)).status == 403


async def test_top_order_of_a_team_lead_swaps_ranks_and_of_an_admin_sets_a_new_rank(server, store):
    assert (await patch(server, "lea", f"{OWN}/a-last", {"order": {"top": True}})).status == 200
    orders = {order.uid: order.rank_at for order in (await store.orders.of(["a-first", "a-last", "b-first"])).orders}
    assert orders == {"a-last": NOW, "a-first": NOW + 2}
    assert (await patch(server, "admin", f"{OWN}/a-first", {"order": {"top": True}})).status == 200
    (order,) = (await store.orders.of(["a-first"])).orders
    assert order.rank_at < NOW


async def test_users_see_only_the_usage_of_their_namespace_and_their_own(server, clock):
    clock.advance(3600)
    for user in ("lea", "eva"):
        token = f"{user}-token"
        assert (await server.send("GET", "namespaces/team-a/reports/usage", token=token)).status == 200
        assert (await server.send("GET", "reports/mine", token=token)).status == 200
        assert (await server.send("GET", "namespaces/team-b/reports/usage", token=token)).status == 403
        assert (await server.send("GET", "reports/usage", token=token)).status == 403
        quota = await server.send("GET", "namespaces/team-a/reports/usage?quota=true&by=namespace", token=token)
        assert {item["namespace"] for item in quota.body["items"]} == {"team-a"}
        assert "capacity" not in quota.body
        assert (await server.send("GET", "reports/mine?user=ada", token=token)).status == 400
        assert (await server.send("GET", "namespaces/team-a/reports/usage?namespace=team-b", token=token)).status == 400


async def test_cost_centers_are_also_labels_of_namespaces_and_capacity_is_that_of_the_nodes(server, store, clock):
    root = server.sandbox.local("root")
    await root.create("namespaces", "", {"metadata": {"name": "billed", "labels": {"cost-center": "4711"}}})
    await store.queues.create(parse_manifest(local_queue("main", "billed", "one")), author=Author("ada"))
    await store.queues.create(parse_manifest(flavor("default")), author=Author("ada"))
    node = {"metadata": {"name": "n-1"}, "status": {"allocatable": {"cpu": "16", "example.com/gpu": "-1"}}}
    await root.create("nodes", "", node)
    clock.advance(3600)
    found = await server.send("GET", "reports/usage?quota=true&by=label:cost-center&from=1d", token=ADMIN_TOKEN)
    assert found.status == 200, found.body
    assert {item["labels"]["cost-center"] for item in found.body["items"]} == {"", "4711"}
    assert found.body["capacity"]["cpu"] == "16"
    found = await server.send("GET", "reports/nodes", token=ADMIN_TOKEN)
    assert found.body["items"] == [{"flavor": "default", "nodes": 1, "allocatable": {"cpu": "16"}}]
