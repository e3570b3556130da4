"""`sluice import kueue` from manifests: the plan, and with --yes the same objects in Sluice."""

from __future__ import annotations

import re

import pytest
import yaml

from admission.model.manifests import parse_documents, parse_manifest
from admission.sandbox.sandbox import Sandbox

V1BETA1 = """
# The names are those of Kueue's own examples of this version.
apiVersion: kueue.x-k8s.io/v1beta1
kind: ResourceFlavor
metadata: {name: spot}
spec:
  nodeLabels: {instance-type: spot}
  nodeTaints: [{effect: NoSchedule, key: spot, value: "true"}]
  tolerations: [{key: spot-taint, operator: Exists, effect: NoSchedule}]
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: team-a-cq}
spec:
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: team-a}}
  cohort: team-ab
  queueingStrategy: StrictFIFO
  admissionChecks: [sample-prov]
  flavorFungibility: {whenCanBorrow: Borrow, whenCanPreempt: Preempt}
  preemption:
    reclaimWithinCohort: Any
    borrowWithinCohort: {policy: LowerPriority, maxPriorityThreshold: 100}
    withinClusterQueue: LowerPriority
  resourceGroups:
  - coveredResources: [cpu, memory]
    flavors:
    - name: spot
      resources:
      - {name: cpu, nominalQuota: 9, borrowingLimit: 1}
      - {name: memory, nominalQuota: 36Gi, lendingLimit: 10Gi}
---
{apiVersion: kueue.x-k8s.io/v1beta1, kind: LocalQueue, metadata: {namespace: team-a, name: team-a-lq},
 spec: {clusterQueue: team-a-cq}}
---
{apiVersion: kueue.x-k8s.io/v1beta1, kind: Cohort, metadata: {name: team-ab}, spec: {parent: root}}
---
{apiVersion: kueue.x-k8s.io/v1beta1, kind: Cohort, metadata: {name: root}}
---
{apiVersion: kueue.x-k8s.io/v1beta1, kind: WorkloadPriorityClass, metadata: {name: high}, value: 10000, description: x}
---
{apiVersion: kueue.x-k8s.io/v1beta1, kind: AdmissionCheck, metadata: {name: sample-prov},
 spec: {controllerName: kueue.x-k8s.io/provisioning-request}}
"""
V1BETA2 = (
    V1BETA1.replace("v1beta1", "v1beta2")
    .replace("cohort: team-ab", "cohortName: team-ab")
    .replace("spec: {parent: root}", "spec: {parentName: root}")
    .replace("admissionChecks: [sample-prov]", "admissionChecksStrategy: {admissionChecks: [{name: sample-prov}]}")
    .replace(
        "{whenCanBorrow: Borrow, whenCanPreempt: Preempt}",
        "{whenCanBorrow: MayStopSearch, whenCanPreempt: MayStopSearch}",
    )
)


def typed(text):
    """The objects of manifests by key, parsed and without metadata."""
    objects = [parse_manifest(document.body) for document in parse_documents(text, source="test")]
    return {item.key: item.model_dump(exclude={"metadata"}) for item in objects}


@pytest.mark.costly
@pytest.mark.parametrize("manifests", [V1BETA1, V1BETA2], ids=["v1beta1", "v1beta2"])
async def test_import_and_export_preserve_the_manifests(sluice, tmp_path, manifests):
    (tmp_path / "kueue.yaml").write_text(manifests)
    plan = await sluice("import", "kueue", "-f", str(tmp_path))
    assert plan.exit_code == 0, plan.output
    assert plan.output.splitlines()[-1] == "7 create: nothing was written; use --yes to write"
    assert (await sluice("get", "clusterqueues")).stdout == ""

    done = await sluice("import", "kueue", "-f", str(tmp_path), "--yes")
    assert done.output.splitlines()[-1] == "7 create: done"
    again = await sluice("import", "kueue", "-f", str(tmp_path), "--yes")
    assert again.output.splitlines()[-1] == "7 same: there is nothing to do"

    exported = await sluice("export", "--as", "kueue")
    assert typed(exported.stdout) == typed(manifests)
    history = await sluice("history", "clusterqueue/team-a-cq")
    assert "imported from Kueue" in history.stdout


@pytest.mark.costly
async def test_apply_treats_manifests_of_both_api_groups_as_the_same(sluice, tmp_path):
    for group in ("kueue.x-k8s.io/v1beta2", "sluice.dev/v1"):
        applied = await sluice("apply", "-f", "-", stdin=V1BETA2.replace("kueue.x-k8s.io/v1beta2", group))
        assert applied.exit_code == 0, applied.output
    assert "configured" not in applied.stdout


