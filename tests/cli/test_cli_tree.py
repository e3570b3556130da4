"""`sluice tree`: the drawn quota tree, a subtree, documents, and errors."""

from __future__ import annotations

import json

import pytest
import yaml

from admission.model.workload import Admission, PodSet, PodSetAssignment, Workload
from admission.store.joined_clusters import JoinedCluster
from admission.store.records import Changes, Opened, State, WorkloadRecord
from admission.store.workloads.search import WorkloadQuery

QUEUES = """
{apiVersion: sluice.dev/v1, kind: ResourceFlavor, metadata: {name: default}}
---
{apiVersion: sluice.dev/v1, kind: ResourceFlavor, metadata: {name: spot}}
---
apiVersion: sluice.dev/v1
kind: Cohort
metadata: {name: research}
spec:
  parentName: all
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: default, resources: [{name: cpu, nominalQuota: 10}]}]
---
apiVersion: sluice.dev/v1
kind: ClusterQueue
metadata: {name: team-a}
spec:
  cohortName: research
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu, memory]
    flavors:
    - {name: default, resources: [{name: cpu, nominalQuota: 4}, {name: memory, nominalQuota: 8Gi}]}
    - {name: spot, resources: [{name: cpu, nominalQuota: 500m}, {name: memory, nominalQuota: 1Gi}]}
---
{apiVersion: sluice.dev/v1, kind: ClusterQueue, metadata: {name: team-b}, spec: {cohortName: all}}
---
{apiVersion: sluice.dev/v1, kind: ClusterQueue, metadata: {name: alone}, spec: {}}
---
{apiVersion: sluice.dev/v1, kind: LocalQueue, metadata: {name: main, namespace: x}, spec: {clusterQueue: team-a}}
"""
DRAWN = """
NAME             FLAVOR   RESOURCE  NOMINAL  USED  BORROWED  PENDING  STATUS
co/all           default  cpu       14       6               1
│                default  memory    8Gi      0
│                spot     cpu       500m     0
│                spot     memory    1Gi      0
├─ co/research   default  cpu       14       6               1
│  │             default  memory    8Gi      0
│  │             spot     cpu       500m     0
│  │             spot     memory    1Gi      0
│  └─ cq/team-a  default  cpu       4        6     2         1
│                default  memory    8Gi      0     0
│                spot     cpu       500m     0     0
│                spot     memory    1Gi      0     0
└─ cq/team-b                                                 0
cq/alone                                                     0
"""


@pytest.fixture
async def queues(sluice, store):
    done = await sluice("apply", "-f", "-", stdin=QUEUES)
    assert done.exit_code == 0, done.stderr
    pod_sets = (PodSet(name="main", count=2, requests={"cpu": 3000}),)
    admission = Admission("team-a", (PodSetAssignment("main", {"cpu": "default"}, {"cpu": 6000}, 2),))
    runs, waits = (Workload(uid, "x", uid, "main", 0, 1.0, pod_sets) for uid in ("runs", "waits"))
    records = (
        WorkloadRecord(runs, State.ADMITTED, 1.0, cluster_queue="team-a", admission=admission, admitted_at=1.0),
        WorkloadRecord(waits, State.PENDING, 1.0, cluster_queue="team-a"),
    )
    changes = Changes(workloads=records, opened=(Opened(runs, admission, 1.0),))
    await store.commit(changes, epoch=await store.lead("tests"))


async def test_tree_draws_all_cohorts_and_cluster_queues(sluice, queues):
    done = await sluice("tree")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == DRAWN.lstrip("\n")


@pytest.mark.parametrize("name", ["team-a", "cq/team-a", "clusterqueue/team-a"])
async def test_tree_of_a_name_draws_only_its_subtree(sluice, queues, name):
    done = await sluice("tree", name)
    assert done.exit_code == 0, done.stderr
    assert [line.split() for line in done.stdout.splitlines()][1:] == [
        ["cq/team-a", "default", "cpu", "4", "6", "2", "1"],
        ["default", "memory", "8Gi", "0", "0"],
        ["spot", "cpu", "500m", "0", "0"],
        ["spot", "memory", "1Gi", "0", "0"],
    ]
    below = (await sluice("tree", "research")).stdout.splitlines()
    assert [below[1].split()[0], below[5].split()[:2]] == ["co/research", ["└─", "cq/team-a"]]


