"""Warnings at the creation of objects that have a queue label and are not queued, by admission policies."""

from __future__ import annotations

import ssl

import aiohttp
import pytest
from policy_examples import KUEUE_QUEUE, QUEUE, SLUICE

from admission.kinds import all_kinds
from webhooks.gate_reconciler import GateReconciler
from webhooks.scope import Scope

KINDS = all_kinds(frameworks=("batch/job",))
POD = {"containers": [{"name": "c", "image": "i"}]}
APPS = "/apis/apps/v1/namespaces/default"
CORE = "/api/v1/namespaces/default"
OFF = "s are off in Sluice, so this "


@pytest.fixture
async def create(sandbox, sluice):
    """Install the policies; return a function that creates an object as alice and returns the warnings."""
    reconciler = GateReconciler(sluice, "policies", KINDS.gated, Scope((SLUICE,)), None, off=KINDS.off)
    assert await reconciler.ensure()
    assert not await reconciler.ensure()
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cadata=sandbox.ca_pem))
    async with aiohttp.ClientSession(sandbox.url, connector=connector) as session:

        async def create(path, labels, spec, **metadata):
            body = {"metadata": {"name": "x", "labels": labels, **metadata}, "spec": spec}
            async with session.post(path, json=body, headers={"Authorization": "Bearer alice-token"}) as response:
                assert response.status == 201, await response.text()
                return response.headers.getall("Warning", [])

        yield create


def template(labels=None):
    return {"metadata": {"labels": {"app": "x", **(labels or {})}}, "spec": POD}


@pytest.mark.parametrize("key", [QUEUE, KUEUE_QUEUE])
async def test_object_of_a_kind_that_is_off_is_created_with_one_warning(create, key):
    spec = {"selector": {"matchLabels": {"app": "x"}}, "template": template()}
    (warning,) = await create(f"{APPS}/deployments", {key: "q"}, spec)
    assert f"Deployment{OFF}Deployment runs without quota" in warning
    (warning,) = await create(f"{CORE}/pods", {key: "q"}, POD)
    assert f"Pod{OFF}Pod runs without quota" in warning


async def test_object_of_an_unknown_kind_is_told_of_if_its_pods_have_no_queue_label(create):
    spec = {"selector": {"matchLabels": {"app": "x"}}}
    path = f"{APPS}/replicasets"
    (warning,) = await create(path, {QUEUE: "q"}, {**spec, "template": template()})
    assert "Sluice does not queue a ReplicaSet itself: only those of its pods or Jobs are queued" in warning
    assert await create(path, {QUEUE: "q"}, {**spec, "template": template({QUEUE: "q"})}, name="y") == []
    cron = {"schedule": "@daily", "jobTemplate": {"spec": {"template": {"spec": {**POD, "restartPolicy": "Never"}}}}}
    cron_jobs = "/apis/batch/v1/namespaces/default/cronjobs"
    (warning,) = await create(cron_jobs, {QUEUE: "q"}, cron)
    assert "Sluice does not queue a CronJob" in warning
    labelled = {**cron, "jobTemplate": {**cron["jobTemplate"], "metadata": {"labels": {QUEUE: "q"}}}}
    assert await create(cron_jobs, {QUEUE: "q"}, labelled, name="y") == []


async def test_nobody_is_warned_of_queued_objects_those_without_pods_or_label_and_those_of_an_owner(create):
    job = {"template": {"spec": {**POD, "restartPolicy": "Never"}}}
    assert await create("/apis/batch/v1/namespaces/default/jobs", {QUEUE: "q"}, job) == []
    assert await create(f"{CORE}/services", {QUEUE: "q"}, {"ports": [{"port": 80}]}) == []
    assert await create(f"{CORE}/pods", {"app": "x"}, POD) == []
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u", "controller": True}
    assert await create(f"{CORE}/pods", {QUEUE: "q"}, POD, name="y", ownerReferences=[owner]) == []
