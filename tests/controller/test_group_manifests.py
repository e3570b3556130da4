"""Gang manifests of other systems, unchanged: they start as a whole, and Sluice does not change them."""

from __future__ import annotations

from copy import deepcopy

import pytest
import yaml
from custom_kinds import definition
from grouped_kinds import GATE, pods_until
from job_examples import cluster_queue, flavor, local_queue
from kind_manifests import FOLDER
from pod_examples import gated

from admission.kinds import all_kinds
from admission.kinds.foreign_groups import FOREIGN

KOORDINATOR, YUNIKORN = "quota.scheduling.koordinator.sh/name", "queue"
KINDS = all_kinds(frameworks=("pod",), group_labels=FOREIGN, queue_labels=(KOORDINATOR, YUNIKORN))
CASES = {
    # manifest: its LocalQueue, group and the number of its pods that start together; no group: one by one
    "pod-group-koordinator": ("team-a-train", "gang-1", 3),
    "pod-group-scheduler-plugins": ("user-queue", "pg-1", 2),
    "yunikorn-pods": ("root.team-a", "", 1),
    "native-1.35-v1alpha1": ("user-queue", "wl-workers-0", 2),
    "native-1.36-v1alpha2": ("user-queue", "wl-workers", 2),
}


def kept(obj):
    """Return the fields of a pod that belong to other systems, which Sluice must not change."""
    own = {
        field: {key: value for key, value in (obj["metadata"].get(field) or {}).items() if "sluice.dev/" not in key}
        for field in ("labels", "annotations")
    }
    fields = ("schedulerName", "schedulingGroup", "workloadRef")
    return own, {field: obj["spec"][field] for field in fields if field in obj["spec"]}


@pytest.mark.parametrize("name", CASES)
async def test_manifest_of_other_system_starts_as_a_whole_with_its_fields_unchanged(world, tmp_path, name):
    queue, group, needed = CASES[name]
    documents = list(yaml.safe_load_all((FOLDER / f"{name}.yaml").read_text()))
    (manifest,) = (each for each in documents if each["kind"] == "Pod")
    quotas = {"default": {"cpu": "9Gi", "memory": "9Gi"}}
    await world.apply(flavor(), cluster_queue(quotas=quotas), local_queue(queue))
    for obj in documents:
        api_group, _, version = obj["apiVersion"].rpartition("/")
        kind = KINDS.sizes.get((api_group, obj["kind"]))
        if kind is not None and version in kind.versions:
            await world.user.create("customresourcedefinitions", "", definition(kind, version))
            await world.user.create(f"{kind.plural}.{kind.group}", "team-a", obj)
    async with gated(world.user, KINDS, tmp_path / "certificates"):
        await world.start(kinds=KINDS)
        for number in range(needed):
            if group and number:
                waits = f"It starts as a whole, and {number} of its {needed} pods are there."
                await world.eventually(lambda waits=waits: _says(world, group, waits))
            one = deepcopy(manifest)
            one["metadata"] = {**one["metadata"], "name": f"p-{number}"}
            one["metadata"].pop("generateName", None)
            await world.user.create("pods", "team-a", one)

        def started(found):
            return len(found) == needed and all(GATE not in each["spec"].get("schedulingGates", ())
                                                for each in found.values())  # fmt: skip

        found = await pods_until(world.user, "team-a", started)
        record = await world.record(group or "p-0", "admitted")
        assert record.workload.kind == ("PodGroup" if group else "Pod")
        assert sum(each.count for each in record.workload.pod_sets) == needed
        assert all(kept(each)[0] == kept(manifest)[0] for each in found.values())
        theirs = {"schedulerName": "default-scheduler"} | kept(manifest)[1]
        assert all(kept(each)[1] == theirs for each in found.values())


async def _says(world, name, message):
    found = (await world.store.workloads.list(namespace="team-a")).workloads
    return message in [each.message for each in found if each.workload.name == name]