async def test_tree_prints_json_and_yaml_documents(sluice, queues):
    document = json.loads((await sluice("tree", "-o", "json")).stdout)
    assert yaml.safe_load((await sluice("tree", "-o", "yaml")).stdout) == document
    everything, alone = document["items"]
    assert alone == {"kind": "ClusterQueue", "name": "alone", "pendingWorkloads": 0, "quotas": [], "children": []}
    research, team_b = everything["children"]
    (team_a,) = research["children"]
    assert (research["kind"], research["name"], team_b["name"]) == ("Cohort", "research", "team-b")
    assert research["quotas"][0] == {"flavor": "default", "resource": "cpu", "nominal": "14", "used": "6"}
    assert team_a["quotas"][0] == {
        "flavor": "default", "resource": "cpu", "nominal": "4", "used": "6", "borrowed": "2",
    }  # fmt: skip
    name = await sluice("tree", "team-b", "-o", "jsonpath={.items[0].name}")
    assert name.stdout == "team-b"


async def test_tree_shortens_long_names(sluice):
    long = "a-queue-of-a-team-whose-name-is-so-long-that-nobody-would-like-to-read-it-on-a-terminal-of-any-width"
    await sluice("create", "cohort", long[:60])
    done = await sluice(
        "create", "clusterqueue", long[:62], "--cohort", long[:60], "--nominal-quota", f"{long[:59]}:cpu=4"
    )
    assert done.exit_code == 0, done.stderr
    head, first, second = (await sluice("tree")).stdout.splitlines()
    assert max(map(len, (head, first, second))) <= 120
    assert first.startswith("co/a-queue-of-a-team-whose-name")
    assert "…" in first
    assert second.split()[-6:] == ["cpu", "4", "0", "0", "0", "FlavorNotFound"]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["nothing"], 1, 'error: a Cohort or ClusterQueue "nothing" does not exist\n'),
        (["co/team-a"], 1, 'error: Cohort "team-a" does not exist\n'),
        (["lq/main"], 2, "lq/main is not in the tree; use a Cohort (co/NAME) or a ClusterQueue (cq/NAME)"),
        (["chorts/x"], 2, 'did you mean "cohorts"?'),
        (["--cluster", "b"], 1, 'the cluster "b" does not exist; there are local'),
        (["--cluster", "b", "--topology", "gpu"], 2, "give --cluster or --topology, not both"),
        (["-o", "wide"], 2, "'wide' is not one of json, yaml"),
    ],
)
async def test_wrong_tree_arguments_are_reported(sluice, queues, arguments, code, says):
    done = await sluice("tree", *arguments)
    assert (done.exit_code, done.stdout) == (code, "")
    assert says in done.stderr


async def test_tree_refuses_an_ambiguous_name_and_reports_an_empty_tree(sluice):
    nothing = await sluice("tree")
    assert (nothing.exit_code, nothing.stdout) == (0, "")
    assert nothing.stderr == "no Cohorts or ClusterQueues found\n"
    await sluice("create", "cohort", "a")
    await sluice("apply", "-f", "-", stdin="{apiVersion: sluice.dev/v1, kind: ClusterQueue, metadata: {name: a}}")
    both = await sluice("tree", "a")
    assert both.exit_code == 2
    assert '"a" is a Cohort and a ClusterQueue; use co/a or cq/a' in both.stderr
    assert (await sluice("tree", "co/a")).stdout.splitlines()[1].split() == ["co/a", "0"]


async def test_tree_shows_why_a_queue_admits_nothing(sluice, queues):
    assert (await sluice("stop", "cq/team-b", "--reason", "maintenance")).exit_code == 0
    row = next(line for line in (await sluice("tree")).stdout.splitlines() if "cq/team-b" in line)
    assert row.split() == ["└─", "cq/team-b", "0", "Stopped"]
    document = yaml.safe_load((await sluice("tree", "team-b", "-o", "yaml")).stdout)
    assert document["items"][0]["inactive"] == "Stopped"


IN_B = """
{apiVersion: sluice.dev/v1, kind: Cluster, metadata: {name: b}, spec: {kubeconfig: b.yaml}}
---
{apiVersion: sluice.dev/v1, kind: ResourceFlavor, metadata: {name: spot}, spec: {clusters: [b]}}
---
{apiVersion: sluice.dev/v1, kind: ResourceFlavor, metadata: {name: default}, spec: {clusters: [local]}}
"""
DRAWN_IN_B = """
NAME             FLAVOR  RESOURCE  NOMINAL  USED  BORROWED  PENDING  STATUS
co/all           spot    cpu       500m     3               1
│                spot    memory    1Gi      0
├─ co/research   spot    cpu       500m     3               1
│  │             spot    memory    1Gi      0
│  └─ cq/team-a  spot    cpu       500m     3               1
│                spot    memory    1Gi      0
└─ cq/team-b                                                0
cq/alone                                                    0
"""


