"""Subscriptions by the API and the command line: permissions, validation, status and warnings."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import yaml
from api_and_cluster import serving_with_cluster
from api_client import TOKEN, serving
from click.testing import CliRunner
from user_permissions import bind, create_roles

from admission.cli.main import main
from admission.model.manifests import parse_manifest
from admission.notifications.receivers import Receiver, Receivers
from admission.sandbox.apiserver.requests import User
from admission.sandbox.auth.users import AUTHENTICATED, MASTERS
from admission.store.audit_log import Author
from admission.store.notifications import Notification, SubscriptionState

OWN = "namespaces/team-a/subscriptions"


def document(name: str = "mine", namespace: str = "team-a", **spec: Any) -> dict[str, Any]:
    given = {"receiver": "pager", "events": ["Finished"], **spec}
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "sluice.dev/v1", "kind": "Subscription", "metadata": metadata, "spec": given}


@pytest.fixture
async def server(store, tmp_path, clock):
    """eva has the role edit in team-a, and vic view; vera may read all of Sluice and edit in team-a."""
    names = ("eva", "vic", "vera")
    users = {f"{name}-token": User(name, groups=(AUTHENTICATED,)) for name in names}
    users["sluice-token"] = User("sluice", groups=(MASTERS,))
    async with serving_with_cluster(store, tmp_path, clock=clock, users=users) as found:
        admin = found.sandbox.local("admin")
        await create_roles(admin)
        for name in ("team-a", "team-b"):
            await admin.create("namespaces", "", {"metadata": {"name": name}})
        for user, role, namespace in (
            ("eva", "edit", "team-a"),
            ("vic", "view", "team-a"),
            ("vera", "edit", "team-a"),
            ("vera", "sluice-viewer", ""),
        ):
            await bind(admin, role, user, namespace=namespace)
        yield found


async def send(server, user: str, method: str, path: str, body: Any, form: str = "application/json"):
    return await server.send(method, path, body, token=f"{user}-token", headers={"Content-Type": form})


@pytest.mark.parametrize(
    ("user", "namespace", "spec", "says"),
    [
        ("eva", "team-a", {}, ""),
        ("vic", "team-a", {}, 'cannot create resource "subscriptions"'),
        ("eva", "team-b", {}, 'cannot create resource "subscriptions"'),
        ("eva", "team-a", {"scope": "Cluster"}, 'cannot list resource "workloads" in API group "sluice.dev" at the'),
        ("eva", "team-a", {"events": ["QuotaChanged"]}, 'cannot get resource "clusterqueues/history"'),
        ("vera", "team-a", {"scope": "Cluster", "events": ["QuotaChanged", "Admitted"]}, ""),
    ],
)
async def test_subscribing_requires_permission_to_read_the_notified_objects(server, user, namespace, spec, says):
    path = f"namespaces/{namespace}/subscriptions"
    answer = await send(server, user, "POST", path, document(namespace=namespace, **spec))
    assert answer.status == (403 if says else 201), answer.body
    assert says in answer.body.get("message", "")


async def test_changing_a_subscription_requires_the_permissions_for_creating_it(server):
    assert (await send(server, "eva", "POST", OWN, document())).status == 201
    wide = {"spec": {"scope": "Cluster"}}
    path, merge, apply = f"{OWN}/mine", "application/merge-patch+json", "application/apply-patch+yaml"
    by = "?fieldManager=test&force=true"
    refused = [
        await send(server, "eva", "PATCH", path, wide, merge),
        await send(server, "eva", "PATCH", path + by, document(scope="Cluster"), apply),
        await send(server, "eva", "PUT", path, document(scope="Cluster")),
        await send(server, "eva", "PATCH", f"{OWN}/new{by}", document("new", scope="Cluster"), apply),
    ]
    assert [answer.status for answer in refused] == [403] * 4
    assert (await send(server, "vera", "PATCH", path, wide, merge)).status == 200
    # It covers all namespaces now: a user who may not read those must not redirect it to another receiver.
    assert (await send(server, "eva", "PATCH", path, {"spec": {"receiver": "evas"}}, merge)).status == 403
    assert (await send(server, "eva", "PATCH", path, {"spec": {"scope": "Namespace"}}, merge)).status == 200
    assert (await send(server, "eva", "DELETE", path, None)).status == 200


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"events": []}, "spec.events: name at least one event, or give pendingLongerThanSeconds"),
        ({"events": ["Started"]}, "spec.events[0]"),
        ({"pendingLongerThanSeconds": 59}, "spec.pendingLongerThanSeconds"),
        ({"limitPerHour": 0}, "spec.limitPerHour"),
        ({"limitPerHour": 10**9}, "spec.limitPerHour"),
        ({"receiver": "http://127.0.0.1/"}, "spec.receiver"),
        ({"scope": "Cluster", "localQueue": "main"}, "spec.localQueue: is of one namespace"),
    ],
)
async def test_invalid_subscription_is_refused_with_its_field(store, spec, says):
    async with serving(store) as api:
        answer = await api.post(OWN, document(**spec))
        assert answer.status == 422, answer.body
        assert says in answer.body["message"]


async def test_subscription_status_and_table_show_the_delivery_of_notifications(store, clock):
    epoch = await store.lead("test")
    written = await store.queues.create(parse_manifest(document()), author=Author("ada"))
    async with serving(store, database=store.health) as api:
        fresh = (await api.get(f"{OWN}/mine")).body["status"]
        assert [(c["type"], c["status"], c["reason"]) for c in fresh["conditions"]] == [
            ("Delivering", "Unknown", "NothingSent")
        ]
        uid = written.metadata.uid
        state = SubscriptionState(left_out={"dev.sluice.workload.admitted": 7})
        new = [Notification(uid, {"id": str(number)}, clock()) for number in range(3)]
        await store.notifications.begin(epoch=epoch)
        await store.notifications.write(new, {uid: state}, progress=None, epoch=epoch)
        first, second, _ = await store.notifications.to_send([uid], limit=10)
        async with api.watch("subscriptions", resourceVersion=str(await store.queues.revision())) as events:
            await store.notifications.delivered(first, at=clock(), epoch=epoch)
            await store.notifications.failed(second, error="receiver pager answers 500", at=clock(), epoch=epoch)
            while (shown := (await events.next())["object"]["status"])["conditions"][0]["status"] != "False":
                pass
        assert shown["conditions"][0]["message"] == "receiver pager answers 500"
        numbers = {name: value for name, value in shown.items() if isinstance(value, int)}
        assert numbers == {
            "waitingNotifications": 2,
            "deliveredNotifications": 1,
            "leftOutNotifications": 7,
            "droppedNotifications": 0,
        }
        runner = CliRunner(env={"SLUICE_SERVER": api.url, "SLUICE_ADMIN_TOKEN": TOKEN})
        table = await asyncio.to_thread(runner.invoke, main, ["get", "subscriptions", "-A"])
        header, row = table.output.splitlines()
        assert header.split() == ["NAMESPACE", "NAME", "RECEIVER", "DELIVERING", "WAITING", "AGE"]
        assert row.split()[:5] == ["team-a", "mine", "pager", "False", "2"]
        described = await asyncio.to_thread(runner.invoke, main, ["describe", "subscription", "mine", "-n", "team-a"])
        assert "receiver pager answers 500" in described.output


async def test_unknown_receiver_is_a_warning_of_the_api_and_the_apply_command(store, tmp_path):
    receivers = Receivers({"pager": Receiver("pager", namespaces=frozenset({"team-a"}))})
    async with serving(store, options={"receiver_fault": receivers.fault}) as client:
        runner = CliRunner(env={"SLUICE_SERVER": client.url, "SLUICE_ADMIN_TOKEN": TOKEN})
        for namespace, receiver, warned in (
            ("team-a", "pager", ""),
            ("team-b", "pager", "team-b"),
            ("team-a", "x", "x"),
        ):
            file = tmp_path / "subscription.yaml"
            file.write_text(yaml.safe_dump(document(namespace=namespace, receiver=receiver)))
            arguments = ["apply", "-f", str(file)]
            done = await asyncio.to_thread(runner.invoke, main, arguments)
            assert done.exit_code == 0, done.output
            expected = f'there is no receiver "{receiver}" for namespace {namespace}; an admin adds it to'
            assert (expected in done.output) == bool(warned)
            assert ("spec.receiver: nothing is sent" in done.output) == bool(warned)
