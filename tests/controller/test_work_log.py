"""Log lines about workloads at level `info`: admissions and evictions with their cause, limited in a burst."""

from __future__ import annotations

import logging
import re
from dataclasses import replace

import pytest
from job_examples import cluster_queue, flavor, job, local_queue, runs

from admission.controller.state.work_log import MAX_LINES, WorkLog
from admission.engine.events import Flap
from admission.model.workload import Workload
from admission.store.records import Changes, State, Transition, WorkloadRecord

LOGGER = "admission.controller.state.work_log"


@pytest.fixture
def told(caplog):
    """(message, fields) of the log lines about workloads."""
    caplog.set_level("INFO")

    def lines() -> list[tuple[str, dict[str, object]]]:
        return [(record.getMessage(), record.fields) for record in caplog.records if record.name == LOGGER]  # type: ignore[attr-defined]

    return lines


async def test_each_admission_order_and_eviction_is_logged_with_its_cause(world, told, caplog):
    preemption = {"withinClusterQueue": "LowerPriority"}
    await world.begin(flavor(), cluster_queue(preemption=preemption), local_queue())
    await world.submit(job("low", cpu="4"))
    await world.job("low", runs)
    await world.submit(job("high", cpu="4"))
    await world.record("high", "pending")
    await world.order("high", priority=10)
    await world.job("high", runs)

    (low, low_facts), (order, ordered), (evicted, facts), (high, _) = told()
    assert "clusterQueue" not in ordered, "it is in none yet"
    assert order == "order about Job team-a/high: priority 10 by ada: because"
    assert re.fullmatch(r"admitted Job team-a/low after \d+ s: Admitted by ClusterQueue cq on default.", low)
    assert low_facts.items() >= {"workload": "team-a/low", "clusterQueue": "cq", "reason": "Admitted"}.items()
    assert low_facts["flavors"] == ["default"]
    assert evicted.startswith("evicts Job team-a/low from ClusterQueue cq: Preempted: Preempted to accommodate")
    assert (facts["workload"], facts["reason"]) == ("team-a/low", "Preempted")
    assert high.startswith("admitted Job team-a/high ")
    assert "decides from now on, about 0 workloads, of which 0 hold quota" in caplog.text


@pytest.mark.costly
async def test_all_admissions_of_a_burst_are_logged_or_counted(world, told):
    await world.apply(flavor(), cluster_queue(cpu="1"), local_queue())
    for number in range(MAX_LINES + 20):
        await world.submit(job(f"j{number}", cpu="100m"))
    await world.start()
    await world.apply(cluster_queue(cpu="40"))
    last = f"j{MAX_LINES + 19}"
    await world.record(last, "admitted")

    async def all_told() -> bool:
        more = [facts["untold"] for message, facts in told() if message.startswith("more workloads within a second")]
        one_by_one = sum(message.startswith("admitted ") for message, _ in told())
        return one_by_one + sum(untold.get("admitted", 0) for untold in more) == MAX_LINES + 20

    await world.eventually(all_told)


def admissions(numbers: range) -> Changes:
    """The changes of a commit that admits these Jobs."""
    records = []
    for number in numbers:
        workload = Workload(f"u{number}", "team-a", f"j{number}", queue="lq", priority=0, created=0.0, pod_sets=())
        records.append(WorkloadRecord(workload, State.ADMITTED, 0.0, cluster_queue="cq", reason="Admitted"))
    story = tuple(Transition(record.workload.uid, 1.0, State.ADMITTED, "Admitted") for record in records)
    return Changes(workloads=tuple(records), transitions=story)


async def test_lines_per_second_are_limited_and_the_others_are_counted(told):
    now = 0.0
    log = WorkLog(now=lambda: now)
    log.committed(admissions(range(900)))
    log.committed(admissions(range(900, 1000)))
    assert len(told()) == MAX_LINES
    now = 1.0
    log.committed(admissions(range(1000, 1001)))
    *_, (more, facts), (next_one, _) = told()
    assert len(told()) == MAX_LINES + 2
    assert more == "more workloads within a second than are logged one by one: 900 admitted"
    assert facts == {"untold": {"admitted": 900}}
    assert next_one.startswith("admitted Job team-a/j1000 ")


async def test_unwritten_changes_are_not_logged(told):
    WorkLog().committed(admissions(range(2)), unwritten=["u0"])
    ((line, _),) = told()
    assert "team-a/j1" in line


HOSTILE = "x\n2026 INFO forged\x1b[2J" + "y" * 5000


@pytest.mark.parametrize(("name", "message"), [("j0", HOSTILE), (HOSTILE, "fine"), (HOSTILE, HOSTILE)])
async def test_log_line_of_a_hostile_name_or_message_is_escaped_and_truncated(told, name, message):
    changes = admissions(range(1))
    (record,) = changes.workloads
    workload = replace(record.workload, name=name)
    record = replace(record, workload=workload, state=State.EVICTING, evict_reason="Preempted")
    line = Transition("u0", 1.0, State.EVICTING, "Preempted", message)
    WorkLog().committed(Changes(workloads=(record,), transitions=(line,)))
    ((text, _),) = told()
    assert text.isprintable()
    assert len(text) <= 500


async def test_preemptions_in_vain_are_logged_as_warnings_up_to_the_limit(caplog):
    """They are logged at level `warning`, with the limit per second of other lines."""
    caplog.set_level(logging.WARNING)
    (record,) = admissions(range(1)).workloads
    flap = Flap(record.workload, tuple(f"team-b/v{number}" for number in range(100)), ())
    log = WorkLog(now=lambda: 0.0)
    for _ in range(MAX_LINES + 1):
        log.log_flap(flap, "cq")
    lines = [each for each in caplog.records if each.name == LOGGER]
    assert len(lines) == MAX_LINES
    assert lines[0].levelname == "WARNING"
    victims = "team-b/v0, team-b/v1, team-b/v2 and 97 more"
    assert lines[0].getMessage() == f"{victims} were preempted for team-a/j0, which was not admitted then"
    assert lines[0].fields == {"workload": "team-a/j0", "uid": "u0", "clusterQueue": "cq", "reason": "Preempted"}


async def test_nothing_is_counted_while_the_log_level_is_disabled(caplog):
    caplog.set_level(logging.WARNING)
    log = WorkLog()
    log.committed(admissions(range(1000)))
    caplog.set_level(logging.INFO)
    log.flush()
    assert [record for record in caplog.records if record.name == LOGGER] == []
