"""Reasons why pods of admitted workloads do not run are reported, for Jobs, pods and pod groups."""

from __future__ import annotations

from custom_kinds import JOBSET, definition, jobset
from custom_kinds import KINDS as JOB_SETS
from job_examples import cluster_queue, flavor, job, local_queue
from pod_examples import gated, pod

from admission.controller.workloads.pod_obstacles import obstacle
from admission.kinds import all_kinds

KINDS = all_kinds(frameworks=("batch/job", "pod"))
STUCK = {"sandbox.sluice.dev/start": "unscheduled"}


async def test_unschedulable_pods_are_reported_for_pods_and_pod_groups(world, tmp_path):
    await world.apply(flavor(), cluster_queue(), local_queue())
    alone, *members = (pod(name) for name in ("alone", "g-0", "g-1", "g-2"))
    for each in members:
        each["metadata"]["labels"]["sluice.dev/pod-group-name"] = "g"
        each["metadata"]["annotations"]["sluice.dev/pod-group-total-count"] = "3"
    for each in (alone, *members[:2]):
        each["metadata"]["annotations"] |= STUCK
    async with gated(world.user, KINDS, tmp_path / "certificates"):
        await world.start(kinds=KINDS)
        for each in (alone, *members):
            await world.user.create("pods", "team-a", each)
        for name, said in (("alone", "Its pod alone cannot be scheduled: "), ("g", "2 of 3 pods, such as g-")):
            await world.record(name, "admitted")
            world.pass_time(20)
            told = await world.record(name, "admitted", reason="PodsUnscheduled")
            assert told.message.startswith(said)


def test_gate_of_sluice_on_a_pod_that_waits_for_its_copy_is_no_obstacle_but_those_of_others_are():
    blocked = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "SchedulingGated",
        "message": "Scheduling is blocked",
    }

    def waits(*gates, **condition):
        spec = {"schedulingGates": [{"name": gate} for gate in gates]}
        return {"metadata": {"name": "p"}, "spec": spec, "status": {"conditions": [{**blocked, **condition}]}}

    own = "sluice.dev/admission"
    assert not obstacle([waits(own)], 1, {})
    assert "Scheduling is blocked" in obstacle([waits("example.com/other")], 1, {})
    assert "no nodes" in obstacle([waits(own, reason="Unschedulable", message="no nodes")], 1, {})  # of its copy


async def test_started_object_without_any_pods_is_reported_with_what_its_controller_says(world):
    await world.begin(kinds=JOB_SETS)
    await world.user.create("customresourcedefinitions", "", definition(JOB_SETS.get(*JOBSET)))
    await world.user.create("jobsets", "team-a", jobset("a"))
    await world.record("a", "admitted")
    condition = {"type": "StartupPolicyInProgress", "status": "True", "message": "the operator is ill", "reason": "X"}
    await world.user.patch("jobsets", "team-a", "a", {"status": {"conditions": [condition]}}, subresource="status")
    world.pass_time(20)
    told = await world.record("a", "admitted", reason="PodsUnscheduled")
    assert told.message == (
        "It was started, but its controller has created no pods; `kubectl describe` of the JobSet shows its Events. "
        "Its status says: the operator is ill"
    )


async def test_selector_of_an_unschedulable_pod_is_named_with_its_flavor(world):
    await world.begin()
    stuck = job("stuck")
    stuck["spec"]["template"]["metadata"]["annotations"] |= STUCK
    stuck["spec"]["template"]["spec"]["nodeSelector"] = {"disk": "ssd"}
    await world.submit(stuck)
    await world.record("stuck", "admitted")
    world.pass_time(20)
    told = await world.record("stuck", "admitted", reason="PodsUnscheduled")
    assert told.message.startswith("Its pod stuck-")
    assert "type=kwok (of flavor default)" in told.message
    assert "disk=ssd (its own)" in told.message


async def test_forbidden_pod_list_in_a_namespace_hides_no_other_namespace(world, caplog):
    elsewhere = local_queue()
    elsewhere["metadata"]["namespace"] = "team-b"
    await world.begin(flavor(), cluster_queue(), local_queue(), elsewhere)
    match = {"verb": "list", "resource": "pods", "namespace": "team-a"}
    world.sandbox.faults.install({"rules": [{"match": match, "do": "error", "code": 403}]})
    for namespace in ("team-a", "team-b"):
        stuck = job("stuck", namespace=namespace)
        stuck["spec"]["template"]["metadata"]["annotations"] |= STUCK
        await world.submit(stuck)
        await world.record("stuck", "admitted", namespace)
    world.pass_time(20)
    await world.record("stuck", "admitted", "team-b", reason="PodsUnscheduled")
    assert "cannot list the pending pods of namespace team-a" in caplog.text


async def test_page_full_of_pods_of_one_workload_hides_no_other_workload(world, monkeypatch):
    monkeypatch.setattr("admission.controller.workloads.pod_obstacles._PAGE_SIZE", 2)
    await world.begin(flavor(), cluster_queue(cpu="100"), local_queue())
    for name in ("a", "b", "c"):
        stuck = job(name, pods=2)
        stuck["spec"]["template"]["metadata"]["annotations"] |= STUCK
        await world.submit(stuck)
        await world.record(name, "admitted")
    world.pass_time(20)
    for name in ("a", "b", "c"):
        await world.record(name, "admitted", reason="PodsUnscheduled")
