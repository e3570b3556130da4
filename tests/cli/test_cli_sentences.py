"""What `sluice why` says: to the letter, for each way in which a Job may stand."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from admission.cli.output.sentences import sentences
from admission.client.reading import explanation, workload

NOW = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)


def job(*conditions: dict[str, str], **status: Any) -> Any:
    return workload(
        {
            "metadata": {
                "name": "job-train-a1b2c",
                "namespace": "team-a",
                "creationTimestamp": "2026-01-02T07:00:00Z",
            },
            "spec": {"object": {"kind": "Job", "name": "train"}, "queueName": "main"},
            "status": {"conditions": list(conditions), **status},
        }
    )


def said(subject: Any, **document: Any) -> list[str]:
    return sentences(subject, explanation(document), now=NOW)


LACK = {
    "podSet": "main",
    "flavor": "default",
    "resource": "cpu",
    "asked": "8",
    "free": "3",
    "borrowable": "1",
    "most": "10",
    "refusedBy": "Cohort research: nominalQuota",
    "hint": "5 of cpu in flavor default must become free, or Cohort research: nominalQuota be raised by as much",
}


LACKING = (
    "Pod set main asks for 8 cpu in flavor default. Free is 3 now, 1 of that to borrow; with nobody else there it "
    "would be 10. What sets the limit is the nominalQuota of Cohort research."
)
HELP = (
    "What would help: 5 of cpu in flavor default must become free, or the nominalQuota of Cohort research be raised "
    "by as much."
)


def test_one_that_waits_for_quota():
    assert said(
        job(),
        state="Pending",
        reason="WaitingForQuota",
        message="couldn't assign flavors to pod set main",
        clusterQueue="team-a",
        positionInClusterQueue=3,
        ahead=7,
        aheadFirst=["team-a/x", "team-b/y"],
        lacks=[LACK, LACK | {"resource": "memory", "asked": "8Gi", "free": "1Gi"}],
        prospects=[{"hint": "its ClusterQueue preempts nobody"}],
    ) == [
        "Job team-a/train waits in ClusterQueue team-a, as number 3 in the line, for 5h.",
        LACKING,
        HELP,
        "Short as well:\n  memory in default: asked 8Gi, free 1Gi (Cohort research: nominalQuota)",
        "By preemption: its ClusterQueue preempts nobody.",
        "Ahead of it: team-a/x, team-b/y and 5 more.",
        "(WaitingForQuota: couldn't assign flavors to pod set main)",
    ]


def test_one_that_no_flavor_fits():
    assert said(
        job(),
        state="Pending",
        reason="NoMatchingFlavor",
        message="no flavor fits",
        clusterQueue="team-a",
        attempts=[{"podSet": "main", "flavor": "spot", "reason": "NoMatchingFlavor", "obstacles": ["a taint"]}],
    ) == [
        "Job team-a/train waits in ClusterQueue team-a for 5h.",
        "NoMatchingFlavor: no flavor fits",
        "Flavors tried:\n  spot for main: a taint",
    ]


def test_one_that_pauses_after_an_eviction():
    lines = said(
        job(),
        state="Pending",
        reason="PodsReadyTimeout",
        message="evicted twice",
        clusterQueue="team-a",
        notBefore="2026-01-02T12:05:30Z",
    )
    assert "It takes part again in 5m30s." in lines


def test_one_whose_queue_is_not_there():
    assert said(job(), state="Pending", reason="Misconfigured", message="LocalQueue main does not exist") == [
        "Job team-a/train waits in queue main for 5h.",
        "Misconfigured: LocalQueue main does not exist",
    ]


def test_one_that_runs():
    admitted = {"type": "Admitted", "status": "True", "lastTransitionTime": "2026-01-02T10:00:00Z"}
    assert said(job(admitted), state="Admitted", clusterQueue="team-a") == [
        "Job team-a/train does not wait: it was admitted by ClusterQueue team-a 120m ago."
    ]


def test_one_whose_checks_are_not_ready():
    admitted = {"type": "Admitted", "status": "False", "reason": "Unsatisfied", "message": "not all are ready"}
    checks = [
        {"name": "capacity", "state": "Pending", "message": "nodes are being made"},
        {"name": "budget", "state": "Ready", "message": ""},
    ]
    assert said(job(admitted, admissionChecks=checks), state="Admitted", clusterQueue="team-a") == [
        "Job team-a/train has quota in ClusterQueue team-a, but may not start yet: Unsatisfied: not all are ready",
        "Admission checks that are not ready:\n  capacity: Pending: nodes are being made",
    ]


def test_one_that_is_being_stopped_and_one_that_has_ended():
    assert said(job(), state="Evicting", clusterQueue="team-a") == [
        "Job team-a/train is being stopped; then its quota in ClusterQueue team-a is free."
    ]
    ended = {
        "type": "Finished", "status": "True", "reason": "Succeeded", "message": "it is done",
        "lastTransitionTime": "2026-01-02T11:59:00Z",
    }  # fmt: skip
    assert said(job(ended), state="") == ["Job team-a/train has ended 60s ago: Succeeded: it is done"]


def test_what_would_let_it_start_now():
    told = said(
        job(),
        state="Pending",
        reason="WaitingForQuota",
        remedies=[
            {"change": "Pods", "hint": "with 4 instead of 8 pods in pod set main"},
            {"change": "LocalQueue", "hint": "in LocalQueue free"},
        ],
    )
    assert told[-1] == "It could start now\n  with 4 instead of 8 pods in pod set main\n  in LocalQueue free"
