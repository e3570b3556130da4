"""Translation of the quota fields of each scheduler, with the shapes of the schedulers' own examples."""

from __future__ import annotations

from itertools import pairwise

import pytest
from kind_manifests import document

from admission.cli.commands.import_quotas import kai, koordinator, mcad, scheduler_plugins, volcano, yunikorn
from admission.cli.commands.import_quotas.quota_tree import translate
from admission.kinds import all_kinds
from admission.model.errors import InvalidObject
from admission.model.reading import parse_documents

VOLCANO = "apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\n"
PREFIX = "quota.scheduling.koordinator.sh"


def translated(system, text, capacity=None, namespaces=()):
    """Translated objects by "KIND NAME", skipped objects, and resources for which a capacity is missing."""
    found = system.SYSTEM.read(parse_documents(text, source="test"), namespaces)
    translation = translate(found.queues, flavor="default", capacity=capacity or {})
    objects = {each.item.key[0] + " " + each.item.name: each for each in translation.objects}
    return objects, found.skipped, translation.unbounded


def quota(each, resource="cpu"):
    """Nominal quota, borrowing limit and lending limit of an object for a resource."""
    group = each.item.spec.resource_groups[0]
    found = next(quota for quota in group.flavors[0].resources if quota.name == resource)
    return found.nominal_quota, found.borrowing_limit, found.lending_limit


def test_volcano_deserved_is_nominal_quota_and_guarantee_is_not_lent():
    text = f"""{VOLCANO}metadata: {{name: q}}
spec: {{weight: 3, deserved: {{cpu: 6}}, guarantee: {{resource: {{cpu: 2}}}}, capability: {{cpu: 8}},
  dequeueStrategy: fifo, affinity: {{}}, priority: 4}}
status: {{state: Closed}}
"""
    objects, _, unbounded = translated(volcano, text, {"cpu": 10_000}, ["a", "b"])
    each = objects["ClusterQueue q"]
    assert quota(each) == ("6", "2", "4")
    assert quota(objects["Cohort volcano-root"]) == ("4", None, None)
    assert (each.item.spec.queueing_strategy, each.item.spec.stop_policy) == ("StrictFIFO", "Hold")
    assert each.item.spec.fair_sharing.weight == "3"
    assert [note.partition(":")[0] for note in each.notes] == ["spec.affinity", "spec.priority"]
    assert objects["LocalQueue q"].item.spec.cluster_queue == "q"
    assert unbounded == ["memory"], "Jobs that ask for it would never start"


def test_volcano_hierarchy_annotations_create_intermediate_cohorts():
    text = "---\n".join(
        f"{VOLCANO}metadata:\n  name: {team}-{stage}\n  annotations:\n"
        f"    volcano.sh/hierarchy: root/{team}/{stage}\n    volcano.sh/hierarchy-weights: 1/{weight}/8\n"
        for team, weight in (("eng", 2), ("sci", 8))
        for stage in ("prod", "dev")
    )
    objects, _, _ = translated(volcano, text)
    assert objects["Cohort root.eng"].item.spec.parent_name == "volcano-root"
    assert objects["Cohort root.sci"].item.spec.fair_sharing.weight == "8"
    assert objects["ClusterQueue sci-dev"].item.spec.cohort_name == "root.sci"


def test_kai_quotas_are_converted_from_its_units():
    text = """
{apiVersion: scheduling.run.ai/v2, kind: Queue, metadata: {name: parent}, spec: {resources: {
  cpu: {quota: 500, limit: 500, overQuotaWeight: 1}, memory: {quota: 2, limit: -1, overQuotaWeight: 1},
  gpu: {quota: 2.5, limit: 4, overQuotaWeight: 2}}}}
---
{apiVersion: scheduling.run.ai/v2, kind: Queue, metadata: {name: q}, spec: {parentQueue: parent, preemptMinRuntime: 1h,
  resources: {cpu: {quota: 500, limit: 500}, gpu: {quota: -1, limit: -1}}}}
"""
    objects, _, _ = translated(kai, text)
    parent, queue = objects["Cohort parent"], objects["ClusterQueue q"]
    assert quota(parent) == ("0", "0", None)
    assert quota(parent, "memory") == ("2000000", None, None)
    assert quota(parent, "nvidia.com/gpu") == ("2", "2", None)
    assert quota(queue) == ("500m", "0", None)
    assert quota(queue, "memory") == ("0", "0", None), "a limit that is not set is 0 in KAI"
    assert quota(queue, "nvidia.com/gpu") == ("0", None, None)
    assert parent.item.spec.fair_sharing.weight == "2"
    assert any("gpu.quota: 2.5 is rounded down to 2" in note for note in parent.notes)
    assert any(note.startswith("spec.preemptMinRuntime: ") for note in queue.notes)
    assert any("memory.limit: not set, which means 0 in KAI" in note for note in queue.notes)


