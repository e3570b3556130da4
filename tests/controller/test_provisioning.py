"""ProvisioningRequests: nodes are asked for when quota is reserved, and a Job starts when an autoscaler has them."""

from __future__ import annotations

import pytest
from job_examples import (
    ATOMIC,
    asks,
    cluster_queue,
    flavor,
    is_gated,
    job,
    local_queue,
    provisioning_check,
    provisioning_config,
    runs,
)

from admission.kinds.provisioning import CLASS_NAME, CONSUMES
from admission.sandbox.controllers.autoscaler import NAME, REQUESTS
from admission.sandbox.operators import serve_kinds

CHECK_CAPACITY = "check-capacity.autoscaling.x-k8s.io"


@pytest.fixture
async def autoscaled(world):
    """A cluster with an autoscaler, and a queue of 4 CPUs that asks it for nodes; Sluice does not run yet."""
    async with serve_kinds(world.sandbox, [NAME]):
        await world.apply(
            flavor(),
            provisioning_config(),
            provisioning_check(),
            cluster_queue(admissionChecksStrategy=asks("nodes")),
            local_queue(),
        )
        yield world


def requests(world):
    return world.user.list(REQUESTS)


async def state(world, name):
    record = await world.record(name, "admitted")
    (found,) = (await world.store.orders.of([record.workload.uid])).checks
    return found.state, found.message


async def says(world, name, wanted):
    """Wait until the check of a workload has a state and a message with a text."""

    async def found():
        now = await state(world, name)
        return now[0] == wanted[0] and wanted[1] in now[1]

    await world.eventually(found)


async def gone(world):
    async def none():
        return not requests(world) and not world.user.list("podtemplates")

    await world.eventually(none)


async def test_job_starts_on_nodes_that_were_added_for_it(autoscaled):
    await autoscaled.apply(
        provisioning_config(
            podSetUpdates={
                "nodeSelector": [
                    {"key": "sandbox.sluice.dev/pool", "valueFromProvisioningClassDetail": "pool"},
                    {"key": "zone", "valueFromProvisioningClassDetail": "not-there"},
                ]
            }
        )
    )
    await autoscaled.start()
    manifest = job("big", cpu="3")
    manifest["metadata"]["annotations"] = {"provreq.kueue.x-k8s.io/maxRunDurationSeconds": "600"}
    await autoscaled.submit(manifest)
    started = await autoscaled.job("big", runs)
    (request,) = requests(autoscaled)
    assert request["spec"]["provisioningClassName"] == ATOMIC
    assert request["spec"]["parameters"] == {"maxRunDurationSeconds": "600"}
    assert request["metadata"]["ownerReferences"][0]["uid"] == started["metadata"]["uid"]
    (template,) = autoscaled.user.list("podtemplates")
    assert request["spec"]["podSets"] == [{"podTemplateRef": {"name": template["metadata"]["name"]}, "count": 1}]
    assert template["template"]["spec"]["nodeSelector"] == {"type": "kwok"}
    pod = started["spec"]["template"]
    assert pod["metadata"]["annotations"][CONSUMES] == request["metadata"]["name"]
    assert pod["metadata"]["annotations"][CLASS_NAME] == ATOMIC
    pool = request["status"]["provisioningClassDetails"]["pool"]
    assert pod["spec"]["nodeSelector"] == {"type": "kwok", "sandbox.sluice.dev/pool": pool}
    assert [node["metadata"]["name"] for node in autoscaled.user.list("nodes") if pool[:50] in node["metadata"]["name"]]

    await autoscaled.user.delete("jobs", "team-a", "big", propagation="Background")
    await autoscaled.record("big", "finished")
    await gone(autoscaled)
    reasons = [event["reason"] for event in autoscaled.user.list("events", "team-a")]
    assert "ProvisioningRequestCreated" in reasons


async def test_estimate_of_the_autoscaler_is_the_message_of_the_check(autoscaled):
    await autoscaled.begin(provisioning_config("slow"))
    await autoscaled.submit(job("waits"))
    await says(autoscaled, "waits", ("Pending", "estimated to be provisioned in 120 s"))
    assert is_gated(autoscaled.user.get("jobs", "team-a", "waits"))
    await autoscaled.job("waits", runs)


