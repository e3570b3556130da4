"""Messages of each state of a workload: the same everywhere, correct, and with a remedy.

The tests query the API, whose texts the command line prints: `why` the messages, `get -o wide` the table.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from job_examples import cluster_queue, flavor, job, local_queue
from queue_objects import priority_class

from admission.api.application import create_app, listening
from admission.client import NotFound, Sluice
from admission.controller.state.policy import ControllerPolicy, WaitForPodsReady

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from conftest import World

TOKEN = "a-token"


@dataclass(frozen=True)
class Said:
    """Expected texts of one state."""

    state: str
    reason: str
    what: str
    """Part of the message."""
    helps: str = ""
    """Part of the remedy in the message; empty: none is needed."""
    event: str = ""
    """The reason of the Event; empty: there is none."""


def held(obj: dict[str, Any]) -> dict[str, Any]:
    obj["metadata"]["labels"]["sluice.dev/hold"] = "true"
    return obj


def labelled(obj: dict[str, Any], **labels: str) -> dict[str, Any]:
    obj["metadata"]["labels"] |= {f"sluice.dev/{key.replace('_', '-')}": value for key, value in labels.items()}
    return obj


def with_pod_annotations(obj: dict[str, Any], **how: str) -> dict[str, Any]:
    annotations = obj["spec"]["template"]["metadata"]["annotations"]
    annotations.update({f"sandbox.sluice.dev/{key.replace('_', '-')}": value for key, value in how.items()})
    return obj


STATES = {
    "waits": Said("pending", "WaitingForQuota", "2 CPU (default): less is free", "as soon as", "Pending"),
    "behind": Said("pending", "PendingEvaluation", "ClusterQueue strict is StrictFIFO", "in front of it", "Pending"),
    "held-by-user": Said("pending", "OnHold", "its label or annotation sluice.dev/hold", "Remove that", "Pending"),
    "held-by-admin": Said("pending", "OnHold", "put on hold by ada: because.", "Ask an admin to release it", "Pending"),
    "deactivated": Said("pending", "Deactivated", "It was deactivated by ada: because.", "before an admin releases it",
                        "Pending"),
    "rejected": Said(
        "pending", "DeactivatedDueToAdmissionCheck", "the admission check budget (too dear) rejected it",
        "`sluice release`", "Pending",
    ),
    "ran-too-long": Said(
        "pending", "DeactivatedDueToMaximumExecutionTimeExceeded", "maximum execution time", "`sluice release`",
        "Pending",
    ),
    "no-class": Said("pending", "Misconfigured", 'WorkloadPriorityClass "none" does not exist', "create it", "Pending"),
    "no-pod-class": Said("pending", "Misconfigured", 'PriorityClass "none" does not exist', "create it", "Pending"),
    "no-runtime": Said("pending", "Misconfigured", 'there is no RuntimeClass "none"', "name another one", "Pending"),
    "no-queue": Said("pending", "Misconfigured", "LocalQueue team-a/nowhere does not exist", "Correct", "Pending"),
    "no-cluster-queue": Said("pending", "Misconfigured", "points to ClusterQueue gone", "Use another", "Pending"),
    "queue-stopped": Said("pending", "Suspended", "LocalQueue shut is stopped: new rules (stopPolicy Hold).",
                          "`sluice resume localqueue/shut -n team-a`", "Pending"),
    "cq-stopped": Said("pending", "Suspended", "ClusterQueue stopped is stopped (stopPolicy Hold).",
                       "`sluice resume clusterqueue/stopped`, or by", "Pending"),
    "cq-incomplete": Said("pending", "Suspended", "names ResourceFlavor absent", "An admin has to", "Pending"),
    "namespace": Said("pending", "Misconfigured", "only namespaces with team=x", "label the namespace", "Pending"),
    "label": Said("pending", "NoMatchingFlavor", "node label type=kwok, and the pods ask for type=gpu", "change nodeS",
                  "Pending"),
    "affinity": Said("pending", "NoMatchingFlavor", "type=kwok, which the required node affinity", "change nodeS",
                     "Pending"),
    "taint": Said("pending", "NoMatchingFlavor", "the taint gpu=true:NoSchedule", "tolerations", "Pending"),
    "undeclared": Said("pending", "NoMatchingFlavor", "there is no quota for example.com/licence", "ask only for",
                       "Pending"),
    "too-large": Said("pending", "ExceedsMaxQuota", "of which at most 4 can be used", "by 5 CPU", "Pending"),
    "preemptor": Said("pending", "WaitingForPreemptedWorkloads", "1 workload being preempted has stopped", "as soon as",
                      "Pending"),
    "preempted": Said("pending", "WaitingForQuota", "4 CPU (default)", "as soon as", "Preempted"),
    "going": Said("pending", "BeingDeleted", "It is being deleted", "", "Pending"),
    "victim": Said("evicting", "Preempted", "Preempted to accommodate workload team-a/preemptor",
                   "It queues again by itself", "Preempted"),
    "stops-for-user": Said("evicting", "OnHold", "It was put on hold", "", "EvictedDueToOnHold"),
    "drained": Said("evicting", "ClusterQueueStopped", "ClusterQueue draining is stopped: the rack burns (stopPolicy",
                    "`sluice resume clusterqueue/draining`",
                    "EvictedDueToClusterQueueStopped"),
    "asked": Said("admitted", "QuotaReserved", "when all admission checks are ready: budget", "It starts when",
                  "QuotaReserved"),
    "runs": Said("admitted", "Admitted", "Admitted by ClusterQueue wide on default.", "", "Admitted"),
    "partial": Said("admitted", "Admitted", "It was given 2 of 3 pods, because there was no quota for more", "",
                    "Admitted"),
    "refused": Said("admitted", "PodsUnscheduled", "The API server refuses to start it: ", "that is tried again",
                    "PodsUnscheduled"),
    "unscheduled": Said("admitted", "PodsUnscheduled", "cannot be scheduled: ", "", "PodsUnscheduled"),
    "unpullable": Said("admitted", "PodsUnscheduled", "Its pod does not start: container", "ImagePull",
                       "PodsUnscheduled"),
    "ended": Said("finished", "Succeeded", "", "", "Admitted"),
    "failed": Said("finished", "Failed", "", "", "Admitted"),
    "gone": Said("finished", "Deleted", "", "", ""),
}  # fmt: skip

UNREADY = {
    "pauses": Said("pending", "PendingEvaluation", "It was evicted and pauses before it queues again", "part again at",
                   "EvictedDueToPodsReadyTimeout"),
    "given-up": Said("pending", "DeactivatedDueToRequeuingLimitExceeded", "requeuingStrategy allows",
                     "`sluice release`", "DeactivatedDueToRequeuingLimitExceeded"),
}  # fmt: skip

BLOCKED = {
    "unready": Said("admitted", "Admitted", "Admitted by ClusterQueue wide on default.", "", "Admitted"),
    "next": Said("pending", "WaitingForPodsReady", "the pods of all workloads that are admitted", "It waits until",
                 "Pending"),
}  # fmt: skip


@pytest.fixture
async def sluice(world: World) -> AsyncIterator[Sluice]:
    """An API client; the API shows the controller that the test starts."""
    controller = _Deciding(world)
    app = create_app(world.store, token=TOKEN, checks={}, controller=controller, leader=controller, now=world.clock)
    async with listening(app, "127.0.0.1", 0) as url, Sluice(url, token=TOKEN) as client:
        yield client


class _Deciding:
    """Proxy for the API of the controller that `World` runs at the time of the call."""

    def __init__(self, world: World) -> None:
        self._world = world

    def standstill(self) -> str:
        """Defined here because the API looks it up before the controller exists, and calls it later."""
        return str(self._world.controller.standstill())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world.controller, name)


def queue(name: str, cpu: str = "4", **spec: Any) -> list[dict[str, Any]]:
    return [cluster_queue(name, cpu, **spec), local_queue(name, name)]


async def begin(world: World) -> None:
    check = {"metadata": {"name": "budget"}, "spec": {"controllerName": "example.com/budget"}}
    tainted = flavor("tainted")
    tainted["spec"] = {"nodeTaints": [{"key": "gpu", "value": "true", "effect": "NoSchedule"}]}
    gpus = {"name": "tainted", "resources": [{"name": "cpu", "nominalQuota": "4"}]}
    absent = {"name": "absent", "resources": [{"name": "cpu", "nominalQuota": "4"}]}
    lower = {"withinClusterQueue": "LowerPriority"}
    shut = local_queue("shut", "wide")
    shut["spec"]["stopPolicy"] = "Hold"
    await world.apply(
        {"apiVersion": "sluice.dev/v1", "kind": "AdmissionCheck", **check},
        flavor(),
        tainted,
        *queue("small"),
        *queue("wide", "100"),
        *queue("strict", queueingStrategy="StrictFIFO"),
        *queue("stopped", stopPolicy="Hold"),
        *queue("picky", namespaceSelector={"matchLabels": {"team": "x"}}),
        *queue("checked", "100", admissionChecksStrategy={"admissionChecks": [{"name": "budget"}]}),
        *queue("preempting", preemption=lower),
        *queue("contested", preemption=lower),
        *queue("draining"),
        *queue("partly", "2"),
        *queue("gpus", resourceGroups=[{"coveredResources": ["cpu"], "flavors": [gpus]}]),
        *queue("incomplete", resourceGroups=[{"coveredResources": ["cpu"], "flavors": [absent]}]),
        local_queue("shut", "wide"),
        local_queue("astray", "gone"),
        priority_class("high", 9),
    )
    await world.apply(shut, reason="new rules")


def stops_late(name: str, queue: str) -> dict[str, Any]:
    """A Job whose pod takes longer to terminate than the test."""
    return with_pod_annotations(
        job(name, queue=queue, cpu="4", terminationGracePeriodSeconds=1_000_000), stop_seconds="1000000"
    )


def jobs_to_admit() -> list[dict[str, Any]]:
    few = job("partial", queue="partly", pods=3)
    few["metadata"]["annotations"] = {"sluice.dev/job-min-parallelism": "1"}
    failing = with_pod_annotations(job("failed", queue="wide", seconds=1), exit_code="1")
    failing["spec"]["backoffLimit"] = 0
    return [
        job("fills", queue="small", cpu="3"),
        job("first", queue="strict", cpu="2"),
        stops_late("victim", "preempting"),
        stops_late("stops-for-user", "wide"),
        stops_late("drained", "draining"),
        job("preempted", queue="contested", cpu="4"),
        job("runs", queue="wide"),
        few,
        labelled(job("ran-too-long", queue="wide"), max_exec_time_seconds="3000"),
        with_pod_annotations(job("unscheduled", queue="wide"), start="unscheduled"),
        with_pod_annotations(job("unpullable", queue="wide"), start="unpullable"),
        job("refused", queue="wide"),
        job("rejected", queue="checked"),
        job("asked", queue="checked"),
        job("ended", queue="wide", seconds=1),
        failing,
    ]


def jobs_to_wait() -> list[dict[str, Any]]:
    term = {"matchExpressions": [{"key": "type", "operator": "In", "values": ["gpu"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    undeclared = job("undeclared", queue="wide")
    resources = undeclared["spec"]["template"]["spec"]["containers"][0]["resources"]
    resources["requests"] |= {"example.com/licence": "1"}
    resources["limits"] = {"example.com/licence": "1"}
    going = held(job("going", queue="small", cpu="4"))
    going["metadata"]["finalizers"] = ["example.com/keep"]
    return [
        job("waits", queue="small", cpu="2"),
        job("large-head", queue="strict", cpu="3"),
        job("behind", queue="strict"),
        labelled(job("preemptor", queue="preempting", cpu="4"), priority_class="high"),
        held(job("held-by-user", queue="wide")),
        job("gone", queue="small", cpu="4"),
        going,
        labelled(job("no-class", queue="wide"), priority_class="none"),
        job("no-pod-class", queue="wide", priorityClassName="none"),
        job("no-runtime", queue="wide", runtimeClassName="none"),
        job("no-queue", queue="nowhere"),
        job("no-cluster-queue", queue="astray"),
        job("queue-stopped", queue="shut"),
        job("cq-stopped", queue="stopped"),
        job("cq-incomplete", queue="incomplete"),
        job("namespace", queue="picky"),
        job("label", queue="wide", nodeSelector={"type": "gpu"}),
        job("affinity", queue="wide", affinity={"nodeAffinity": required}),
        job("taint", queue="gpus"),
        job("too-large", queue="small", cpu="9"),
        undeclared,
        job("deactivated", queue="small", cpu="4"),
        job("held-by-admin", queue="small", cpu="4"),
    ]


@pytest.mark.long
async def test_each_state_has_the_same_message_in_api_table_event_and_log(world, sluice, caplog):
    caplog.set_level(logging.INFO, "admission")
    await begin(world)
    await world.start()
    match = {"verb": "patch", "resource": "jobs", "name": "refused"}
    world.sandbox.faults.install({"rules": [{"match": match, "do": "error", "code": 403}]})
    for obj in jobs_to_admit():
        name = obj["metadata"]["name"]
        await world.submit(obj)
        await world.record(name, "finished" if name in ("ended", "failed") else "admitted")
    for name in ("victim", "stops-for-user", "drained"):
        await world.job(name, lambda obj: (obj.get("status") or {}).get("ready") == 1)
    for obj in jobs_to_wait():
        await world.submit(obj)
        await world.record(obj["metadata"]["name"], "pending")
    await world.submit(labelled(job("displaces", queue="contested", cpu="4"), priority_class="high"))
    await world.record("displaces", "admitted")
    await world.order("held-by-admin", held=True)
    await world.order("deactivated", active=False)
    await world.report("rejected", {"name": "budget", "state": "Rejected", "message": "too dear"})
    await world.patch("stops-for-user", {"metadata": {"labels": {"sluice.dev/hold": "true"}}})
    await world.apply(cluster_queue("draining", stopPolicy="HoldAndDrain"), reason="the rack burns")
    await world.user.delete("jobs", "team-a", "gone")
    await world.patch("going", {"metadata": {"labels": {"sluice.dev/hold": None}}})
    await world.user.delete("jobs", "team-a", "going")
    world.pass_time(20)
    await world.record("waits", "pending", reason="WaitingForQuota")
    world.pass_time(3000)
    await world.record("ran-too-long", "pending")
    await check_all(world, sluice, caplog, STATES)
    world.sandbox.faults.remove()
    await world.record("refused", "admitted", reason="Admitted")


@pytest.mark.costly
async def test_workload_blocked_by_unready_pods_has_the_same_message_everywhere(world, sluice, caplog):
    caplog.set_level(logging.INFO, "admission")
    await begin(world)
    one_by_one = WaitForPodsReady(timeout=1e6, recovery_timeout=None, block_admission=True)
    await world.start(ControllerPolicy(pods_ready=one_by_one))
    await world.submit(with_pod_annotations(job("unready", queue="wide"), start="unready"))
    await world.record("unready", "admitted")
    await world.submit(job("next", queue="wide"))
    await world.record("next", "pending", reason="WaitingForPodsReady")
    world.pass_time(20)
    await check_all(world, sluice, caplog, BLOCKED)


@pytest.mark.costly
async def test_requeued_and_deactivated_unready_jobs_have_the_same_message_everywhere(world, sluice, caplog):
    caplog.set_level(logging.INFO, "admission")
    await begin(world)
    policy = WaitForPodsReady(
        timeout=100.0, recovery_timeout=None, backoff_limit=1, backoff_base=100_000.0, backoff_max=100_000.0
    )
    await world.start(ControllerPolicy(pods_ready=policy))
    await world.submit(with_pod_annotations(job("given-up", queue="wide"), start="unready"))
    await world.record("given-up", "admitted")
    world.pass_time(101)
    await world.record("given-up", "pending")
    world.pass_time(200_000)
    await world.record("given-up", "admitted")
    await world.submit(with_pod_annotations(job("pauses", queue="wide"), start="unready"))
    await world.record("pauses", "admitted")
    world.pass_time(101)
    await world.record("pauses", "pending")
    await check_all(world, sluice, caplog, UNREADY)


async def check_all(world: World, sluice: Sluice, caplog: pytest.LogCaptureFixture, states: dict[str, Said]) -> None:
    wrong: dict[str, str] = {}

    async def all_right() -> bool:
        for name, said in states.items():
            try:
                await check(world, sluice, caplog, name, said)
            except (AssertionError, NotFound) as error:
                wrong[name] = str(error)
                return False
            wrong.pop(name, None)
        return True

    try:
        await world.eventually(all_right)
    finally:
        print(wrong)  # differences that remain at the test's time limit


async def check(world: World, sluice: Sluice, caplog: pytest.LogCaptureFixture, name: str, said: Said) -> None:
    """Raises AssertionError if a message of the state is missing or different."""
    record = await world.store.workloads.get("team-a", name)
    assert record is not None
    assert (record.state, record.reason) == (said.state, said.reason), record.message
    assert said.what in record.message
    assert said.helps in record.message
    sentence = record.message

    explanation = await sluice.workloads.explain(name, namespace="team-a")
    assert (explanation.reason, explanation.message) == (said.reason, sentence)
    why = "\n".join([*explanation.sentences, *explanation.details])
    assert said.reason in why
    assert sentence in why
    if said.state == "pending":
        assert "; needs " in explanation.standing or said.reason in explanation.standing

    workload = await sluice.workloads.get(name, namespace="team-a")
    conditions = {(each.reason, each.message) for each in workload.conditions.values()}
    conditions |= {(each.reason, "") for each in workload.conditions.values()}
    shown = {"PodsUnscheduled": "WaitForStart", "QuotaReserved": "UnsatisfiedAdmissionChecks"}
    assert (shown.get(said.reason, said.reason), sentence) in conditions

    table = await sluice.workloads.documents.table(namespace="team-a", name=name)
    cells = dict(zip((column["name"] for column in table.columns), table.rows[0]["cells"], strict=True))
    assert (cells["Message"] or "") == sentence
    running = said.reason in ("Admitted", "Succeeded", "Failed", "Deleted")
    listed = said.reason if said.reason == "PodsUnscheduled" else shown.get(said.reason, said.reason)
    assert cells["Waits for"] == (None if running else listed)

    if said.event:
        events = (await world.client.get("/apis/events.k8s.io/v1/namespaces/team-a/events"))["items"]
        of_it = [event for event in events if event["regarding"]["uid"] == record.workload.uid]
        notes = [event["note"] for event in of_it if event["reason"] == said.event]
        # If it is pending again after an eviction, its Event has the message of the eviction.
        eviction = record.eviction if said.state == "pending" and said.event != "Pending" else None
        told = sentence if eviction is None else eviction.message
        assert notes
        assert any(told in note for note in notes) or said.state == "finished", (told, notes)
        lines = [line.getMessage() for line in caplog.records if f"team-a/{name}" in line.getMessage()]
        assert any(told in line for line in lines) or said.state == "finished", (told, lines)
