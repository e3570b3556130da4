"""Scenario for the tests of the dashboard: Cohorts, teams, a month of usage, and pending workloads with reasons.

The engine decides which workloads are admitted, so that all numbers and messages are real.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, replace
from typing import Any

from queue_objects import manifest

from admission.api.resources.explaining_engine import Engines, NoController
from admission.api.resources.leader_view import LastAudit
from admission.model.manifests import parse_manifest
from admission.model.workload import Admission, PodSet, PodSetAssignment, Workload
from admission.store.audit_log import Author
from admission.store.records import Changes, Closed, Opened, State, Transition, WorkloadRecord
from admission.store.store import Store

GPU = "nvidia.com/gpu"
GI = 2**30
HOUR, DAY = 3600.0, 86400.0

HOSTILE = "<img src=x onerror=alert(1)>"
"""User name with markup; user names may contain any characters."""
RTL = "\u202eevil\u202c \u05d0\u05d1\u05d2"

TEAMS: dict[str, tuple[str, int, int, tuple[str, ...]]] = {
    "vision": ("research", 16, 320, ("ada", "grace")),
    "language": ("research", 32, 640, ("alan", "barbara", "ken")),
    "speech": ("research", 8, 160, ("edsger",)),
    "search": ("products", 8, 480, ("margaret", "frances")),
    "ads": ("products", 8, 320, ("donald",)),
    "data": ("products", 0, 800, ("john", HOSTILE)),
}
"""By namespace, which is also the name of its ClusterQueue: cohort, GPUs, CPUs, users."""
_MODELS = ("resnet", "clip", "llama", "whisper", "ranker", "bert", "segmenter")
_KINDS = ("train", "finetune", "evaluate", "preprocess", "sweep", "embed", "distill")


class ScenarioClock:
    """Clock that is `back` seconds late: at first a month, so that the queues are older than their workloads."""

    def __init__(self) -> None:
        self.back = 31 * DAY

    def __call__(self) -> float:
        return time.time() - self.back


@dataclass
class Scenario:
    """Contents of the store, with which tests compare the pages."""

    store: Store
    now: float
    epoch: int
    random: random.Random
    teams: tuple[str, ...]
    """The namespaces."""
    number: int = 0

    def workload(self, team: str, *, at: float, name: str = "", user: str = "", **fields: Any) -> Workload:
        """Return a workload of a team, with random requests unless given."""
        self.number += 1
        draw = self.random
        gpus = draw.choice((0, 1, 1, 2, 4, 8)) if TEAMS[team][1] else 0
        cpus = draw.choice((4, 8, 16)) if gpus else draw.choice((4, 8, 16, 32))
        requests = {"cpu": cpus * 1000, "memory": cpus * 4 * GI} | ({GPU: gpus} if gpus else {})
        requests = fields.pop("requests", requests)
        return Workload(
            uid=f"00000000-0000-4000-8000-{self.number:012}",
            namespace=team,
            name=name or f"{draw.choice(_KINDS)}-{draw.choice(_MODELS)}-{self.number}",
            queue=fields.pop("queue", "batch"),
            priority=fields.pop("priority", draw.choice((0, 0, 0, 100))),
            created=at,
            pod_sets=(PodSet("main", fields.pop("pods", draw.choice((1, 1, 2, 4))), requests),),
            user=user or draw.choice(TEAMS[team][3]),
            kind=fields.pop("kind", "RayJob" if self.number % 5 == 0 else "Job"),
            **fields,
        )

    def admission(self, workload: Workload) -> Admission:
        """Return an admission of the workload by its team's ClusterQueue."""
        flavor = "a100" if GPU in workload.pod_sets[0].requests else "standard"
        return _admission(workload, workload.namespace, flavor)