async def test_tree_of_a_cluster_has_its_flavors_and_what_its_workloads_use(sluice, queues, store):
    assert (await sluice("apply", "-f", "-", stdin=IN_B)).exit_code == 0
    pod_sets = (PodSet(name="main", count=1, requests={"cpu": 1000}),)
    own, sent, waits = (
        Workload(uid, "x", uid, "main", 0, 1.0, pod_sets, cluster=cluster)
        for uid, cluster in (("own", "b"), ("sent", "local"), ("waits-in-b", "b"))
    )
    admissions = [
        (workload, Admission("team-a", (PodSetAssignment("main", {"cpu": "spot"}, {"cpu": cpu}, 1),), cluster=cluster))
        for workload, cpu, cluster in ((own, 1000, ""), (sent, 2000, "b"))
    ]
    records = tuple(
        WorkloadRecord(each, State.ADMITTED, 1.0, cluster_queue="team-a", admission=admission, admitted_at=1.0)
        for each, admission in admissions
    )
    waiting = WorkloadRecord(waits, State.PENDING, 1.0, cluster_queue="team-a")
    opened = tuple(Opened(each, admission, 1.0) for each, admission in admissions)
    await store.commit(Changes(workloads=(*records, waiting), opened=opened), epoch=await store.lead("tests"))
    drawn = await sluice("tree", "--cluster", "b")
    assert drawn.stdout == DRAWN_IN_B[1:], drawn.stderr
    queues_there = (await sluice("top", "queues", "--cluster", "b")).stdout.splitlines()
    assert [line.split() for line in queues_there] == [
        ["NAME", "FLAVOR", "RESOURCE", "USED", "NOMINAL", "USE"],
        ["team-a", "spot", "cpu", "3", "500m", "600%"],
        ["team-a", "spot", "memory", "0", "1Gi", "0%"],
    ]
    users = {where: await sluice("top", "users", "--cluster", where) for where in ("b", "local")}
    held = {where: done.stdout.splitlines()[-1].split()[1:] for where, done in users.items()}
    assert held == {"b": ["2", "1", "3"], "local": ["1", "1", "6"]}
    for what in ("queues", "users"):
        missing = await sluice("top", what, "--cluster", "bb")
        assert missing.exit_code == 1
        assert 'the cluster "bb" does not exist; did you mean "b"?' in missing.stderr
    for where, wanted in (("b", {"own", "sent", "waits-in-b"}), ("local", {"runs", "waits"})):
        found = await sluice(
            "get", "workloads", "-A", "--cluster", where, "-o", "jsonpath={.items[*].spec.object.name}"
        )
        assert set(found.stdout.split()) == wanted
        query = WorkloadQuery(fields={"cluster": frozenset({where})})
        groups = await store.workloads.search_groups(query, by="cluster")
        assert [(group.value, sum(group.counts.values())) for group in groups] == [(where, len(wanted))]
    wide = (await sluice("get", "workloads", "-A", "-o", "wide")).stdout.splitlines()
    place = wide[0].index("CLUSTER")
    where = {line.split()[1].split("-")[1]: line[place:].split()[0] for line in wide[1:]}
    assert (where["own"], where["sent"], where["waits"]) == ("b", "b", "b")
    described = (await sluice("describe", "cluster", "b")).stdout.splitlines()
    assert [line.split() for line in described[-5:]] == [
        ["Workloads:", "2", "with", "quota,", "1", "waiting"],
        ["Flavors:", "spot"],
        ["Usage:"],
        ["CLUSTERQUEUE", "FLAVOR", "RESOURCE", "USED"],
        ["team-a", "spot", "cpu", "3"],
    ]
    lost = JoinedCluster("b", "uid-of-b", "Lost", 60.0, "is lost: no answer")
    await store.joined_clusters.note(lost, epoch=await store.lead("tests"))
    told = " ".join((await sluice("why", "-n", "x", "own")).stdout.split())
    assert "The cluster b is lost: no answer (since 1970-01-01 00:01 UTC). It holds its quota meanwhile" in told
    local = (await sluice("tree", "team-a", "--cluster", "local")).stdout.splitlines()
    assert [line.split() for line in local[1:]] == [
        ["cq/team-a", "default", "cpu", "4", "6", "1"],
        ["default", "memory", "8Gi", "0"],
    ]
