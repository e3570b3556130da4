"""Pods that request more than their templates, because others add containers to them: quota follows what they ask."""

from __future__ import annotations

import pytest
from custom_kinds import pod, pytorch_job, served
from grouped_kinds import pods_until, running
from job_examples import cluster_queue, flavor, job, local_queue

from admission.controller.workloads.learning import Samples
from admission.kinds import all_kinds

KINDS = all_kinds(frameworks=("batch/job", "kubeflow.org/pytorchjob"))
KIND = KINDS.get("kubeflow.org", "PyTorchJob")
INJECT = "agent.example.com/inject"
SIDECAR = {"name": "proxy", "image": "proxy", "resources": {"requests": {"cpu": "500m", "memory": "10Mi"}}}


@pytest.fixture
async def sluice(world):
    """A running Sluice with 5 CPUs, and a cluster that adds a container of half a CPU to some pods.

    They are those of PyTorchJobs, and those with the annotation `INJECT`.
    """

    def injected(made):
        metadata = made["metadata"]
        owner = metadata.get("ownerReferences", [{}])[0].get("kind")
        if owner != "PyTorchJob" and INJECT not in metadata.get("annotations", ()):
            return made
        return {**made, "spec": {**made["spec"], "containers": [*made["spec"]["containers"], SIDECAR]}}

    await world.apply(flavor(), cluster_queue(cpu="5"), local_queue())
    async with served(world.sandbox, KIND):
        with world.sandbox.local("admin").mutating_new("pods", injected):
            await world.start(kinds=KINDS)
            yield world


def torch(workers=2):
    template = pod(cpu="1", seconds=1_000_000)
    return pytorch_job({"Master": (1, template), "Worker": (workers, template)}, runPolicy={"suspend": True})


async def holds(sluice, millis, name="torch"):
    async def look():
        record = await sluice.store.workloads.get("team-a", name)
        held = record and record.admission and sum(each.usage["cpu"] for each in record.admission.pod_sets)
        return record if held == millis else None

    return await sluice.eventually(look)


async def learned_events(sluice):
    """Wait until there is an Event `Learned` about the PyTorchJob, and return them."""

    async def look():
        found = (await sluice.client.get("/apis/events.k8s.io/v1/namespaces/team-a/events"))["items"]
        return [each for each in found if (each["regarding"]["name"], each["reason"]) == ("torch", "Learned")]

    return await sluice.eventually(look)


async def test_quota_is_raised_to_what_pods_request_and_stays_so_at_the_next_start(sluice):
    await sluice.user.create("pytorchjobs", "team-a", torch())
    await pods_until(sluice.user, "team-a", running(3))
    record = await holds(sluice, 4500)
    assert "500m cpu" in record.message
    (event,) = await learned_events(sluice)
    assert event["type"] == "Warning"
    assert "500m cpu" in event["note"]
    reasons = [row.end_reason for row in await sluice.store.workloads.ledger(record.workload.uid)]
    assert reasons.count("Learned") == 2  # the rows of both roles
    await sluice.submit(job("beside", cpu="1"))
    await sluice.record("beside", "pending", reason="WaitingForQuota")
    # The next leader knows it, and the PyTorchJob waits for what it uses.
    await sluice.end()
    await sluice.start(kinds=KINDS)
    await sluice.order("torch", held=True)
    await sluice.job("beside", lambda obj: obj["spec"]["suspend"] is False)
    await sluice.order("torch", held=False)
    waiting = await sluice.record("torch", "pending", reason="WaitingForQuota")
    assert [each.requests["cpu"] for each in waiting.workload.pod_sets] == [1500, 1500]
    await sluice.apply(cluster_queue(cpu="6"))
    await holds(sluice, 4500)


async def test_pods_that_request_more_than_there_is_run_on_and_hold_it(sluice):
    await sluice.apply(cluster_queue(cpu="4"))
    await sluice.user.create("pytorchjobs", "team-a", torch(workers=3))
    before = await pods_until(sluice.user, "team-a", running(4))
    await holds(sluice, 6000)
    usage = sluice.controller.engine().usage()["cq"]["default"]["cpu"]
    assert usage == 6000
    assert (await pods_until(sluice.user, "team-a", running(4))).keys() == before.keys()


def injected_job(name):
    made = job(name)
    made["spec"]["template"]["metadata"]["annotations"][INJECT] = "true"
    return made


async def test_quota_of_jobs_follows_what_a_webhook_adds_to_the_pods_of_jobs_like_them(sluice):
    await sluice.submit(job("plain"))
    await sluice.submit(injected_job("first"))
    first = await holds(sluice, 1500, "first")
    assert "500m cpu" in first.message
    # It starts within the seconds in which other Jobs are not looked at.
    await sluice.submit(injected_job("second"))
    await holds(sluice, 1500, "second")
    await holds(sluice, 1000, "plain")


def test_of_jobs_that_are_alike_one_is_looked_at_in_some_time_until_one_requests_more():
    samples, one = Samples(), job("one")
    assert [samples.takes(one, at) for at in (100.0, 101.0, 109.0, 110.0)] == [True, False, False, True]
    assert samples.takes(injected_job("other"), 111.0)
    assert samples.takes(job("other", namespace="team-b"), 111.0)
    assert not samples.takes(one, 112.0)
    samples.requests_more(one)
    assert [samples.takes(job("two"), at) for at in (112.0, 112.1)] == [True, True]


WRAPPED = all_kinds(frameworks=("batch/job", "workload.codeflare.dev/appwrapper"))


def app_wrapper():
    """An AppWrapper of a Deployment with two pods of one CPU each."""
    template = pod(cpu="1", seconds=1_000_000)
    template["metadata"]["labels"] = {"app": "web"}
    template["spec"]["restartPolicy"] = "Always"
    inner = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "team-a"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template},
    }
    return {
        "apiVersion": "workload.codeflare.dev/v1beta2",
        "kind": "AppWrapper",
        "metadata": {"name": "outer", "namespace": "team-a", "labels": {"sluice.dev/queue-name": "lq"}},
        "spec": {"suspend": True, "components": [{"template": inner}]},
    }


async def test_wrapped_object_that_nobody_watches_is_stopped_with_more_pods_than_declared(world):
    await world.apply(flavor(), cluster_queue(), local_queue())
    async with served(world.sandbox, WRAPPED.get("workload.codeflare.dev", "AppWrapper")):
        await world.start(kinds=WRAPPED)
        await world.user.create("appwrappers", "team-a", app_wrapper())
        await pods_until(world.user, "team-a", running(2))
        await world.user.patch("deployments", "team-a", "web", {"spec": {"replicas": 9}})
        record = await world.record("outer", "pending")
        assert record.reason == "DeactivatedDueToMorePodsThanDeclared"
        assert "declares 2" in record.message
        await pods_until(world.user, "team-a", running(0))