def test_kai_memory_may_be_a_quantity_of_kubernetes():
    text = """
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: team}
spec:
  resources:
    cpu: {quota: 4000, limit: -1}
    memory: {quota: "800Gi", limit: "1Ti"}
    gpu: {quota: 8, limit: 8}
"""
    objects, _, _ = translated(kai, text)
    queue = objects["ClusterQueue team"]
    assert quota(queue, "memory") == ("800Gi", "224Gi", None)
    assert quota(queue, "cpu")[0] == "4"
    assert [note.partition(": ")[0] for note in queue.notes] == [
        "spec.resources.memory.quota",
        "spec.resources.memory.limit",
    ]


def test_koordinator_lending_weights_and_namespaces_are_translated():
    text = f"""
apiVersion: scheduling.sigs.k8s.io/v1alpha1
kind: ElasticQuota
metadata:
  name: dept
  labels: {{{PREFIX}/is-parent: "true"}}
spec: {{min: {{cpu: 20}}, max: {{cpu: 40}}}}
---
apiVersion: scheduling.sigs.k8s.io/v1alpha1
kind: ElasticQuota
metadata:
  name: team
  labels: {{{PREFIX}/parent: dept, {PREFIX}/allow-lent-resource: "false", {PREFIX}/tree-id: t1}}
  annotations:
    {PREFIX}/shared-weight: '{{"cpu": 5, "memory": "1Gi"}}'
    {PREFIX}/namespaces: '["ns1", "ns2"]'
spec: {{min: {{cpu: 10}}, max: {{cpu: 60}}}}
---
{{apiVersion: scheduling.sigs.k8s.io/v1alpha1, kind: ElasticQuota, metadata: {{name: koordinator-system-quota}}}}
"""
    objects, skipped, _ = translated(koordinator, text, {"cpu": 100_000})
    assert quota(objects["Cohort dept"]) == ("10", "20", None)
    assert quota(objects["ClusterQueue team"]) == ("10", "50", "0")
    assert objects["Cohort dept"].item.spec.fair_sharing.weight == "40"
    assert objects["ClusterQueue team"].item.spec.fair_sharing.weight == "5"
    assert objects["LocalQueue team"].item.metadata.namespace in ("ns1", "ns2")
    assert [note.partition(": ")[0] for note in objects["ClusterQueue team"].notes] == [
        f"metadata.annotations[{PREFIX}/shared-weight]",
        f"metadata.labels[{PREFIX}/tree-id]",
    ]
    assert skipped == [("elasticquota/koordinator-system-quota", "is for system pods, which are not queued")]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("n1", "B!", f'metadata.annotations[{PREFIX}/namespaces]: "B!" is not a valid namespace name'),
        ("name: q", "name: größe", 'metadata.name: "größe" is not valid: use lower-case letters'),
        ("name: q", "name: 12", "metadata.name: is missing or not a string"),
    ],
)
def test_invalid_name_is_reported_with_its_field(old, new, told):
    text = f"""
apiVersion: scheduling.sigs.k8s.io/v1alpha1
kind: ElasticQuota
metadata: {{name: q, annotations: {{{PREFIX}/namespaces: '["n1"]'}}}}
spec: {{min: {{cpu: 20}}, max: {{cpu: 40}}}}
"""
    assert translated(koordinator, text)[0]
    with pytest.raises(InvalidObject) as refused:
        translated(koordinator, text.replace(old, new, 1))
    assert told in str(refused.value)


@pytest.mark.parametrize(("below", "fits"), [(64, True), (65, False)])
def test_queue_below_more_than_64_queues_is_refused(below, fits):
    """A deeper queue could be created, but would admit nothing."""
    names = ["root", *(f"q{number}" for number in range(below))]
    text = "---\n".join(
        f"{VOLCANO}metadata: {{name: {name}}}\nspec: {{parent: {parent}, deserved: {{cpu: 1}}}}\n"
        for parent, name in pairwise(names)
    )
    if fits:
        assert f"ClusterQueue {names[-1]}" in translated(volcano, text)[0]
        return
    with pytest.raises(InvalidObject, match=r"spec\.parent: is below more than 64 queues"):
        translated(volcano, text)


def test_scheduler_plugins_quota_becomes_the_queue_of_its_namespace():
    text = """
apiVersion: scheduling.x-k8s.io/v1alpha1
kind: ElasticQuota
metadata: {name: quota, namespace: team-a}
spec: {max: {cpu: 20, nvidia.com/gpu: 2}, min: {cpu: 10, nvidia.com/gpu: 1}}
"""
    objects, _, _ = translated(scheduler_plugins, text)
    queue = objects["ClusterQueue team-a"].item
    assert quota(objects["ClusterQueue team-a"]) == ("10", "10", None)
    assert quota(objects["ClusterQueue team-a"], "nvidia.com/gpu") == ("1", "1", None)
    assert queue.spec.namespace_selector.match_labels == {"kubernetes.io/metadata.name": "team-a"}
    assert objects["LocalQueue default"].item.metadata.namespace == "team-a"