@pytest.mark.costly
async def test_import_updates_objects_and_notes_unsupported_fields_and_kinds(sluice, tmp_path):
    file = tmp_path / "kueue.yaml"
    await sluice("apply", "-f", "-", stdin=V1BETA2)
    documents = list(yaml.safe_load_all(V1BETA2))
    documents[0]["spec"]["topologyName"] = "racks"
    documents[1]["spec"]["queueingStrategy"] = "BestEffortFIFO"
    documents[1]["spec"]["queueShape"] = "round"
    documents.append({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "MultiKueueConfig", "metadata": {"name": "a"}})
    levels = {"levels": [{"nodeLabel": "rack"}]}
    racks = {"apiVersion": "kueue.x-k8s.io/v1alpha1", "kind": "Topology", "metadata": {"name": "racks"}, "spec": levels}
    documents.append(racks)
    file.write_text(yaml.safe_dump_all(documents))
    plan = await sluice("import", "kueue", "-f", str(file))
    lines = plan.output.splitlines()
    note = lines[lines.index("update  clusterqueue/team-a-cq") + 1]
    assert "spec.queueShape" in note
    assert "left out, as if it were not set" in note
    assert "its clusters are named by the ResourceFlavors of ClusterQueues" in plan.output
    assert "create  topology/racks" in lines
    assert lines[-1] == "1 create, 2 update, 5 same, 1 skip: nothing was written; use --yes to write"
    strategy = ("get", "cq/team-a-cq", "-o", "jsonpath={.spec.queueingStrategy}")
    assert (await sluice(*strategy)).stdout == "StrictFIFO"

    done = await sluice("import", "kueue", "-f", str(file), "--yes")
    assert done.output.splitlines()[-1] == "1 create, 2 update, 5 same, 1 skip: done"
    assert (await sluice(*strategy)).stdout == "BestEffortFIFO"
    again = await sluice("import", "kueue", "-f", str(file), "--yes")
    assert again.output.splitlines()[-1] == "8 same, 1 skip: there is nothing to do"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("nominalQuota: 9", "nominalQuota: lots"), "nominalQuota"),
        (("kind: Cohort, metadata: {name: root}", "kind: Cohort, metadata: {name: team-ab}"), "keep one of the two"),
        (
            ("apiVersion: kueue.x-k8s.io/v1beta2", "apiVersion: kueue.x-k8s.io/v1"),
            'apiVersion: "kueue.x-k8s.io/v1" is not known; use kueue.x-k8s.io/v1beta2',
        ),
        (
            ("\napiVersion: kueue.x-k8s.io/v1beta2", "\napiVersion: kueue.x-k8s/v1beta2"),
            'apiVersion: "kueue.x-k8s/v1beta2" is not known; use kueue.x-k8s.io/v1beta2',
        ),
        (("{name: root}", "{name: root}, spec: {parentName: team-ab}"), "closes a cycle of Cohorts"),
        (("kind: ClusterQueue", "kind: ClusterQueu"), 'kind: "ClusterQueu" is not known; did you mean "ClusterQueue"?'),
    ],
)
async def test_import_of_an_invalid_manifest_is_refused_and_writes_nothing(sluice, tmp_path, change, message):
    file = tmp_path / "kueue.yaml"
    file.write_text(V1BETA2.replace(*change))
    refused = await sluice("import", "kueue", "-f", str(file), "--yes")
    assert refused.exit_code == 2
    assert all(line.startswith("error: ") and message in line for line in refused.stderr.splitlines())
    assert message in refused.stderr
    assert (await sluice("get", "clusterqueues")).stdout == ""


OTHERS = """
apiVersion: batch/v1
kind: Job
metadata: {name: train}
---
{apiVersion: v1, kind: Namespace, metadata: {name: team-a}}
---
{apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: research}}
---
{apiVersion: kueue.x-k8s.io/v1beta2, kind: MultiKueueConfig, metadata: {name: clusters}}
---
{apiVersion: kueue.x-k8s.io/v1beta2, kind: Workload, metadata: {name: job-train-1a2b3, namespace: team-a}}
---
"""


