"""Default and longest maximum execution times of ClusterQueues and LocalQueues (`timeLimits`)."""

from __future__ import annotations

import pytest
from job_examples import cluster_queue, flavor, job, local_queue, runs

from admission.controller.state.context import Context
from admission.model.errors import InvalidObject, Misconfigured
from admission.model.manifests import parse_manifest


def context(of_cluster_queue, of_local_queue) -> Context:
    found = Context()
    found.update_queue_object(parse_manifest(cluster_queue(timeLimits=of_cluster_queue)))
    queue = local_queue()
    queue["spec"]["timeLimits"] = of_local_queue
    found.update_queue_object(parse_manifest(queue))
    return found


@pytest.mark.parametrize(
    ("of_cluster_queue", "of_local_queue", "own", "expected"),
    [
        (None, None, None, None),
        (None, None, 50, 50),
        ({"defaultSeconds": 600}, None, None, 600),
        ({"defaultSeconds": 600}, None, 900, 900),
        ({"maxSeconds": 3600}, None, None, 3600),
        ({"maxSeconds": 3600}, None, 3600, 3600),
        ({"defaultSeconds": 600, "maxSeconds": 3600}, {"defaultSeconds": 60}, None, 60),
        ({"defaultSeconds": 600, "maxSeconds": 3600}, {"defaultSeconds": 7200}, None, 3600),
        ({"defaultSeconds": 600}, {"maxSeconds": 60}, None, 60),
        ({"maxSeconds": 60}, {"maxSeconds": 3600}, None, 60),
    ],
)
def test_nearest_default_within_every_longest_limit_applies(of_cluster_queue, of_local_queue, own, expected):
    assert context(of_cluster_queue, of_local_queue).max_seconds(own, "team-a", "lq") == expected


@pytest.mark.parametrize(
    ("of_cluster_queue", "of_local_queue", "message"),
    [
        ({"maxSeconds": 60}, None, "has 61 s, and ClusterQueue cq permits 60 s at most: lower it"),
        ({"maxSeconds": 60}, {"maxSeconds": 30}, "has 61 s, and LocalQueue lq permits 30 s at most: lower it"),
    ],
)
def test_longer_limit_than_permitted_is_refused(of_cluster_queue, of_local_queue, message):
    with pytest.raises(Misconfigured, match=message):
        context(of_cluster_queue, of_local_queue).max_seconds(61, "team-a", "lq")


def test_deleted_queues_limit_nothing():
    found = context({"maxSeconds": 60}, {"maxSeconds": 30})
    found.forget_queue_object("LocalQueue", "team-a", "lq")
    found.forget_queue_object("ClusterQueue", "", "cq")
    assert found.max_seconds(None, "team-a", "lq") is None


def test_default_above_the_longest_limit_is_invalid():
    with pytest.raises(InvalidObject, match=r"timeLimits.defaultSeconds: 61 is more than the maxSeconds of 60"):
        parse_manifest(cluster_queue(timeLimits={"defaultSeconds": 61, "maxSeconds": 60}))


@pytest.mark.costly
async def test_queue_stops_what_has_no_limit_and_admits_nothing_with_a_longer_one(world):
    limits = {"defaultSeconds": 600, "maxSeconds": 3600}
    await world.begin(flavor(), cluster_queue(timeLimits=limits), local_queue())
    await world.submit(job("plain"))
    await world.job("plain", runs)
    greedy = job("greedy")
    greedy["metadata"]["labels"]["sluice.dev/max-exec-time-seconds"] = "7200"
    await world.submit(greedy)
    waits = await world.record("greedy", "pending", reason="Misconfigured")
    assert "has 7200 s, and ClusterQueue cq permits 3600 s at most" in waits.message
    await world.apply(cluster_queue(timeLimits={"defaultSeconds": 60, "maxSeconds": 7200}), local_queue())
    assert (await world.record("greedy", "admitted")).workload.max_seconds == 7200
    world.pass_time(590)
    assert (await world.record("plain", "admitted")).workload.max_seconds == 600  # that of its admission
    world.pass_time(11)
    await world.record("plain", "pending", reason="DeactivatedDueToMaximumExecutionTimeExceeded")
