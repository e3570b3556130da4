"""A running Job moves to the flavor that its ClusterQueue prefers (`concurrentAdmissionPolicy`)."""

from __future__ import annotations

from typing import Any

import pytest
from job_examples import Object, admission_check, asks, cluster_queue, flavor, is_gated, job, local_queue, runs

from admission.engine import Explanation
from admission.model import sentences
from admission.model.checks import CheckReport
from admission.store.audit_log import Author

READY = {"name": "nodes", "state": "Ready"}


def pool(name: str) -> Object:
    manifest = flavor(name)
    manifest["spec"]["nodeLabels"] = {"pool": name}
    return manifest


def queue(**constraints: str) -> Object:
    migration: dict[str, Any] = {"mode": "TryPreferredFlavors", **({"constraints": constraints} if constraints else {})}
    quotas = {name: {"cpu": "1"} for name in ("reserved", "on-demand")}
    return cluster_queue(quotas=quotas, concurrentAdmissionPolicy={"migration": migration})


def runs_in(name: str):
    def does(obj: Object) -> bool:
        return runs(obj) and obj["spec"]["template"]["spec"].get("nodeSelector") == {"pool": name}

    return does


async def set_up(world, **constraints: str) -> None:
    """`first` runs in the flavor that is preferred, `second` in the other one."""
    amounts = {"cpu": "10", "memory": "10Gi", "pods": "110"}
    for name in ("reserved", "on-demand"):
        labels, marks = {"pool": name}, {"kwok.x-k8s.io/node": "fake"}
        added = {"metadata": {"name": name, "labels": labels, "annotations": marks}, "status": {"allocatable": amounts}}
        await world.user.create("nodes", "", added)
    await world.begin(pool("reserved"), pool("on-demand"), queue(**constraints), local_queue())
    await world.submit(job("first"))
    await world.job("first", runs_in("reserved"))
    await world.submit(job("second"))
    await world.job("second", runs_in("on-demand"))


async def explanation(world, name: str) -> Explanation:
    record = await world.record(name, "admitted")
    return world.controller.engine().explain(record.workload.uid)


@pytest.mark.costly
async def test_job_moves_when_the_preferred_flavor_is_free(world):
    await set_up(world)
    assert "flavor reserved" in (await explanation(world, "second")).moves
    await world.user.delete("jobs", "team-a", "first", propagation="Background")
    await world.job("second", runs_in("reserved"))
    lines = await world.history("second")
    assert ("FlavorMigration", sentences.moves("on-demand", "reserved", "cq")) in lines
    assert [reason for reason, _ in lines].count("Admitted") == 2
    assert (await explanation(world, "second")).moves == ""


@pytest.mark.costly
async def test_minimum_runtime_outlasts_a_restart(world):
    await set_up(world, minimumRuntime="20m")
    await world.user.delete("jobs", "team-a", "first", propagation="Background")
    world.pass_time(1190)
    assert "not before" in (await explanation(world, "second")).moves
    await world.end()
    await world.start()
    await world.job("second", runs_in("on-demand"))
    world.pass_time(11)
    await world.job("second", runs_in("reserved"))


@pytest.mark.costly
async def test_move_that_a_kill_interrupts_is_completed(world):
    await set_up(world)
    await world.cut_off()  # so that the Job cannot be stopped yet
    await world.user.delete("jobs", "team-a", "first", propagation="Background")
    await world.record("second", "evicting")
    await world.end()
    await world.reconnect()
    await world.start()
    await world.job("second", runs_in("reserved"))


@pytest.mark.costly
async def test_policy_can_be_set_and_taken_away_while_jobs_run(world):
    await set_up(world, lastAcceptableFlavorName="reserved")
    stays = queue()
    stays["spec"]["concurrentAdmissionPolicy"]["migration"]["mode"] = "RetainFirstAdmission"
    await world.apply(stays)
    await world.user.delete("jobs", "team-a", "first", propagation="Background")
    await world.submit(job("third"))
    await world.job("third", runs_in("reserved"))
    await world.user.delete("jobs", "team-a", "third", propagation="Background")
    await world.apply(queue())
    await world.job("second", is_gated)
    await world.job("second", runs_in("reserved"))


@pytest.mark.costly
async def test_check_that_is_ready_while_its_workload_moves_is_asked_again_for_the_new_flavor(world):
    checked = queue(minimumRuntime="20m")
    checked["spec"]["admissionChecksStrategy"] = asks("nodes")
    await world.begin(pool("reserved"), pool("on-demand"), admission_check("nodes"), checked, local_queue())
    await world.submit(job("first"))
    await world.record("first", "admitted", reason="QuotaReserved")
    await world.report("first", READY)
    await world.job("first", runs_in("reserved"))
    await world.submit(job("second"))
    record = await world.record("second", "admitted", reason="QuotaReserved")
    await world.user.delete("jobs", "team-a", "first", propagation="Background")
    await world.record("first", "finished")
    # Another replica takes the report, so that the leader does not know of it yet when it decides the move.
    ready = CheckReport.model_validate(READY)
    await world.store.orders.report(record.workload.uid, [ready], author=Author("checker"))
    world.pass_time(1201)

    async def has_moved() -> bool:
        found = await world.record("second", "admitted")
        return {*found.admission.pod_sets[0].flavors.values()} == {"reserved"}

    await world.eventually(has_moved)
    (check,) = (await world.store.orders.of([record.workload.uid])).checks
    assert check.state == "Pending"
    assert is_gated(world.user.get("jobs", "team-a", "second"))
    await world.report("second", READY)
    await world.job("second", runs_in("reserved"))