async def test_failed_request_is_made_again_after_a_growing_pause_then_the_job_is_deactivated(autoscaled):
    retry = {"backoffLimitCount": 1, "backoffBaseSeconds": 3000, "backoffMaxSeconds": 4000}
    await autoscaled.begin(provisioning_config("fail", retryStrategy=retry))
    await autoscaled.submit(job("unlucky", cpu="3"))
    waiting = await autoscaled.record("unlucky", "pending")
    story = [message for _, message in await autoscaled.history("unlucky")]
    assert any("Retrying after failure: there are no more nodes" in message for message in story)
    assert 2500 < waiting.not_before - autoscaled.clock() < 3001
    await gone(autoscaled)
    await autoscaled.submit(job("other", cpu="3"))  # the quota is free meanwhile
    await autoscaled.record("other", "admitted")
    await autoscaled.user.delete("jobs", "team-a", "other", propagation="Background")
    await autoscaled.record("other", "finished")

    autoscaled.pass_time(3001)
    out = await autoscaled.record("unlucky", "pending", reason="DeactivatedDueToAdmissionCheck")
    assert "there are no more nodes" in out.message
    await gone(autoscaled)


async def test_nodes_that_are_taken_away_end_the_job_and_an_expired_booking_does_not(autoscaled):
    await autoscaled.begin(provisioning_config("expire"))
    await autoscaled.submit(job("keeps"))
    await autoscaled.job("keeps", runs)

    async def expired():
        (request,) = requests(autoscaled)
        return any(each["type"] == "BookingExpired" for each in request["status"]["conditions"])

    await autoscaled.eventually(expired)
    await autoscaled.apply(provisioning_config("revoke"))
    await autoscaled.submit(job("loses"))
    await autoscaled.job("loses", runs)
    out = await autoscaled.record("loses", "pending", reason="DeactivatedDueToAdmissionCheck")
    assert "the nodes are not kept any longer" in out.message
    await autoscaled.job("keeps", runs)


async def test_nothing_is_requested_for_pods_without_a_managed_resource(autoscaled):
    await autoscaled.begin(provisioning_config(managedResources=["nvidia.com/gpu"]))
    await autoscaled.submit(job("small"))
    await autoscaled.job("small", runs)
    assert requests(autoscaled) == []
    assert await state(autoscaled, "small") == ("Ready", "the provisioning request is not needed")


async def test_missing_configuration_is_named_and_used_as_soon_as_it_is_written(autoscaled):
    await autoscaled.begin(provisioning_check("other"))
    await autoscaled.submit(job("waits"))
    await says(autoscaled, "waits", ("Pending", 'there is no ProvisioningRequestConfig "other"'))
    await autoscaled.apply(provisioning_check())
    await autoscaled.job("waits", runs)


async def test_changed_configuration_replaces_a_request_that_is_not_answered(autoscaled):
    await autoscaled.begin(provisioning_config("never"))
    await autoscaled.submit(job("waits"))
    await says(autoscaled, "waits", ("Pending", "is not answered yet"))
    await autoscaled.apply(provisioning_config(class_name=CHECK_CAPACITY))
    await autoscaled.job("waits", runs)
    (request,) = requests(autoscaled)
    assert request["spec"]["provisioningClassName"] == CHECK_CAPACITY


async def test_requests_are_kept_and_made_once_over_restarts_in_each_state(autoscaled):
    await autoscaled.begin(provisioning_config("slow"))
    await autoscaled.submit(job("waits"))

    async def made():
        return [request["metadata"]["uid"] for request in requests(autoscaled)]

    (uid,) = await autoscaled.eventually(made)
    await autoscaled.end()  # before or after its PodTemplate was made
    await autoscaled.start()
    await autoscaled.job("waits", runs)
    assert [request["metadata"]["uid"] for request in requests(autoscaled)] == [uid]
    assert len(autoscaled.user.list("podtemplates")) == 1
    await autoscaled.end()
    await autoscaled.user.delete("jobs", "team-a", "waits", propagation="Orphan")
    await autoscaled.start()
    await gone(autoscaled)


async def test_cluster_without_an_autoscaler_says_so(world):
    await world.apply(
        flavor(),
        provisioning_config(),
        provisioning_check(),
        cluster_queue(admissionChecksStrategy=asks("nodes")),
        local_queue(),
    )
    await world.start()
    await world.submit(job("waits"))
    await says(world, "waits", ("Pending", "the API server does not serve ProvisioningRequests"))
    await world.submit(job("other"))
    await world.record("other", "admitted")