def manifests(extra_queues: int = 0) -> list[dict[str, Any]]:
    """Return the manifests of all queue objects."""
    flavors = [_flavor("a100", pool="a100"), _flavor("spot", pool="spot"), _flavor("standard")]
    cohorts = [manifest("Cohort", "company", spec={"resourceGroups": [_gpu_group(8, 160)]})]
    cohorts += [manifest("Cohort", name, spec={"parentName": "company"}) for name in ("research", "products")]
    queues = []
    for team, (cohort, gpus, cpus, _) in TEAMS.items():
        queues += [_cluster_queue(team, cohort, gpus, cpus), _local_queue("batch", team, team)]
    queues.append(_cluster_queue("legacy", "products", 0, 64, stopPolicy="Hold"))
    queues += [_local_queue("nightly", "data", "legacy"), _local_queue("express", "vision", "vision")]
    for number in range(extra_queues):
        if number % 25 == 0:
            cohorts.append(manifest("Cohort", f"division-{number // 25:02}", spec={"parentName": "company"}))
        name = f"team-{number:03}"
        queues += [_cluster_queue(name, f"division-{number // 25:02}", 4, 64), _local_queue("batch", name, name)]
    classes = [manifest("WorkloadPriorityClass", "urgent", value=100)]
    return [*flavors, *cohorts, *queues, *classes]


async def fill(
    store: Store, clock: ScenarioClock, *, extra_queues: int = 0, pending: int = 120, past: int = 700, days: int = 30
) -> Scenario:
    """Write the scenario: `past` finished workloads over `days`, then `pending` ones, some admitted by the engine."""
    admin = Author("ada", reason="Set up by the platform team")
    for document in manifests(extra_queues):
        await store.queues.create(parse_manifest(document), author=admin)
    clock.back = 9 * DAY
    await _edit(store, "vision", 16, 24, "Two more nodes for the CVPR deadline")
    clock.back = 2 * DAY
    await _edit(store, "vision", 24, 16, "The deadline is over")
    clock.back = 0.0
    teams = (*TEAMS, *(f"team-{number:03}" for number in range(extra_queues)))
    scenario = Scenario(store, time.time(), await store.lead("tests"), random.Random(7), teams)
    await _write_past(scenario, past, days)
    await _write_present(scenario, pending)
    while await store.roll_up(epoch=scenario.epoch):
        pass
    return scenario


async def _edit(store: Store, name: str, old: int, new: int, reason: str) -> None:
    def edited(queue: Any) -> Any:
        text = queue.model_dump_json(by_alias=True)
        return type(queue).model_validate_json(
            text.replace(f'"name":"{GPU}","nominalQuota":"{old}"', f'"name":"{GPU}","nominalQuota":"{new}"')
        )

    found = await store.queues.get("ClusterQueue", name)
    await store.queues.write(found.key, edited, author=Author("grace", reason=reason))


async def _write_past(scenario: Scenario, count: int, days: int) -> None:
    records, opened, closed, story = [], [], [], []
    draw = scenario.random
    for number in range(count):
        team = draw.choice(tuple(TEAMS))
        at = scenario.now - days * DAY * (1 - number / count)
        workload = scenario.workload(team, at=at, queue="batch")
        start = at + draw.expovariate(1 / 900)
        end = min(start + draw.expovariate(1 / (4 * HOUR)) + 300, scenario.now - 60)
        admission = scenario.admission(workload)
        outcome = draw.choice(("Succeeded", "Succeeded", "Succeeded", "Failed"))
        records.append(
            WorkloadRecord(
                workload, State.FINISHED, at, team, message="Job finished successfully", admitted_at=start,
                finished_at=max(start, end), outcome=outcome,
            )
        )  # fmt: skip
        opened.append(Opened(workload, admission, start))
        closed.append(Closed(workload.uid, max(start, end), "Finished"))
        uid = workload.uid
        story += [
            Transition(uid, at, State.PENDING, "", "Queued"),
            Transition(uid, start, State.ADMITTED, "Admitted", f"Admitted by ClusterQueue {team}"),
            Transition(uid, max(start, end), State.FINISHED, outcome, "Job finished successfully"),
        ]
    await scenario.store.commit(Changes(tuple(records), (), tuple(opened), ()), epoch=scenario.epoch)
    await scenario.store.commit(Changes(tuple(records), tuple(closed), (), tuple(story)), epoch=scenario.epoch)


