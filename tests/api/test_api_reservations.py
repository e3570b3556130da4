"""Reservations over the API: who may reserve, warnings about what cannot be kept, and the status."""

from __future__ import annotations

import pytest
from api_and_cluster import serving_with_cluster
from queue_objects import cluster_queue, flavor, local_queue, reservation, topology
from user_permissions import allow

from admission.sandbox.apiserver.requests import User
from admission.sandbox.auth.users import AUTHENTICATED, MASTERS

LATER = {"start": "2031-12-01T08:00", "end": "2031-12-01T18:00"}


async def test_author_needs_the_right_to_reserve_in_the_cluster_queue(store, tmp_path, clock):
    users = {"bob-token": User("bob", groups=(AUTHENTICATED,)), "sluice-token": User("sluice", groups=(MASTERS,))}
    users |= {"root-token": User("root", groups=(MASTERS,))}
    rules = [
        {"apiGroups": ["sluice.dev"], "resources": ["reservations"], "verbs": ["create", "update", "patch"]},
        {"apiGroups": ["sluice.dev"], "resources": ["clusterqueues"], "resourceNames": ["one"], "verbs": ["reserve"]},
    ]
    async with serving_with_cluster(store, tmp_path, clock=clock, users=users) as server:
        await allow(server.sandbox.local("root"), "bob", *rules)

        async def send(method: str, path: str, body):
            return await server.send(
                method, path, body, token="bob-token", headers={"Content-Type": "application/json"}
            )

        own, other = reservation("own", "one", 1), reservation("other", "two", 1)
        assert (await send("POST", "reservations", own)).status == 201
        refused = await send("POST", "reservations", other)
        assert refused.status == 403
        assert 'cannot reserve resource "clusterqueues"' in refused.body["message"]
        assert (await send("PUT", "reservations/own", reservation("own", "two", 1))).status in (403, 422)


def warnings(answer) -> list[str]:
    return [text.removeprefix('299 - "').removesuffix('"') for text in answer.headers.getall("Warning", [])]


async def test_reservation_is_written_with_warnings_and_a_status(api):
    await api.post("resourceflavors", flavor("default"))
    await api.post("clusterqueues", cluster_queue("one"))
    await api.post("namespaces/a/localqueues", local_queue("main", "a", "one"))
    good = await api.post("reservations", reservation("good", "one", 3))
    assert (good.status, warnings(good)) == (201, [])
    status = good.body["status"]
    assert (status["phase"], status["start"]) == ("Pending", "2030-12-01T08:00:00Z")
    more = await api.post("reservations", reservation("more", "one", 2, holders={"localQueues": ["none"]}))
    assert warnings(more) == [
        "ClusterQueue one can use at most 4 cpu of default; not all of 2 can be kept beside good",
        "no LocalQueue none leads to ClusterQueue one",
    ]
    rack = await api.post("reservations", reservation("rack", "one", 1, topology={"level": "rack"}, **LATER))
    assert "of default no flavor has a Topology with the level rack" in ", ".join(warnings(rack))
    await api.post("topologies", topology("t", "rack", "kubernetes.io/hostname"))
    await api.put(
        "resourceflavors/default", flavor("default") | {"spec": {"nodeLabels": {"a": "b"}, "topologyName": "t"}}
    )
    given = reservation("rack", "one", 1, topology={"level": "rack", "domains": ["r1"]}, **LATER)
    assert warnings(await api.put("reservations/rack", given)) == []
    kept = await api.put("reservations/rack", reservation("rack", "one", 2, topology={"level": "rack"}, **LATER))
    assert kept.body["spec"]["topology"]["domains"] == ["r1"], "it was chosen before, and the times are the same"
    times = {"start": "2031-12-01T08:00", "end": "2031-12-01T19:00"}
    anew = await api.put("reservations/rack", reservation("rack", "one", 2, topology={"level": "rack"}, **times))
    assert not anew.body["spec"]["topology"].get("domains")
    elsewhere = await api.post("reservations", reservation("elsewhere", "none", 2))
    assert warnings(elsewhere) == ["there is no ClusterQueue none; nothing is kept until it is created"]
    listed = await api.get("reservations", params={"fieldSelector": "spec.clusterQueue=one"})
    assert [each["metadata"]["name"] for each in listed.body["items"]] == ["good", "more", "rack"]


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        ({"end": "2030-12-01T08:00:00"}, "spec.end: is not after start"),
        ({"start": "tomorrow"}, "spec.start: "),
        ({"timeZone": "CEST"}, "spec.timeZone: "),
        ({"quotas": []}, "spec.quotas: "),
        ({"quotas": [{"flavor": "default", "resource": "cpu", "amount": 0}]}, "spec.quotas[0].amount: must be more"),
        ({"quotas": [{"flavor": "default", "resource": "cpu", "amount": -1}]}, "spec.quotas[0].amount: "),
        ({"releaseUnusedAfterSeconds": 1}, "spec.releaseUnusedAfterSeconds: "),
        ({"atStart": "Kill"}, "spec.atStart: "),
        (
            {"topology": {"level": "rack", "count": 2, "domains": ["r1"]}},
            "spec.topology.domains: has 1, and count is 2",
        ),
    ],
)
async def test_faults_have_their_path(api, spec, fault):
    answer = await api.post("reservations", reservation("wrong", "one", 3, **spec))
    assert answer.status == 422
    assert fault in answer.body["message"]


async def test_reservation_stays_in_its_cluster_queue(api):
    await api.post("reservations", reservation("good", "one", 3))
    moved = await api.put("reservations/good", reservation("good", "two", 3))
    assert moved.status == 422
    assert "spec.clusterQueue: cannot be changed from one; create another Reservation" in moved.body["message"]
