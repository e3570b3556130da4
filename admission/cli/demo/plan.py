"""What a scene of the demo consists of: teams and their quotas, nodes, Jobs and when each arrives. Data only.

Amounts are as everywhere in Sluice: milli-units for `cpu`, base units for everything else.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from admission.model.quantity import format_amount

if TYPE_CHECKING:
    from collections.abc import Mapping

Document: TypeAlias = dict[str, Any]

GPU: Final = "nvidia.com/gpu"
QUEUE: Final = "jobs"
"""Each team's LocalQueue, in the namespace that is called like the team."""
COHORT: Final = "company"
FLAVOR: Final = "pretend-nodes"
_GIB: Final = 2**30
_TAINT: Final = {"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}
_NODE_LABELS: Final = {"type": "kwok"}


@dataclass(frozen=True, slots=True)
class Team:
    """A tenant: its ClusterQueue and its namespace have its name."""

    name: str
    nominal: Mapping[str, int]
    borrowing: Mapping[str, int] | None
    """How much more than `nominal` it may use while others leave it idle; None: all that is idle."""
    priority_class: str
    priority: int
    weight: int = 1
    """Its share of what is borrowed, in proportion to those of the others."""


@dataclass(frozen=True, slots=True)
class Nodes:
    """`count` equal pretend nodes with `allocatable` each."""

    count: int
    allocatable: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """A Job, or an object of another `kind`, of `pods` pods side by side that run for `run_seconds` of sandbox time.

    `requests` are of one pod. `arrival` is in real seconds after the start; the Jobs of a plan are in its order.
    """

    name: str
    team: str
    pods: int
    requests: Mapping[str, int]
    run_seconds: float
    arrival: float = 0.0
    kind: str = "Job"


@dataclass(frozen=True, slots=True)
class Plan:
    """One scene. `speed` is how much faster than time the sandbox runs; `shown` are the resources worth a bar."""

    title: str
    notes: tuple[str, ...]
    teams: tuple[Team, ...]
    nodes: Nodes
    jobs: tuple[PlannedJob, ...]
    speed: float
    shown: tuple[str, ...]
    common: Mapping[str, int] = field(default_factory=dict)
    """Quota of the cohort's own, which no team owns and all may borrow."""
    fair_sharing: bool = False
    """Whether what is borrowed is shared by weight, and taken back from who has more than a fair share."""
    preemption: bool = False
    """Whether quota is taken back from who borrows it, and from lower priorities of the same team."""

    kinds: tuple[str, ...] = ()
    """The kinds that are queued beside Jobs, as the setting `integrations` names them."""
    things: str = "Jobs"
    """What its jobs are called."""

    @property
    def evicts(self) -> bool:
        """Whether a Job that runs may have to wait again."""
        return self.fair_sharing or self.preemption

    @property
    def settings(self) -> Document:
        """What `sluice serve` has to be told beside where everything is."""
        kinds = {"integrations": {"frameworks": ["batch/job", *self.kinds]}} if self.kinds else {}
        return {"fairSharing": {"enable": True}} | kinds if self.fair_sharing else kinds

    @property
    def resources(self) -> tuple[str, ...]:
        """All that quota is given for; every team has the same."""
        return tuple(self.teams[0].nominal)

    def total(self, resource: str) -> int:
        """The quota of all teams and of the cohort together, which is all that may ever be used."""
        return sum(team.nominal[resource] for team in self.teams) + self.common.get(resource, 0)

    def limit(self, team: Team, resource: str) -> int:
        """What `team` may use at most: nominal quota and borrowing limit, but no more than the cohort has."""
        total = self.total(resource)
        return total if team.borrowing is None else min(total, team.nominal[resource] + team.borrowing[resource])


# Quota in hundredths of the nodes, borrowing limit likewise, share of the Jobs. The last to finish may borrow all, so
# that quota has no reason to lie idle while a Job waits.
_TEAMS: Final = (
    ("platform", 40, 20, "production", 300, 0.20),
    ("students", 20, 40, "coursework", 200, 0.30),
    ("research", 40, None, "batch", 100, 0.50),
)


def three_teams(*, jobs: int = 1000, nodes: int = 100, speed: float = 60.0, seed: int = 1) -> Plan:
    """Three teams that share `nodes` nodes of 10 CPUs, and `jobs` Jobs of 10 pods, all at once.

    The shape is that of the scalability test which batch queues are usually compared by: 2 CPUs and 2 GiB for each pod,
    3 minutes plus up to 50 %, one Job with a `seed`ed draw of its own.
    """
    chance = random.Random(seed)
    pod = {"cpu": 2_000, "memory": 2 * _GIB}
    owners = [name for name, *_, share in _TEAMS for _ in range(round(jobs * share))]
    owners = (owners + [_TEAMS[-1][0]] * jobs)[:jobs]
    chance.shuffle(owners)
    # No activeDeadlineSeconds: a slow machine is `speed` times slower in sandbox time, and must not fail Jobs by that.
    planned = tuple(
        PlannedJob(f"sample-{number:04}", owner, 10, pod, round(180 * chance.uniform(1.0, 1.5), 1))
        for number, owner in enumerate(owners)
    )
    whole = {"cpu": nodes * 10_000, "memory": nodes * 10 * _GIB}
    return Plan(
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


def queue_documents(plan: Plan) -> list[Document]:
    """What `sluice apply` is given: the flavor, the priority classes, the cohort, and each team's queues."""
    documents = [
        _sluice("ResourceFlavor", FLAVOR, spec={"nodeLabels": _NODE_LABELS, "tolerations": [_toleration()]}),
        _sluice("Cohort", COHORT, spec={"resourceGroups": _groups(plan, plan.common)} if plan.common else {}),
    ]
    for team in plan.teams:
        groups = _groups(plan, team.nominal, team.borrowing)
        queue: Document = {"cohortName": COHORT, "namespaceSelector": {}, "resourceGroups": groups}
        if plan.fair_sharing:
            queue["fairSharing"] = {"weight": str(team.weight)}
        if plan.evicts:
            queue["preemption"] = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}
        documents += [
            _sluice("WorkloadPriorityClass", team.priority_class, value=team.priority, description=f"of {team.name}"),
            _sluice("ClusterQueue", team.name, spec=queue),
            _sluice("LocalQueue", QUEUE, namespace=team.name, spec={"clusterQueue": team.name}),
        ]
    return documents


def _groups(plan: Plan, nominal: Mapping[str, int], borrowing: Mapping[str, int] | None = None) -> list[Document]:
    quotas: list[Document] = []
    for resource in plan.resources:
        quotas.append({"name": resource, "nominalQuota": format_amount(resource, nominal[resource])})
        if borrowing is not None:
            quotas[-1]["borrowingLimit"] = format_amount(resource, borrowing[resource])
    return [{"coveredResources": list(plan.resources), "flavors": [{"name": FLAVOR, "resources": quotas}]}]


def _sluice(kind: str, name: str, *, namespace: str = "", **fields: Any) -> Document:
    metadata = {"name": name, "namespace": namespace} if namespace else {"name": name}
    return {"apiVersion": "sluice.dev/v1", "kind": kind, "metadata": metadata, **fields}


def _toleration() -> Document:
    return {**_TAINT, "operator": "Equal"}


def node_document(plan: Plan, number: int) -> Document:
    """A node that exists on paper only: tainted, so that nothing lands there by accident."""
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
            "conditions": [{"type": "Ready", "status": "True", "reason": "Pretend", "message": "exists on paper"}],
        },
    }


def job_document(plan: Plan, job: PlannedJob) -> Document:
    """The Job as its user would write it: no node selector, no toleration, no `suspend`; these are Sluice's part."""
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
            "backoffLimit": 0,
            "template": {
                "metadata": {"annotations": {"sandbox.sluice.dev/run-seconds": f"{job.run_seconds:g}"}},
                "spec": {"restartPolicy": "Never", "containers": [container]},
            },
        },
    }