async def test_import_reports_and_skips_documents_that_are_no_queue_objects(sluice, tmp_path):
    (tmp_path / "queues.yaml").write_text(OTHERS + V1BETA2)
    (tmp_path / "kustomization.yaml").write_text("resources: [queues.yaml]\n")
    done = await sluice("import", "kueue", "-f", str(tmp_path), "--yes")
    assert done.exit_code == 0, done.output
    *_, last = lines = done.stdout.splitlines()
    assert last == "7 create, 6 skip: done"
    skipped = {line.split()[1]: lines[index + 1].strip() for index, line in enumerate(lines) if line[:4] == "skip"}
    assert skipped == {
        str(tmp_path / "kustomization.yaml"): "it is not a queue object",
        "job/train": "it is not a queue object",
        "namespace/team-a": "it is not a queue object",
        "queue/research": "it is not Kueue's: use sluice import volcano",
        "multikueueconfig/clusters": "its clusters are named by the ResourceFlavors of ClusterQueues (spec.clusters)",
        "workload/team-a/job-train-1a2b3": "Workloads are read from a cluster only, with the Jobs that they belong to",
    }


async def test_import_notes_each_object_that_is_named_and_neither_in_the_files_nor_in_sluice(sluice, tmp_path):
    await sluice("apply", "-f", "-", stdin="{apiVersion: sluice.dev/v1, kind: ResourceFlavor, metadata: {name: spot}}")
    without_flavor = V1BETA2.split("---\n", 1)[1]
    typos = [("clusterQueue: team-a-cq", "clusterQueue: team-a"), ("[{name: sample-prov}]", "[{name: sample}]")]
    for typo in typos:
        without_flavor = without_flavor.replace(*typo)
    (tmp_path / "queues.yaml").write_text(without_flavor)
    plan = await sluice("import", "kueue", "-f", str(tmp_path))
    assert plan.exit_code == 0, plan.output
    noted = [line.strip() for line in plan.stdout.splitlines() if "there is no" in line]
    assert [note.partition("; ")[0] for note in noted] == [
        "spec.admissionChecksStrategy.admissionChecks[].name: there is no AdmissionCheck sample",
        "spec.clusterQueue: there is no ClusterQueue team-a",
    ]


async def test_import_names_the_faults_of_all_manifests_at_once(sluice, tmp_path):
    old = "{apiVersion: kueue.x-k8s.io/v1alpha2, kind: LocalQueue, metadata: {name: a}}\n---\n"
    (tmp_path / "queues.yaml").write_text(old + V1BETA2.replace("nominalQuota: 9", "nominalQuota: lots"))
    refused = await sluice("import", "kueue", "-f", str(tmp_path))
    assert refused.exit_code == 2
    first, second = refused.stderr.splitlines()
    assert 'document 1: apiVersion: "kueue.x-k8s.io/v1alpha2" is that of Kueue 0.2 and older' in first
    assert 'document 3: ClusterQueue "team-a-cq": spec.resourceGroups[0].flavors[0].resources[0].nominalQuota' in second


async def test_import_of_a_document_without_apiversion_is_refused_before_any_request(sluice, tmp_path):
    (tmp_path / "queues.yaml").write_text("kind: ClusterQueue\nmetadata: {name: a}\n")
    refused = await sluice("import", "kueue", "-f", str(tmp_path), SLUICE_SERVER="http://127.0.0.1:1")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "queues.yaml: apiVersion: is required; use kueue.x-k8s.io/v1beta2" in refused.stderr


async def test_apply_of_a_kind_that_only_kueue_has_points_to_the_import(sluice):
    racks = "\n---\n{apiVersion: kueue.x-k8s.io/v1beta2, kind: MultiKueueConfig, metadata: {name: racks}}\n"
    refused = await sluice("apply", "-f", "-", stdin=V1BETA2 + racks)
    assert refused.exit_code == 2
    assert "ResourceFlavors name their clusters" in refused.stderr
    assert "remove it, or use sluice import kueue" in refused.stderr


async def test_import_without_a_kubeconfig_is_an_error(sluice):
    refused = await sluice("import", "kueue")
    assert refused.exit_code == 1
    assert "/nonexistent/kubeconfig" in refused.stderr


async def test_import_from_a_cluster_without_kueue_is_an_error(sluice, tmp_path):
    async with Sandbox() as sandbox:
        sandbox.write_kubeconfig(tmp_path / "kubeconfig", "admin")
        refused = await sluice("import", "kueue", "--kubeconfig", str(tmp_path / "kubeconfig"), "--yes")
    assert (refused.exit_code, refused.stdout) == (1, "")
    sentence = r"error: Kueue is not installed in https://127.0.0.1:\d+ \(.*\); check --context\n"
    assert re.fullmatch(sentence, refused.stderr)
    assert (await sluice("get", "clusterqueues")).stdout == ""
