"""Plan of a scene of the demo: teams and their quotas, nodes, and Jobs with their arrivals; and its manifests.

Amounts are in Sluice's units: milli-CPU for `cpu`, base units for all other resources.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from admission.model.quantity import format_amount
from admission.model.workload import LOCAL

if TYPE_CHECKING:
    from collections.abc import Mapping

Document: TypeAlias = dict[str, Any]

GPU: Final = "nvidia.com/gpu"
QUEUE: Final = "jobs"
"""Name of each team's LocalQueue, in the namespace with the team's name."""
COHORT: Final = "company"
FLAVOR: Final = "simulated-nodes"
_GIB: Final = 2**30
_TAINT: Final = {"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}
_NODE_LABELS: Final = {"type": "kwok"}


@dataclass(frozen=True, slots=True)
class Team:
    """A tenant, whose ClusterQueue and namespace have its name."""

    name: str
    nominal: Mapping[str, int]
    """Nominal quota by resource, such as `{"cpu": 400_000}`."""
    borrowing: Mapping[str, int] | None
    """Borrowing limit by resource; None: no limit."""
    priority_class: str
    priority: int
    weight: int = 1
    """Weight in fair sharing."""


@dataclass(frozen=True, slots=True)
class Nodes:
    """`count` simulated nodes, each with `allocatable` resources."""

    count: int
    allocatable: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """A Job, or an object of another `kind`, with `pods` parallel pods that run for `run_seconds` of sandbox time.

    `requests` are those of one pod. `arrival` is in real seconds after the start; the Jobs of a plan are sorted by it.
    """

    name: str
    team: str
    pods: int
    requests: Mapping[str, int]
    run_seconds: float
    arrival: float = 0.0
    kind: str = "Job"
    cluster: str = LOCAL
    """The cluster in which it is created."""


@dataclass(frozen=True, slots=True)
class ScenePlan:
    """One scene. `speed` is the speed of the sandbox's clock, `shown` are the resources that are displayed."""

    title: str
    notes: tuple[str, ...]
    teams: tuple[Team, ...]
    nodes: Nodes
    jobs: tuple[PlannedJob, ...]
    speed: float
    shown: tuple[str, ...]
    common: Mapping[str, int] = field(default_factory=dict)
    """Quota of the cohort itself by resource, which all teams may borrow."""
    fair_sharing: bool = False
    """Whether fair sharing is on: teams above their fair share of borrowed quota are preempted."""
    preemption: bool = False
    """Whether teams reclaim borrowed quota, and preempt lower priorities of the same team."""

    kinds: tuple[str, ...] = ()
    """Kinds that are queued in addition to Jobs, with their names in the setting `integrations`."""
    others: tuple[str, ...] = ()
    """Clusters that join the first one, which has the name `local`; each has the nodes."""
    dispatches: bool = False
    """Whether all Jobs are created in the first cluster, and run in the others."""
    noun: str = "Jobs"
    """Plural noun for the planned objects in displayed texts, such as "objects"."""

    @property
    def evicts(self) -> bool:
        """Whether running Jobs may be evicted."""
        return self.fair_sharing or self.preemption

    @property
    def settings(self) -> Document:
        """Return the settings of `sluice serve` that the scene needs, in addition to addresses and paths."""
        settings: Document = {}
        if self.fair_sharing:
            settings["fairSharing"] = {"enable": True}
        if self.kinds:
            settings["integrations"] = {"frameworks": ["batch/job", *self.kinds]}
        if self.others:
            settings["admission"] = "policies"  # written into each cluster; a webhook would need a process in each
        return settings

    @property
    def resources(self) -> tuple[str, ...]:
        """Return the resources with quota, which are the same for all teams."""
        return tuple(self.teams[0].nominal)

    def total(self, resource: str) -> int:
        """Return the quota of all teams and the cohort together: the maximum of what may be used."""
        return sum(team.nominal[resource] for team in self.teams) + self.common.get(resource, 0)

    def limit(self, team: Team, resource: str) -> int:
        """Return the maximum that `team` may use: nominal quota plus borrowing limit, but at most the total quota."""
        total = self.total(resource)
        return total if team.borrowing is None else min(total, team.nominal[resource] + team.borrowing[resource])


# Team, quota and borrowing limit in percent of the nodes, priority class, its value, and share of the Jobs. The team
# that finishes last has no borrowing limit, so that no quota has to stay idle while a Job waits.
_TEAMS: Final = (
    ("platform", 40, 20, "production", 300, 0.20),
    ("students", 20, 40, "coursework", 200, 0.30),
    ("research", 40, None, "batch", 100, 0.50),
)


def three_teams(*, jobs: int = 1000, nodes: int = 100, speed: float = 60.0) -> ScenePlan:
    """Return the plan: three teams that share `nodes` nodes of 10 CPUs, and `jobs` Jobs of 10 pods that arrive at once.

    The sizes are those of the scalability test by which batch queues are usually compared: 2 CPUs and 2 GiB per pod,
    and run times of 3 minutes plus up to 50 %, drawn for each Job.
    """
    chance = random.Random(1)
    pod = {"cpu": 2_000, "memory": 2 * _GIB}
    owners = [name for name, *_, share in _TEAMS for _ in range(round(jobs * share))]
    owners = (owners + [_TEAMS[-1][0]] * jobs)[:jobs]
    chance.shuffle(owners)
    # No activeDeadlineSeconds: delays of a slow machine count `speed` times in sandbox time, and must not fail Jobs.
    planned = tuple(
        PlannedJob(f"sample-{number:04}", owner, 10, pod, round(180 * chance.uniform(1.0, 1.5), 1))
        for number, owner in enumerate(owners)
    )
    whole = {"cpu": nodes * 10_000, "memory": nodes * 10 * _GIB}
    return ScenePlan(
        title=f"{jobs} Jobs of 10 pods, three teams, {nodes} nodes with {nodes * 10} CPUs",
        notes=(f"Sandbox time runs {speed:g} times as fast as real time.",),
        teams=tuple(
            Team(name, _part(whole, quota), _part(whole, limit) if limit else None, priority_class, priority)
            for name, quota, limit, priority_class, priority, _ in _TEAMS
        ),
        nodes=Nodes(nodes, {"cpu": 10_000, "memory": 10 * _GIB}),
        jobs=planned,
        speed=speed,
        shown=("cpu",),
    )