async def _write_present(scenario: Scenario, count: int) -> None:
    """Write `count` pending workloads, and the decisions of the engine: admissions, and reasons of the others."""
    draw = scenario.random
    teams = (*TEAMS, "vision", "language")
    more_teams = scenario.teams[len(TEAMS) :]
    waiting = []
    for number in range(count):
        at = scenario.now - 6 * HOUR * (1 - number / count)
        if more_teams and number % 2:
            team = more_teams[number % len(more_teams)]
            workload = replace(scenario.workload("speech", at=at), namespace=team)
        else:
            workload = scenario.workload(draw.choice(teams), at=at)
        waiting.append(workload)
    huge = {"cpu": 8000, "memory": 64 * GI, GPU: 200}
    at = scenario.now - 2 * DAY
    waiting.append(scenario.workload("vision", at=at, name="never-fits", requests=huge, user="grace", pods=1))
    waiting.append(scenario.workload("data", at=at, name="rtl-and-markup", user=RTL + HOSTILE, queue="nightly"))
    records = [WorkloadRecord(each, State.PENDING, each.created) for each in waiting]
    await scenario.store.commit(
        Changes(tuple(records), (), (), tuple(Transition(r.workload.uid, r.queued_at, r.state) for r in records)),
        epoch=scenario.epoch,
    )
    engine, _ = await Engines(scenario.store, Teams(scenario.teams), clock=lambda: scenario.now).copy()
    decisions = engine.settle(scenario.now)
    changed, opened, story = [], [], []
    known = {record.workload.uid: record for record in records}
    for admit in decisions.admitted:
        since = admit.workload.created + draw.uniform(20, 900)
        record = known[admit.workload.uid]
        changed.append(
            replace(record, state=State.ADMITTED, cluster_queue=admit.admission.cluster_queue, admitted_at=since,
                    cleared_at=since, ready_at=since + 20)
        )  # fmt: skip
        opened.append(Opened(admit.workload, admit.admission, since))
        text = f"Admitted by ClusterQueue {admit.admission.cluster_queue}"
        story.append(Transition(admit.workload.uid, since, State.ADMITTED, "Admitted", text))
    admitted = {admit.workload.uid for admit in decisions.admitted}
    for record in (record for uid, record in known.items() if uid not in admitted):
        found = engine.explain(record.workload.uid)
        assert found is not None
        changed.append(
            replace(record, cluster_queue=found.cluster_queue, reason=found.reason, message=found.message)
        )  # fmt: skip
        story.append(Transition(record.workload.uid, record.queued_at + 1, State.PENDING, found.reason, found.message))
    await scenario.store.commit(Changes(tuple(changed), (), tuple(opened), tuple(story)), epoch=scenario.epoch)


class Teams(NoController):
    """Controller without decisions: namespaces, and a standstill and an audit as a leader would report them."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names
        self.silence = ""
        """Message about a standstill of decisions; empty if there is none."""
        self.audited: LastAudit | None = None

    def standstill(self) -> str:
        return self.silence

    def last_audit(self) -> LastAudit | None:
        return self.audited

    def namespaces(self) -> dict[str, dict[str, str]]:  # type: ignore[override]
        return {name: {} for name in self._names}


def _admission(workload: Workload, queue: str, flavor: str) -> Admission:
    assigned = [
        PodSetAssignment(
            pod_set.name,
            dict.fromkeys(pod_set.requests, flavor),
            {resource: amount * pod_set.count for resource, amount in pod_set.requests.items()},
            pod_set.count,
        )
        for pod_set in workload.pod_sets
    ]
    return Admission(queue, tuple(assigned))


def _flavor(name: str, **labels: str) -> dict[str, Any]:
    return manifest("ResourceFlavor", name, spec={"nodeLabels": labels})


def _local_queue(name: str, namespace: str, target: str) -> dict[str, Any]:
    return manifest("LocalQueue", name, namespace=namespace, spec={"clusterQueue": target})


def _resources(gpus: int, cpus: int) -> list[dict[str, str]]:
    shown = [{"name": "cpu", "nominalQuota": str(cpus)}, {"name": "memory", "nominalQuota": f"{cpus * 4}Gi"}]
    return [*shown, {"name": GPU, "nominalQuota": str(gpus)}]


def _gpu_group(gpus: int, cpus: int) -> dict[str, Any]:
    flavors = [{"name": "a100", "resources": _resources(gpus, cpus)}]
    return {"coveredResources": ["cpu", "memory", GPU], "flavors": flavors}


def _cluster_queue(name: str, cohort: str, gpus: int, cpus: int, **spec: Any) -> dict[str, Any]:
    if gpus:
        group = _gpu_group(gpus, cpus)
    else:
        flavors = [{"name": "standard", "resources": _resources(0, cpus)[:2]}]
        group = {"coveredResources": ["cpu", "memory"], "flavors": flavors}
    return manifest(
        "ClusterQueue", name, spec={"cohortName": cohort, "namespaceSelector": {}, "resourceGroups": [group], **spec}
    )