MCAD = """
apiVersion: quota.codeflare.dev/v1alpha1
kind: QuotaSubtree
metadata: {name: top, labels: {tree: quota_context}}
spec: {children: [{name: top, quotas: {requests: {cpu: 1075m, nvidia.com/gpu: 16}}}]}
---
apiVersion: quota.codeflare.dev/v1alpha1
kind: QuotaSubtree
metadata: {name: below, labels: {tree: quota_context}}
spec:
  parent: top
  children:
  - {name: gold, quotas: {requests: {cpu: 1075m, nvidia.com/gpu: 8}}}
  - {name: bronze, quotas: {hardLimit: true, requests: {cpu: 1075m}}}
"""


def test_mcad_requests_are_limits_at_the_root_and_with_hard_limit():
    objects, _, unbounded = translated(mcad, MCAD)
    assert quota(objects["Cohort quota-context.top"]) == ("1m", None, None)
    assert quota(objects["ClusterQueue quota-context.gold"]) == ("537m", None, None)
    assert quota(objects["ClusterQueue quota-context.bronze"]) == ("537m", "538m", None)
    assert quota(objects["ClusterQueue quota-context.bronze"], "nvidia.com/gpu") == ("0", "0", None)
    assert objects["Cohort quota-context.top"].notes == (
        "the guarantees of cpu below it, 2150m, exceed its 1075m and are lowered in proportion",
    )
    assert unbounded == ["memory"]


def test_several_mcad_trees_cause_a_note_and_prefixed_local_queues():
    objects, _, _ = translated(mcad, MCAD + "---" + MCAD.replace("quota_context", "other"), namespaces=["ns"])
    assert "in one of the 2 trees only" in objects["Cohort other.top"].notes[0]
    assert "LocalQueue other.gold" in objects


def test_mcad_appwrapper_names_its_queue_by_the_label_of_the_tree():
    objects, _, _ = translated(mcad, MCAD, namespaces=["ns"])
    assert objects["LocalQueue gold"].item.spec.cluster_queue == "quota-context.gold"
    kinds = all_kinds(frameworks=("workload.codeflare.dev/appwrapper",), queue_labels=["quota_context"])
    wrapper = document("mcad-appwrapper-v1beta1")
    wrapper["metadata"]["labels"] = {"quota_context": "gold"}
    assert kinds.get("workload.codeflare.dev", "AppWrapper").queue_name(wrapper) == "gold"


YUNIKORN = """
partitions:
- name: default
  placementrules: [{name: tag, value: namespace, create: true}]
  queues:
  - name: root
    queues:
    - name: Tenants
      parent: true
      resources: {max: {vcore: 1500m, memory: 4G}}
    - name: group_a
      adminacl: " group-a"
      limits: [{limit: x, users: ["*"], maxresources: {vcore: 1}}]
      properties: {priority.offset: "20", odd: "1"}
      resources: {guaranteed: {vcore: "2", memory: 1 G}, max: {vcore: 4}}
- name: gpu
"""


@pytest.mark.parametrize("form", ["file", "ConfigMap", "values"])
def test_yunikorn_queues_are_read_from_file_configmap_or_helm_values(form):
    inner = YUNIKORN.replace("\n", "\n    ")
    text = {
        "file": YUNIKORN,
        "ConfigMap": f"kind: ConfigMap\ndata:\n  queues.yaml: |{inner}",
        "values": f"queues.yaml: |{inner}",
    }[form]
    objects, skipped, _ = translated(yunikorn, text, namespaces=["ns"])
    assert quota(objects["Cohort root.tenants"]) == ("0", "1500m", None)
    assert quota(objects["ClusterQueue root.group-a"]) == ("2", "2", None)
    assert quota(objects["ClusterQueue root.group-a"], "memory") == ("1000000000", None, None)
    assert objects["LocalQueue root.group-a"].item.metadata.namespace == "ns"
    path = "partitions[0].queues[0].queues[1]"
    assert [note.partition(": ")[0] for note in objects["ClusterQueue root.group-a"].notes] == [
        f"{path}.limits[0]",
        f"{path}.properties.priority.offset",
        f"{path}.properties.odd",
        f"{path}.adminacl",
        f"{path}.name",
    ]
    assert [note.partition(": ")[0] for note in objects["Cohort yunikorn-root"].notes] == [
        "partitions[0].placementrules"
    ]
    assert skipped == [("partition/gpu", "YuniKorn on Kubernetes has only the partition default")]


def test_yunikorn_configmap_without_queues_yaml_is_skipped():
    _, skipped, _ = translated(yunikorn, "{kind: ConfigMap, data: {other: x}}")
    assert skipped == [("configmap", "has no queues.yaml")]
