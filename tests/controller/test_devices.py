"""Devices by ResourceClaim (dynamic resource allocation), with the sandbox's classes, slices, claims and driver.

The manifests of docs/tasks/devices.md are run here, too.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from device_examples import (
    DRIVER,
    GPU,
    MAPPED,
    MEMORY,
    claim,
    counting,
    device,
    device_class,
    exactly,
    from_template,
    named,
    queue_with,
    resource_slice,
    template,
)
from every_kind import node
from job_examples import flavor, job, local_queue, runs

from admission.cli.configuration.settings import load_settings
from admission.controller.state.policy import ControllerPolicy
from admission.model.devices import DeviceRules

PAGE = Path(__file__).parents[2] / "docs/tasks/devices.md"


def held(record):
    """Return the quota that a workload holds, by resource."""
    total = {}
    for each in record.admission.pod_sets:
        for resource, amount in each.usage.items():
            total[resource] = total.get(resource, 0) + amount
    return total


@pytest.fixture
async def cluster(world):
    """A cluster with two nodes of four GPUs each, and quota for six."""
    for number in range(2):
        await world.user.create("nodes", "", node(number))
        made = resource_slice(node(number)["metadata"]["name"], *(device(f"gpu-{each}") for each in range(4)))
        await world.user.create("resourceslices", "", made)
    await world.user.create("deviceclasses", "", device_class())
    await world.apply(flavor(), queue_with(gpu="6"), local_queue(), local_queue(namespace="team-b"))
    return world


async def test_pods_get_devices_by_template_within_quota(cluster):
    await cluster.user.create("resourceclaimtemplates", "team-a", template("gpu", exactly(2)))
    await cluster.start(MAPPED)
    await cluster.submit(job("one", pods=2, resourceClaims=from_template()))
    await cluster.job("one", lambda obj: obj["status"].get("ready") == 2)
    await cluster.submit(job("two", pods=2, resourceClaims=from_template()))
    assert held(await cluster.record("one", "admitted"))[GPU] == 4
    waiting = await cluster.record("two", "pending", reason="WaitingForQuota")
    assert "Needs 4 GPU" in waiting.message
    claims = cluster.user.list("resourceclaims", "team-a")
    assert sorted(len(each["status"]["allocation"]["devices"]["results"]) for each in claims) == [2, 2]
    await cluster.user.delete("jobs", "team-a", "one", propagation="Background")
    await cluster.job("two", lambda obj: obj["status"].get("ready") == 2)


async def test_claim_that_all_pods_share_counts_once(cluster):
    await cluster.user.create("resourceclaims", "team-a", claim("shared", exactly(3)))
    await cluster.start(MAPPED)
    await cluster.submit(job("one", pods=3, resourceClaims=named()))
    await cluster.job("one", lambda obj: obj["status"].get("ready") == 3)
    record = await cluster.record("one", "admitted")
    assert held(record) == {"cpu": 3000, GPU: 3}
    shared = cluster.user.get("resourceclaims", "team-a", "shared")
    assert len(shared["status"]["reservedFor"]) == 3
    assert len(shared["status"]["allocation"]["devices"]["results"]) == 3
    (pod, *_) = cluster.user.list("pods", "team-a")
    ended = {"status": {"phase": "Succeeded"}}
    await cluster.user.patch("pods", "team-a", pod["metadata"]["name"], ended, subresource="status")

    async def has_released():
        return held(await cluster.record("one", "admitted")) == {"cpu": 2000, GPU: 3}

    await cluster.eventually(has_released)


async def test_job_waits_for_its_template_and_holds_nobody_up(cluster):
    await cluster.start(MAPPED)
    await cluster.submit(job("late", resourceClaims=from_template()))
    waiting = await cluster.record("late", "pending", reason="Misconfigured")
    assert waiting.message == (
        "pod set main: ResourceClaimTemplate gpu does not exist in namespace team-a: create it, or correct the name"
    )
    await cluster.submit(job("other", namespace="team-b"))
    await cluster.job("other", runs, namespace="team-b")
    await cluster.user.create("resourceclaimtemplates", "team-a", template("gpu", exactly()))
    await cluster.job("late", runs)


async def test_class_without_mapping_is_refused_or_does_not_count(cluster):
    await cluster.user.create("resourceclaimtemplates", "team-a", template("gpu", exactly(2)))
    await cluster.start()
    await cluster.submit(job("odd", resourceClaims=from_template()))
    waiting = await cluster.record("odd", "pending", reason="Misconfigured")
    assert "the setting resources.deviceClassMappings gives no DeviceClass a quota" in waiting.message
    assert cluster.controller.watches.devices.informers == {}
    await cluster.end()
    await cluster.start(ControllerPolicy(devices=DeviceRules(ignore_unmapped=True)))
    await cluster.job("odd", runs)
    assert held(await cluster.record("odd", "admitted")) == {"cpu": 1000}


async def start_of_earlier_ones_observed(cluster):
    """Wait until another Job runs: when it starts, the starts of those before it were observed."""
    await cluster.submit(job("later", namespace="team-b"))
    await cluster.job("later", runs, namespace="team-b")


async def test_replaced_template_stops_a_job_whose_pods_would_get_more(cluster):
    await cluster.user.create("resourceclaimtemplates", "team-a", template("gpu", exactly()))
    await cluster.start(MAPPED)
    await cluster.submit(job("one", resourceClaims=from_template()))
    await cluster.job("one", runs)
    await start_of_earlier_ones_observed(cluster)
    await cluster.user.delete("resourceclaimtemplates", "team-a", "gpu")
    await cluster.submit(job("other", namespace="team-b"))
    await cluster.job("other", runs, namespace="team-b")
    assert runs(cluster.user.get("jobs", "team-a", "one"))
    await cluster.user.create("resourceclaimtemplates", "team-a", template("gpu", exactly(9)))
    waiting = await cluster.record("one", "pending", reason="ExceedsMaxQuota")
    assert "9 GPU" in waiting.message
    told = [message for reason, message in await cluster.history("one") if reason == "OutOfSync"]
    assert told[0].startswith("Its ResourceClaims ask for more example.com/gpu than it has quota for")


async def test_partitions_count_by_their_memory(world):
    parts = [device(f"part-{each}", profile={"string": profile}) for each, profile in enumerate(("1g", "1g", "3g"))]
    for part, memory in zip(parts, ("10Gi", "10Gi", "40Gi"), strict=True):
        part["consumesCounters"] = [{"counterSet": "gpu-0", "counters": {"memory": {"value": memory}}}]
    counters = [{"name": "gpu-0", "counters": {"memory": {"value": "50Gi"}}}]
    await world.user.create("nodes", "", node(0))
    name = node(0)["metadata"]["name"]
    await world.user.create("resourceslices", "", resource_slice(name, *parts, sharedCounters=counters))
    await world.user.create("deviceclasses", "", device_class())
    await world.apply(flavor(), queue_with(memory="25Gi"), local_queue())
    for name in ("1g", "3g"):
        only = {"cel": {"expression": f'device.attributes["{DRIVER}"].profile == "{name}"'}}
        await world.user.create("resourceclaimtemplates", "team-a", template(f"mig-{name}", exactly(selectors=[only])))
    await world.start(counting())
    await world.submit(job("small", pods=2, resourceClaims=from_template("mig-1g")))
    await world.submit(job("large", resourceClaims=from_template("mig-3g")))
    await world.job("small", lambda obj: obj["status"].get("ready") == 2)
    assert held(await world.record("small", "admitted"))[MEMORY] == 20 * 2**30
    waiting = await world.record("large", "pending", reason="ExceedsMaxQuota")
    assert f"Needs {40 * 2**30} {MEMORY}" in waiting.message


async def test_shared_device_counts_by_the_capacity_that_is_requested(world):
    await world.user.create("nodes", "", node(0))
    shared = {**device("gpu-0"), "allowMultipleAllocations": True}
    await world.user.create("resourceslices", "", resource_slice(node(0)["metadata"]["name"], shared))
    await world.user.create("deviceclasses", "", device_class())
    await world.apply(flavor(), queue_with(memory="70Gi"), local_queue())
    asked = {"requests": {f"{DRIVER}/memory": "30Gi"}}
    await world.user.create("resourceclaimtemplates", "team-a", template("part", exactly(capacity=asked)))
    await world.start(counting(is_capacity=True))
    await world.submit(job("pair", pods=2, resourceClaims=from_template("part")))
    await world.job("pair", lambda obj: obj["status"].get("ready") == 2)
    assert held(await world.record("pair", "admitted"))[MEMORY] == 60 * 2**30
    results = [
        each["status"]["allocation"]["devices"]["results"] for each in world.user.list("resourceclaims", "team-a")
    ]
    assert [each[0]["device"] for each in results] == ["gpu-0", "gpu-0"]
    await world.submit(job("third", resourceClaims=from_template("part")))
    await world.record("third", "pending", reason="WaitingForQuota")


async def test_missing_right_is_named_and_holds_nobody_else_up(cluster):
    rule = {"match": {"resource": "resourceclaimtemplates", "user": "sluice"}, "do": "error", "code": 403}
    cluster.sandbox.faults.install({"rules": [{**rule, "probability": 1}]})
    await cluster.user.create("resourceclaimtemplates", "team-a", template("gpu", exactly()))
    await cluster.start(MAPPED)
    await cluster.submit(job("one", resourceClaims=from_template()))
    await cluster.submit(job("other", namespace="team-b"))
    await cluster.job("other", runs, namespace="team-b")
    waiting = await cluster.record("one", "pending", reason="Misconfigured")
    assert waiting.message == (
        "pod set main: ResourceClaimTemplate gpu cannot be read: Sluice is not permitted to list and watch "
        "resourceclaimtemplates.resource.k8s.io"
    )
    cluster.sandbox.faults.remove()
    await cluster.job("one", runs)


async def test_class_that_is_deleted_stops_nothing_and_is_waited_for(cluster):
    all_of = {"name": "gpu", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}}
    await cluster.user.create("resourceclaimtemplates", "team-a", template("gpu", all_of))
    await cluster.start(MAPPED)
    await cluster.submit(job("one", resourceClaims=from_template()))
    await cluster.job("one", runs)
    assert held(await cluster.record("one", "admitted"))[GPU] == 4
    await start_of_earlier_ones_observed(cluster)
    await cluster.user.delete("deviceclasses", "", "gpu")
    await cluster.submit(job("two", resourceClaims=from_template()))
    waiting = await cluster.record("two", "pending", reason="Misconfigured")
    assert waiting.message.endswith("DeviceClass gpu does not exist: have it created")
    assert runs(cluster.user.get("jobs", "team-a", "one"))
    await cluster.user.create("deviceclasses", "", device_class())
    waiting = await cluster.record("two", "pending", reason="WaitingForQuota")
    await cluster.user.delete("jobs", "team-a", "one", propagation="Background")
    await cluster.job("two", runs)


async def test_absurd_claims_wait_and_hold_nobody_up(cluster):
    requests = [{**exactly(2**62), "name": f"r{each}"} for each in range(32)]
    await cluster.user.create("resourceclaimtemplates", "team-a", template("absurd", *requests))
    await cluster.start(MAPPED)
    many = [{"name": f"c{each}", "resourceClaimTemplateName": "absurd"} for each in range(1000)]
    await cluster.submit(job("absurd", pods=1000, resourceClaims=many))
    await cluster.submit(job("foreign", resourceClaims=from_template("team-b/gpu")))
    await cluster.record("absurd", "pending", reason="ExceedsMaxQuota")
    await cluster.record("foreign", "pending", reason="Misconfigured")
    await cluster.submit(job("other", namespace="team-b"))
    await cluster.job("other", runs, namespace="team-b")
    await cluster.end()
    await cluster.start(MAPPED)
    await cluster.submit(job("later", namespace="team-b"))
    await cluster.job("later", runs, namespace="team-b")


async def test_extended_resource_of_a_class_counts_as_its_devices(cluster):
    await cluster.user.create("deviceclasses", "", device_class("big-gpu", extendedResourceName="vendor.example/gpu"))
    await cluster.start(MAPPED)
    asked = {"limits": {"vendor.example/gpu": "7"}, "requests": {"cpu": "1"}}
    container = {"name": "main", "image": "pause", "resources": asked}
    await cluster.submit(job("seven", containers=[container]))
    waiting = await cluster.record("seven", "pending", reason="ExceedsMaxQuota")
    assert waiting.message.startswith("Needs 7 GPU (default)")
    await cluster.user.delete("deviceclasses", "", "big-gpu")
    await cluster.record("seven", "pending", reason="NoMatchingFlavor")


async def test_manifests_of_the_page_run(cluster, tmp_path):
    found = re.findall(r"```yaml(?: title=\S+)?\n(.*?)```", PAGE.read_text(), re.DOTALL)
    configured, queue, manifests, *others = (list(yaml.safe_load_all(text)) for text in found)
    for number, (document,) in enumerate((configured, *others)):
        file = tmp_path / f"{number}.yaml"
        file.write_text(yaml.safe_dump(document))
        assert load_settings({}, config=file).resources is not None
    claims, training = manifests
    await cluster.user.create("deviceclasses", "", device_class("gpu.example.com"))
    await cluster.apply(*queue, local_queue("research", "research"))
    await cluster.user.create("resourceclaimtemplates", "team-a", claims)
    await cluster.start(load_settings({}, config=tmp_path / "0.yaml").policy())
    await cluster.submit(training)
    await cluster.job("train", lambda obj: obj["status"].get("ready") == 2)
    assert held(await cluster.record("train", "admitted")) == {"cpu": 2000, GPU: 4}