def _part(whole: Mapping[str, int], hundredths: int) -> dict[str, int]:
    return {resource: amount * hundredths // 100 for resource, amount in whole.items()}


def queue_documents(plan: ScenePlan) -> list[Document]:
    """Return the manifests for `sluice apply`: clusters, flavors, priority classes, cohort, and queues of each team."""
    documents = [queue_object("Cluster", name, spec={"kubeconfig": f"{name}.yaml"}) for name in plan.others]
    for flavor, clusters in _flavors(plan).items():
        spec = {"nodeLabels": _NODE_LABELS, "tolerations": [_toleration()], **clusters}
        documents.append(queue_object("ResourceFlavor", flavor, spec=spec))
    documents += [
        queue_object("Cohort", COHORT, spec={"resourceGroups": _groups(plan, plan.common)} if plan.common else {}),
    ]
    for team in plan.teams:
        groups = _groups(plan, team.nominal, team.borrowing)
        queue: Document = {"cohortName": COHORT, "namespaceSelector": {}, "resourceGroups": groups}
        if plan.dispatches:
            queue["dispatch"] = {}
        if plan.fair_sharing:
            queue["fairSharing"] = {"weight": str(team.weight)}
        if plan.evicts:
            queue["preemption"] = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}
        documents += [
            queue_object(
                "WorkloadPriorityClass",
                team.priority_class,
                value=team.priority,
                description=f"priority of the Jobs of {team.name}",
            ),
            queue_object("ClusterQueue", team.name, spec=queue),
            queue_object("LocalQueue", QUEUE, namespace=team.name, spec={"clusterQueue": team.name}),
        ]
    return documents


def _flavors(plan: ScenePlan) -> dict[str, Document]:
    """Return each flavor with the clusters that have it: all, or one if Sluice chooses the cluster."""
    if not plan.dispatches:
        return {FLAVOR: {}}
    return {f"{FLAVOR}-{name}": {"clusters": [name]} for name in plan.others}


def _groups(plan: ScenePlan, nominal: Mapping[str, int], borrowing: Mapping[str, int] | None = None) -> list[Document]:
    flavors = _flavors(plan)
    quotas: list[Document] = []
    for resource in plan.resources:
        quotas.append({"name": resource, "nominalQuota": format_amount(resource, nominal[resource] // len(flavors))})
        if borrowing is not None:
            quotas[-1]["borrowingLimit"] = format_amount(resource, borrowing[resource] // len(flavors))
    return [
        {"coveredResources": [*plan.resources], "flavors": [{"name": name, "resources": quotas} for name in flavors]}
    ]


def queue_object(kind: str, name: str, *, namespace: str = "", **fields: Any) -> Document:
    """Return the manifest of an object of Sluice with these `fields`, such as `spec`."""
    metadata = {"name": name, "namespace": namespace} if namespace else {"name": name}
    return {"apiVersion": "sluice.dev/v1", "kind": kind, "metadata": metadata, **fields}


def _toleration() -> Document:
    return {**_TAINT, "operator": "Equal"}


def node_document(plan: ScenePlan, number: int) -> Document:
    """Return the manifest of a simulated node, tainted so that only pods with the flavor's toleration run there."""
    name = f"kwok-node-{number}"
    amounts = plan.nodes.allocatable.items()
    allocatable = {"pods": "110", **{resource: format_amount(resource, amount) for resource, amount in amounts}}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {**_NODE_LABELS, "kubernetes.io/hostname": name},
        },
        "spec": {"taints": [_TAINT]},
        "status": {
            "allocatable": allocatable,
            "capacity": allocatable,
            "conditions": [{"type": "Ready", "status": "True", "reason": "Simulated", "message": "simulated node"}],
        },
    }


def job_document(plan: ScenePlan, job: PlannedJob) -> Document:
    """Return the Job as its user would write it: without node selector, toleration and `suspend`, which Sluice sets."""
    team = next(team for team in plan.teams if team.name == job.team)
    requests = {resource: format_amount(resource, amount) for resource, amount in job.requests.items() if amount}
    container = {
        "name": "job",
        "image": "registry.k8s.io/pause:3.10",
        "resources": {"requests": requests, "limits": requests},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": job.name,
            "namespace": job.team,
            "labels": {"sluice.dev/queue-name": QUEUE, "sluice.dev/priority-class": team.priority_class},
        },
        "spec": {
            "parallelism": job.pods,
            "completions": job.pods,
            **({"managedBy": "sluice.dev/dispatch"} if plan.dispatches else {}),
            "backoffLimit": 0,
            "template": {
                "metadata": {"annotations": {"sandbox.sluice.dev/run-seconds": f"{job.run_seconds:g}"}},
                "spec": {"restartPolicy": "Never", "containers": [container]},
            },
        },
    }
