"""`sluice serve` without any configuration: a public manifest of each kind waits, runs, is drained and given back."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import yaml
from custom_kinds import restored_spec
from every_kind import node, plural_of
from grouped_kinds import GATE
from job_examples import flavor, job, local_queue, runs
from job_manifests import HIGH, KATA
from trainer import runtimes

from admission.cli.demo.live_pods import requests_of
from admission.kinds import frameworks_known
from admission.sandbox.operators import serve_kinds
from tests.cli.serve_processes import gate_flags, serving
from tests.queue_objects import cluster_queue

MANIFESTS = next((found for up in Path(__file__).parents if (found := up / "shared/manifests").is_dir()), None)
PODS = {
    "job": 3,
    "job-pod-level-resources": 1,
    "jobset": 9,
    "trainjob-v2": 4,
    "pytorchjob-v1": 4,
    "mpijob-v2beta1": 3,
    "raycluster": 6,
    "raycluster-native-gang": 4,
    "rayjob": 4,
    "rayservice": 2,
    "appwrapper-v1beta2": 2,
    "sparkapplication": 3,
    "argo-workflow": 4,
    "deployment": 3,
    "statefulset": 3,
    "leaderworkerset": 8,
    "pod": 1,
    "pod-group-kueue": 2,
}
"""File name to the number of pods that run. TFJobs and others differ from PyTorchJobs in the names of their roles."""
RESOURCES = ("cpu", "memory", "nvidia.com/gpu", "pods")
NOT_OPERATED = ("batch/job", "pod", "deployment", "statefulset", "mcad.ibm.com/appwrapper")
ENDED = ("Succeeded", "Failed")
SMALL = "small"
"""Namespace of a small Job."""


def objects(name):
    """Return what a manifest has of one queued object, with what that needs, in a namespace of its own."""
    found = []
    for obj in yaml.safe_load_all((MANIFESTS / f"{name}.yaml").read_text()):
        if any(each["kind"] == obj["kind"] != "Pod" for each in found) or obj["kind"] == "RayCronJob":
            continue
        found.append(obj | {"metadata": obj["metadata"] | {"namespace": name}})
    return found


def queue(amount, **spec):
    """Return the ClusterQueue of all namespaces, with this quota of each resource."""
    return cluster_queue(quotas={"default": dict.fromkeys(RESOURCES, amount)}, **spec)


def lasting(pod):
    """Let a new pod run until it is deleted: the manifests' pods end after seconds.

    It gets the overhead of its RuntimeClass, as from the API server's admission controller, which the sandbox has not.
    """
    noted = (pod["metadata"].get("annotations") or {}) | {"sandbox.sluice.dev/run-seconds": "1000000"}
    overhead = {"overhead": KATA["overhead"]["podFixed"]} if pod["spec"].get("runtimeClassName") == "kata" else {}
    return {**pod, "metadata": {**pod["metadata"], "annotations": noted}, "spec": {**pod["spec"], **overhead}}


class Cluster:
    def __init__(self, world, folder):
        self.world = world
        self.user, self.store, self.eventually = world.user, world.store, world.eventually
        self.replica = None
        self._folder = folder
        self._stack = AsyncExitStack()
        self._flags = gate_flags(folder)

    async def start(self, *excluded):
        """Start `sluice serve`: without any configuration, or with these kinds taken out."""
        config = self._folder / "sluice.yaml"
        config.write_text(json.dumps({"integrations": {"exclude": excluded}}))
        flags = [f"--config={config}"] if excluded else []
        self.replica = await self._stack.enter_async_context(
            serving(self._folder, self.world.url, *self._flags, *flags)
        )
        await self.replica.until("leading")

    async def end(self):
        await self._stack.aclose()

    async def prepare(self, world):
        await world.apply(flavor(), HIGH, queue("0"))
        await self.user.create("runtimeclasses", "", KATA)
        await self.user.create("priorityclasses", "", {"metadata": {"name": "high"}, "value": 0})
        for number in range(6):
            await self.user.create("nodes", "", node(number))
        for each in (runtimes(), runtimes("ClusterTrainingRuntime")):
            await self.user.create("customresourcedefinitions", "", each)
        for name in (*PODS, SMALL):
            await self.user.create("namespaces", "", {"metadata": {"name": name}})
            await world.apply(local_queue("user-queue", "cq", name))

    async def restart(self, *excluded):
        """Start `sluice serve` anew, and run a small Job, after which it has seen all objects and decided."""
        await self.end()
        await self.start(*excluded)
        await self.user.create("jobs", SMALL, job("small", queue="user-queue", namespace=SMALL))
        await self.world.job("small", runs, namespace=SMALL)
        await self.user.delete("jobs", SMALL, "small", propagation="Background")
        await self.until("gone", self.small)

    async def small(self):
        """Return what the small Job still has."""
        return (await self.held())[SMALL] or self.pods()[SMALL] or self.user.get("jobs", SMALL, "small")

    async def put(self, wanted):
        """Replace the ClusterQueue."""
        path = "/apis/sluice.dev/v1/clusterqueues/cq"
        found = json.loads((await self.replica.get(path))[1])
        assert await self.replica.put(path, wanted | {"metadata": found["metadata"]}) == 200

    def pods(self):
        """Return the requests of all pods without a scheduling gate that have not ended, by namespace."""
        found = {name: Counter() for name in (*PODS, SMALL)}
        for each in self.user.list("pods"):
            if GATE not in each["spec"].get("schedulingGates", ()) and each["status"].get("phase") not in ENDED:
                found[each["metadata"]["namespace"]].update(requests_of(each["spec"], RESOURCES) | {"pods": 1})
        return {name: +amounts for name, amounts in found.items()}

    def uids(self):
        """Return the uids of all pods."""
        return {each["metadata"]["uid"] for each in self.user.list("pods")}

    async def held(self):
        """Return the quota that is held, by namespace."""
        found = {name: Counter() for name in (*PODS, SMALL)}
        for record in (await self.store.workloads.list()).workloads:
            for each in record.admission.pod_sets if record.admission else ():
                found[record.workload.namespace].update(each.usage)
        return {name: +amounts for name, amounts in found.items()}

    async def until(self, what, look):
        """Wait until `look` returns nothing that is missing."""
        missing = {}

        async def looked():
            nonlocal missing
            missing = await look()
            return not missing

        try:
            await self.eventually(looked, longest=0.5)
        except BaseException as error:  # the time limit
            error.add_note(f"not {what}: {missing}")
            raise

    async def waiting(self):
        """Return the namespaces without a workload, or with one that does not wait for quota."""
        found = {name: set() for name in PODS}
        for each in (await self.store.workloads.list()).workloads:
            found[each.workload.namespace].add((each.state, each.reason))
        return {name: each for name, each in found.items() if each != {("pending", "ExceedsMaxQuota")}}

    async def started(self):
        """Return the namespaces whose pods do not all run, or request anything else than is held for them."""
        pods, held = self.pods(), await self.held()
        ready = Counter(
            each["metadata"]["namespace"]
            for each in self.user.list("pods")
            if any(one["type"] == "Ready" and one["status"] == "True" for one in each["status"].get("conditions", ()))
        )
        return {
            name: (ready[name], pods[name], held[name])
            for name, number in PODS.items()
            if ready[name] != number or held[name] != pods[name]
        }

    async def stopped(self):
        """Return the namespaces with pods or quota."""
        pods, held = self.pods(), await self.held()
        return {name: (pods[name], held[name]) for name in PODS if pods[name] or held[name]}

    async def unfinished(self):
        """Return the workloads that are not finished."""
        return [each for each in (await self.store.workloads.list()).workloads if each.state != "finished"]


@pytest.fixture
async def cluster(world, tmp_path):
    found = Cluster(world, tmp_path)
    names = [name for name in frameworks_known() if name not in NOT_OPERATED]
    with world.sandbox.local("admin").mutating_new("pods", lasting):
        async with serve_kinds(world.sandbox, names):
            await found.prepare(world)
            await found.start()
            yield found
            await found.end()


@pytest.mark.skipif(MANIFESTS is None, reason="the public manifests (shared/manifests) are not beside this repository")
@pytest.mark.costly
async def test_public_manifest_of_each_kind_waits_runs_and_is_given_back_without_configuration(cluster):
    user, made = cluster.user, {}
    for name in PODS:
        for obj in objects(name):
            made[plural_of(obj), name, obj["metadata"]["name"]] = await user.create(plural_of(obj), name, obj)
    await cluster.until("waiting", cluster.waiting)
    assert not any(cluster.pods().values())
    await cluster.put(queue("10000Gi"))
    await cluster.until("started", cluster.started)

    # All kinds but Jobs are taken out, and put back: what runs goes on, and holds its quota once.
    pods = cluster.uids()
    for excluded in (set(frameworks_known()) - {"batch/job"}, ()):
        await cluster.restart(*sorted(excluded))
        assert (cluster.uids(), await cluster.started()) == (pods, {})

    await cluster.put(queue("10000Gi", stopPolicy="HoldAndDrain"))
    await cluster.until("stopped", cluster.stopped)
    for key, obj in made.items():
        if obj["kind"] != "Pod":
            assert user.get(*key)["spec"] == restored_spec(obj), key
            await user.delete(*key, propagation="Background")
    await cluster.until("finished", cluster.unfinished)
