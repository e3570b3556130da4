"""`sluice create`: objects from flags, with the syntax of kueuectl."""

from __future__ import annotations

import json

import pytest
import yaml
from command_runner import Sluice

OFFLINE = Sluice({"SLUICE_SERVER": "http://127.0.0.1:1", "SLUICE_TOKEN": "t"})


def created(*arguments: str) -> dict[str, object]:
    """Manifest that `create --dry-run=client` prints, without a request to the server."""
    done = OFFLINE.run("create", *arguments, "--dry-run=client", "-o", "yaml")
    assert done.exit_code == 0, done.output
    document = yaml.safe_load(done.stdout)
    assert isinstance(document, dict)
    return document


def test_cluster_queue_flags_become_two_resource_groups():
    document = created(
        "clusterqueue", "team-a", "--cohort", "research", "--queuing-strategy", "StrictFIFO",
        "--namespace-selector", "team=a,tier=prod",
        "--reclaim-within-cohort", "Any", "--preemption-within-cluster-queue", "LowerPriority",
        "--nominal-quota", "alpha:cpu=9;memory=36Gi,beta:memory=72Gi;cpu=18", "--nominal-quota", "gpu:nvidia.com/gpu=8",
        "--borrowing-limit", "alpha:cpu=1", "--lending-limit", "beta:memory=2Gi",
    )  # fmt: skip
    spec = document["spec"]
    assert (spec["cohortName"], spec["queueingStrategy"]) == ("research", "StrictFIFO")
    assert spec["namespaceSelector"] == {"matchLabels": {"team": "a", "tier": "prod"}}
    assert spec["preemption"]["reclaimWithinCohort"] == "Any"
    assert spec["preemption"]["withinClusterQueue"] == "LowerPriority"
    assert spec["resourceGroups"] == [
        {
            "coveredResources": ["cpu", "memory"],
            "flavors": [
                {
                    "name": "alpha",
                    "resources": [
                        {"name": "cpu", "nominalQuota": "9", "borrowingLimit": "1"},
                        {"name": "memory", "nominalQuota": "36Gi"},
                    ],
                },
                {
                    "name": "beta",
                    "resources": [
                        {"name": "cpu", "nominalQuota": "18"},
                        {"name": "memory", "nominalQuota": "72Gi", "lendingLimit": "2Gi"},
                    ],
                },
            ],
        },
        {
            "coveredResources": ["nvidia.com/gpu"],
            "flavors": [{"name": "gpu", "resources": [{"name": "nvidia.com/gpu", "nominalQuota": "8"}]}],
        },
    ]


def test_cluster_queue_without_selector_accepts_all_namespaces():
    assert created("cq", "a")["spec"]["namespaceSelector"] == {}


def test_flags_of_flavors_cohorts_priority_classes_and_local_queues():
    flavor = created(
        "resourceflavor", "spot", "--node-labels", "pool=spot,zone=a", "--node-taints", "spot=true:NoSchedule",
        "--tolerations", "spot=true:NoSchedule,other:NoExecute",
    )  # fmt: skip
    assert flavor["spec"] == {
        "nodeLabels": {"pool": "spot", "zone": "a"},
        "nodeTaints": [{"key": "spot", "value": "true", "effect": "NoSchedule"}],
        "tolerations": [
            {"key": "spot", "operator": "Equal", "value": "true", "effect": "NoSchedule"},
            {"key": "other", "operator": "Exists", "effect": "NoExecute"},
        ],
    }
    cohort = created("co", "research", "--parent", "all", "--nominal-quota", "spot:cpu=1")
    assert (cohort["kind"], cohort["spec"]["parentName"]) == ("Cohort", "all")
    assert created("wpc", "high", "--value", "-5")["value"] == -5
    queue = created("lq", "main", "-c", "team-a", "-n", "team-a")
    assert (queue["metadata"]["namespace"], queue["spec"]) == (
        "team-a",
        {"clusterQueue": "team-a", "stopPolicy": "None"},
    )


async def test_create_fails_if_the_object_exists(sluice):
    await sluice("create", "flavor", "default")
    arguments = ("create", "cq", "team-a", "--nominal-quota", "default:cpu=4")
    done = await sluice(*arguments)
    assert (done.exit_code, done.output) == (0, "clusterqueue.sluice.dev/team-a created\n")
    again = await sluice(*arguments)
    assert (again.exit_code, again.stdout) == (1, "")
    assert again.stderr.startswith('error: ClusterQueue "team-a" exists already')
    document = json.loads((await sluice("get", "cq/team-a", "-o", "json")).stdout)
    assert document["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] == "4"


async def test_a_server_dry_run_creates_nothing(sluice):
    done = await sluice("create", "cohort", "a", "--dry-run")
    assert done.stdout.startswith("cohort.sluice.dev/a created (server dry run)\n")
    assert (await sluice("get", "co", "-o", "name")).stdout == ""


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["cq"], 2, "Missing argument"),
        (["cq", "a", "--nominal-quota", "cpu=9"], 2, '--nominal-quota: "cpu=9" is not a quota; use "FLAVOR:'),
        (["cq", "a", "--nominal-quota", "x:cpu"], 2, '"cpu" is not a quota in flavor x'),
        (["cq", "a", "--nominal-quota", "x:cpu=1;cpu=2"], 2, "duplicate quota of cpu in flavor x"),
        (["cq", "a", "--borrowing-limit", "x:cpu=1"], 2, "--borrowing-limit: cpu in flavor x has no --nominal-quota"),
        (["cq", "a", "--nominal-quota", "x:cpu=lots"], 2, 'resources[0].nominalQuota: "lots" is not a quantity'),
        (["cq", "a", "--nominal-quota", "x:cpu=1;memory=1,y:cpu=1"], 2, '"cpu" is covered already'),
        (["cq", "A_B"], 2, 'metadata.name: "A_B" is no name'),
        (["cq", "a", "--namespace-selector", "x"], 2, '--namespace-selector: "x" is not KEY=VALUE'),
        (["flavor", "a", "--node-taints", "x=y"], 2, '"x=y" has no effect'),
        (["flavor", "a", "--node-taints", "x=y:Never"], 2, "spec.nodeTaints[0].effect"),
        (["lq", "a"], 2, "Missing option"),
        (["wl", "a"], 2, "create a Job with `sluice submit` or kubectl"),
        (["job", "a"], 2, "create a Job with `sluice submit` or kubectl"),
        (
            ["ac", "a"],
            2,
            "AdmissionCheck cannot be created from flags: write a manifest, and use `sluice apply -f FILE`",
        ),
        (["nonsense", "a"], 2, 'unknown resource type "nonsense"'),
    ],
)
def test_invalid_create_arguments_are_refused_with_a_message(arguments, code, says):
    done = OFFLINE.run("create", *arguments, "--dry-run=client")
    assert (done.exit_code, done.stdout) == (code, "")
    assert says in done.stderr.splitlines()[-1]
    assert len(done.stderr.splitlines()) == 1 or done.stderr.startswith("Usage: ")
