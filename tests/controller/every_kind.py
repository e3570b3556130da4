"""Manifests of all kinds, and a cluster with all of them, each with its own quota, and with `sluice serve`."""

from __future__ import annotations

import asyncio
import base64
import json
import signal
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass

import aiohttp
import jsonpatch
import orjson
import yaml
from custom_kinds import TRAINING_RUN_FORM, definition, pod
from grouped_kinds import GATE, lasting
from job_examples import cluster_queue, flavor, local_queue
from job_manifests import HIGH, JOBS, KATA, QUEUES, YUNIKORN
from kind_manifests import FOLDER, GI, GOLDEN, GPU, MI, RESOURCES, total
from trainer import KAI, Trainer, runtimes, trainjobs

from admission.cli.demo.live_pods import LivePods
from admission.kinds import all_kinds, frameworks_known, parse_form
from admission.kinds.paths import at
from admission.sandbox.controllers.leaderworkersets import LeaderWorkerSetController
from admission.sandbox.controllers.volcano import VolcanoController
from admission.sandbox.operators import operator
from tests.cli.serve_processes import AUTHORIZATION, gate_flags, serving
from tests.cli.serve_processes import job as small_job
from webhooks.review import Reviewer

KINDS = all_kinds(frameworks=frameworks_known(), own=[parse_form(TRAINING_RUN_FORM)], queue_labels=(KAI,))
MCAD = "v1beta1"
"""Version of AppWrappers whose items Sluice itself creates."""
NAMES = ("test", "lq", *QUEUES)
"""The LocalQueues that the manifests name."""
NOTHING = dict.fromkeys(RESOURCES, 0)
ENDED = ("Succeeded", "Failed")
OLDER = "mpijob-v1"
"""A manifest of a CRD of which another version is in the cluster."""


@dataclass(frozen=True)
class GatedCase:
    """A manifest of gated pods, and the workloads that it becomes."""

    kind: str
    name: str
    workloads: int
    pod_sets: tuple[tuple[int, dict[str, int]], ...]
    """Pod count and requests per pod of each pod set of a workload, computed by hand."""

    @property
    def pods(self):
        return self.workloads * sum(count for count, _ in self.pod_sets)

    def amounts(self):
        found = dict.fromkeys(RESOURCES, 0) | {"pods": self.pods}
        for count, requests in self.pod_sets:
            for resource, amount in requests.items():
                found[resource] += self.workloads * count * amount
        return found


ONE_CPU = {"cpu": 1000}
SMALL = {"cpu": 500, "memory": 128 * MI}
GATED = [
    GatedCase("Pod v1", "pod", 1, ((1, {"cpu": 1000, "memory": 256 * MI}),)),
    GatedCase("PodGroup of pods", "pod-group-kueue", 1, ((1, {"cpu": 2000}), (1, {"cpu": 1000}))),
    GatedCase("Deployment v1", "deployment", 3, ((1, SMALL),)),
    GatedCase("StatefulSet v1", "statefulset", 1, ((3, SMALL),)),
    GatedCase(
        "LeaderWorkerSet v1",
        "leaderworkerset",
        2,
        ((1, {"cpu": 1000, "memory": GI}), (3, {"cpu": 2000, "memory": 4 * GI, GPU: 1})),
    ),
    GatedCase("Workload of Kubernetes 1.35", "native-1.35-v1alpha1", 1, ((2, ONE_CPU),)),
    GatedCase("PodGroup of Kubernetes 1.36", "native-1.36-v1alpha2", 1, ((2, ONE_CPU),)),
    GatedCase("CompositePodGroup of Kubernetes 1.37", "native-1.37-v1beta1", 1, ((1, ONE_CPU), (4, ONE_CPU))),
    GatedCase(
        "Job v1alpha1 of Volcano", "volcano-torchx-ddp", 1, ((2, {"cpu": 15900, "memory": 64512 * 10**6, GPU: 4}),)
    ),
]


def native(name):
    """Return the objects of a manifest of Kubernetes' own gangs that give the numbers of pods, and its pods.

    The manifest has one pod for all pods of a gang. That of 1.37 has none: its PodGroups' pods are as in 1.36.
    """
    found = list(yaml.safe_load_all((FOLDER / f"{name}.yaml").read_text()))
    sizes = [obj for obj in found if _size_kind(obj)]
    if name == "native-1.37-v1beta1":
        _, (like, *_) = native("native-1.36-v1alpha2")
        gangs = {
            obj["metadata"]["name"]: obj["spec"]["schedulingPolicy"]["gang"]["minCount"]
            for obj in sizes
            if obj["kind"] == "PodGroup"
        }
        pods = [
            {**like, "metadata": {**like["metadata"], "name": f"{gang}-{number}"},
             "spec": {**like["spec"], "schedulingGroup": {"podGroupName": gang}}}
            for gang, count in gangs.items()
            for number in range(count)
        ]  # fmt: skip
        return sizes, pods
    (like,) = (obj for obj in found if obj["kind"] == "Pod")
    name = like["metadata"]["name"].removesuffix("-0")
    return sizes, [{**like, "metadata": {**like["metadata"], "name": f"{name}-{number}"}} for number in range(2)]


def _size_kind(obj):
    group, _, version = obj["apiVersion"].rpartition("/")
    kind = KINDS.sizes.get((group, obj["kind"]))
    return kind if kind is not None and version in kind.versions else None


def is_native(name):
    """Whether it is a manifest of Kubernetes' own gangs."""
    return name.startswith("native")


def queue_of(amounts):
    """A ClusterQueue with exactly this quota."""
    quotas = {key: f"{amounts[key]}m" if key == "cpu" else amounts[key] for key in RESOURCES}
    return cluster_queue(quotas={"default": quotas})


def node(number):
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", "ephemeral-storage": "1Ti", GPU: "16"}
    return {
        "metadata": {
            "name": f"large-{number}",
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {"type": "kwok", "kubernetes.io/hostname": f"large-{number}"},
        },
        "status": {"allocatable": amounts, "capacity": amounts},
    }


def through_the_webhook(obj, kind):
    """Return an object as the webhook's patch changes it."""
    review = {
        "request": {
            "uid": "r",
            "resource": {"group": kind.group, "version": kind.versions[0], "resource": kind.plural},
            "operation": "CREATE",
            "namespace": "team-a",
            "userInfo": {"username": "alice"},
            "object": obj,
        }
    }
    response = Reviewer(KINDS, own_usernames=["sluice"]).review(review)["response"]
    assert response["allowed"], response
    return jsonpatch.apply_patch(obj, orjson.loads(base64.b64decode(response["patch"])))


def with_lasting_pods(kind, obj):
    """Change the object so that its pods run until they are stopped, and return it."""
    for place in kind.places(obj):
        target = at(obj, place.target) if place.flat and place.target[0] == "spec" and at(obj, place.target) else None
        template = place.template if place.flat or not place.target else at(obj, place.target) or {}
        metadata = target if target is not None else template.setdefault("metadata", {})
        metadata = metadata.setdefault(place.metadata, {}) if place.metadata else metadata
        metadata.setdefault("annotations", {})["sandbox.sluice.dev/run-seconds"] = "1000000"
    return obj


def wrapped_in(obj):
    """Return the names in `integrations` of the custom kinds that an AppWrapper has as components."""
    templates = [each["template"] for each in obj["spec"].get("components", ())]
    names = [f"{each['apiVersion'].rpartition('/')[0]}/{each['kind'].lower()}" for each in templates]
    return [name for name in names if name in frameworks_known() and name != "batch/job"]


def held_by(record):
    """Return the quota that a workload holds, by resource."""
    held = Counter()
    for each in record.admission.pod_sets:
        held.update({"pods": 0, **each.usage})
    return {resource: held[resource] for resource in RESOURCES}


@dataclass
class Case:
    """The objects of a manifest, in a namespace with a queue of exactly the quota that its pods request."""

    namespace: str
    objects: list
    amounts: dict
    pods: int

    @property
    def is_remade(self):
        """Whether its user must create it again after an eviction."""
        return self.objects[0]["kind"] == "Pod"

    @property
    def ends(self):
        """Whether the object is finished when its pods have succeeded."""
        kind = KINDS.get(*key_of(self.objects[0]))
        form = getattr(kind, "form", None)
        return bool(form.succeeded) if form else self.objects[0]["kind"] in ("Pod", "Job", "TrainJob")


def key_of(obj):
    return obj["apiVersion"].rpartition("/")[0], obj["kind"]


def plural_of(obj):
    group, kind = key_of(obj)
    if kind == "Deployment":
        return "deployments"
    plural = {"TrainingRuntime": "trainingruntimes"}.get(kind) or KINDS.get(group, kind).plural
    return f"{plural}.{group}" if (plural, group) != ("jobs", "batch") and "." in group else plural


def documents(name, namespace):
    text = (FOLDER / f"{name}.yaml").read_text().replace("team-a", namespace)
    return list(yaml.safe_load_all(text))


def namespace_of(name):
    """Namespace of a manifest; dots of a version in its name are replaced."""
    return name.replace(".", "-")


def declared(name):
    obj = documents(name, name)[0]
    if name.startswith("mcad"):
        obj["apiVersion"] = "mcad.ibm.com/v1beta1"  # the CRD of the other AppWrappers has another schema
    amounts = total(name)
    return Case(name, [with_lasting_pods(KINDS.get(*key_of(obj)), obj)], amounts, amounts["pods"])


def gated(case):
    namespace = namespace_of(case.name)
    objects = native(case.name)[1] if is_native(case.name) else documents(case.name, namespace)
    for obj in objects:
        obj["metadata"]["namespace"] = namespace
        if obj["apiVersion"].startswith("batch.volcano.sh/"):  # `spec.queue` counts only if the kind is named
            obj["metadata"].setdefault("labels", {})["sluice.dev/queue-name"] = obj["spec"]["queue"]
        template = obj if obj["kind"] == "Pod" else obj["spec"].get("template")
        if template is None:
            lasting(obj)
        else:
            template["metadata"].setdefault("annotations", {})["sandbox.sluice.dev/run-seconds"] = "1000000"
    return Case(namespace, objects, case.amounts(), case.pods)


def train_job():
    obj, runtime = documents("trainjob-v2", "trainjob")
    template = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    template["metadata"] = {"annotations": {"sandbox.sluice.dev/run-seconds": "1000000"}}
    return Case("trainjob", [runtime, obj], {"cpu": 16000, "memory": 64 * GI, GPU: 4, "pods": 4}, 4)


def own_kind():
    roles = [{"role": "actor", "count": 3, "template": pod(cpu="1", seconds=1_000_000)}]
    metadata = {"name": "own", "namespace": "own", "labels": {"sluice.dev/queue-name": "lq"}}
    obj = {"apiVersion": "example.com/v1", "kind": "TrainingRun", "metadata": metadata, "spec": {"roles": roles}}
    return Case("own", [obj], {**NOTHING, "cpu": 3000, "pods": 3}, 3)


def batch_job():
    obj = small_job("job", seconds=1_000_000)
    obj |= {"apiVersion": "batch/v1", "kind": "Job"}
    obj["metadata"]["namespace"] = "batch-job"
    return Case("batch-job", [obj], {**NOTHING, "cpu": 1000, "pods": 1}, 1)


def as_one_wave(obj):
    """Limit a Job's completions to its parallelism, so that it is complete when its first pods have succeeded."""
    if "completions" in obj["spec"]:
        obj["spec"]["completions"] = obj["spec"]["parallelism"]
    return obj


def cases():
    found = [declared(name) for name in GOLDEN if name != OLDER]
    jobs = [Case(each.namespace, [as_one_wave(each.job())], each.amounts(), each.pods) for each in JOBS]
    return [*found, *map(gated, GATED), train_job(), own_kind(), batch_job(), *jobs]


def urgent(case):
    """Return another object of a case, with a higher priority, and the pods of another group; [] if it is not played.

    Gangs of Kubernetes would need further objects of their own. Jobs of other systems differ from `batch_job` in
    fields that have nothing to do with it.
    """
    if case.namespace.startswith(("native", "jobs-")):
        return []
    found = json.loads(json.dumps([each for each in case.objects if each["kind"] != "TrainingRuntime"]))
    for obj in found:
        labels = obj["metadata"].setdefault("labels", {})
        labels |= {key: "urgent" for key in labels if key.endswith("/pod-group-name")}
        labels["sluice.dev/priority-class"] = "high"
        spec = obj["spec"]
        wrapped = [each["template"] for each in spec.get("components", ())]
        wrapped += [each["generictemplate"] for each in (spec.get("resources") or {}).get("GenericItems", ())]
        for each in (obj, *wrapped):
            each["metadata"]["name"] = f"urgent-{each['metadata']['name']}"
    return found


class EveryKind:
    """All cases in one cluster, and `sluice serve` as a process that can be killed and restarted."""

    def __init__(self, world, folder):
        self.world = world
        self.cases = {case.namespace: case for case in cases()}
        self.user = world.user
        quotas = {name: case.amounts for name, case in self.cases.items()}
        self.live = LivePods(quotas, {key: sum(each[key] for each in quotas.values()) for key in RESOURCES})
        self._folder = folder
        self._replica = None
        self._stack = AsyncExitStack()
        # The kinds that Sluice knows are queued by default.
        known = {"queueLabels": [YUNIKORN], "kinds": [TRAINING_RUN_FORM]}
        (folder / "sluice.yaml").write_text(json.dumps({"integrations": known}))
        self._flags = (f"--config={folder / 'sluice.yaml'}", *gate_flags(folder))

    async def prepare(self):
        """Create nodes and CRDs, and a namespace and a stopped ClusterQueue for each case."""
        await self.world.apply(flavor(), HIGH)
        await self.user.create("runtimeclasses", "", KATA)
        for number in range(6):
            await self.user.create("nodes", "", node(number))
        await self.user.create("priorityclasses", "", {"metadata": {"name": "high"}, "value": 0})  # named by a manifest
        for each in KINDS:
            if each.is_custom and each.kind != "TrainJob":
                version = "v1beta2" if (each.group, each.kind) == ("workload.codeflare.dev", "AppWrapper") else None
                await self.user.create("customresourcedefinitions", "", definition(each, version))
        for each in (trainjobs("2.2"), runtimes()):
            await self.user.create("customresourcedefinitions", "", each)
        for name, case in self.cases.items():
            await self.user.create("namespaces", "", {"metadata": {"name": name}})
            queue = queue_of(case.amounts)
            spec = {"stopPolicy": "Hold", "preemption": {"withinClusterQueue": "LowerPriority"}}
            queue = {**queue, "metadata": {"name": name}, "spec": {**queue["spec"], **spec}}
            await self.world.apply(queue, *(local_queue(each, name, name) for each in NAMES))
        for kind in ("Workload", "PodGroup", "CompositePodGroup"):
            size = KINDS.sizes["scheduling.k8s.io", kind]
            await self.user.create("customresourcedefinitions", "", definition(size))
        for name in filter(is_native, (each.name for each in GATED)):
            for obj in native(name)[0]:
                kind = KINDS.sizes[key_of(obj)]
                obj["apiVersion"] = f"{kind.group}/{kind.versions[0]}"  # only one version of a CRD is stored
                obj["metadata"]["namespace"] = namespace_of(name)
                await self.user.create(f"{kind.plural}.{kind.group}", namespace_of(name), obj)
        for case in JOBS:
            for obj in case.limit_ranges():
                await self.user.create("limitranges", case.namespace, obj)

    def controllers(self):
        """Return the simulated controllers of all kinds, by name."""
        manager, clock = self.world.sandbox.local("system:serviceaccount:operators:operator"), self.world.sandbox.clock
        running = {
            f"{each.group}/{each.kind}": operator(manager, clock, each)
            for each in KINDS
            if hasattr(each, "form") and each.group != "mcad.ibm.com" and each.kind != "TrainJob"
        }
        running |= {"trainer": Trainer(manager, clock), "volcano": VolcanoController(manager, clock)}
        return running | {"sets": LeaderWorkerSetController(manager, clock)}

    async def watch_quota(self):
        """Sum up the requests of pods without scheduling gates, after each change of a pod."""
        async for batch in self.user.watch("pods"):
            for _, change, obj, _ in batch:
                metadata = obj["metadata"]
                there = change != "DELETED" and not obj["spec"].get("schedulingGates")
                self.live.pod(f"{metadata['namespace']}/{metadata['name']}", obj if there else None, 0.0)

    async def start(self):
        self._replica = await self._stack.enter_async_context(serving(self._folder, self.world.url, *self._flags))
        await self._replica.until("leading")

    async def kill(self):
        assert self._replica.process.returncode is None, self._replica.log.decode()
        self._replica.send(signal.SIGKILL)
        await self._replica.process.wait()
        await self._stack.aclose()
        log = self._replica.log.decode()
        assert " ERROR " not in log, log

    async def restart(self):
        await self.kill()
        await self.start()

    async def stop_queues(self, policy):
        """Set the stopPolicy of all ClusterQueues through the API; None: resume them."""
        async with aiohttp.ClientSession(self._replica.url, headers=AUTHORIZATION) as session:
            for name in self.cases:
                path, body = f"/apis/sluice.dev/v1/clusterqueues/{name}", {"spec": {"stopPolicy": policy}}
                headers = {"Content-Type": "application/merge-patch+json"}
                async with session.patch(path, json=body, headers=headers) as response:
                    assert response.status == 200, await response.text()

    async def records(self):
        """Return the unfinished workloads by namespace."""
        found = {name: [] for name in self.cases}
        for each in (await self.world.store.workloads.list()).workloads:
            if each.state != "finished":
                found[each.workload.namespace].append(each)
        return found

    async def wait_for_state(self, state):
        """Wait until each case is in `state`, with all of its quota, or none if pending.

        Returns state, reason and admission of each workload by uid.
        """

        others = {}

        async def look():
            nonlocal others
            assert not self.live.violations, self.live.violations
            others = {
                name: each
                for name, each in (await self.records()).items()
                if not state in {record.state for record in each} <= {state, "pending"}
                or held(each) != (NOTHING if state == "pending" else self.cases[name].amounts)
            }
            return not others

        try:
            await self.world.eventually(look)
        except asyncio.CancelledError as error:  # the time limit
            error.add_note(f"not {state}: {others}\n{self._replica.log.decode()[-2000:]}")
            raise
        found = await self.records()
        return {
            each.workload.uid: (each.state, each.reason, each.admission) for all_ in found.values() for each in all_
        }

    def pods(self, namespace=None):
        """Return the pods that have not ended and have no scheduling gate."""
        pods = self.user.list("pods", namespace)
        return [
            each for each in pods
            if each.get("status", {}).get("phase") not in ENDED and GATE not in each["spec"].get("schedulingGates", ())
        ]  # fmt: skip

    async def wait_until_ready(self):
        """Wait until all pods of each case are ready; return their uids."""

        async def look():
            assert not self.live.violations, self.live.violations
            found = Counter(each["metadata"]["namespace"] for each in self.pods() if is_ready(each))
            return found == {name: case.pods for name, case in self.cases.items()}

        await self.world.eventually(look)
        return {each["metadata"]["uid"] for each in self.pods()}

    async def submit(self, case):
        await self._create(case.namespace, case.objects)

    async def _create(self, namespace, objects):
        for obj in objects:
            await self.world.sandbox.local("alice").create(plural_of(obj), namespace, json.loads(json.dumps(obj)))

    async def submit_urgent(self):
        for case in self.cases.values():
            await self._create(case.namespace, urgent(case))

    async def delete_urgent(self):
        for name, case in self.cases.items():
            for obj in urgent(case):
                await self.user.delete(plural_of(obj), name, obj["metadata"]["name"], propagation="Background")

    async def wait_until_run(self, *, urgent_ones):
        """Wait until either the urgent objects or the others have all of their pods and quota.

        The others wait meanwhile, as far as they still exist; urgent ones have been deleted then.
        """
        played = [name for name, case in self.cases.items() if urgent(case)]

        async def look():
            found = await self.records()
            run = {name: {"urgent" in each.workload.name for each in found[name] if each.admission} for name in played}
            return all(each == {urgent_ones} for each in run.values()) and (
                urgent_ones or not any("urgent" in each.workload.name for name in played for each in found[name])
            )

        await self.world.eventually(look)
        await self.wait_until_ready()
        await self.wait_for_state("admitted")

    async def wait_until_told(self, words):
        """Wait until all that waits for quota says so in these words."""

        async def look():
            found = [each for all_ in (await self.records()).values() for each in all_ if not each.admission]
            return found and all(each.reason == "WaitingForQuota" and words in each.message for each in found)

        await self.world.eventually(look)

    async def end_all(self):
        """Let the pods of each case succeed, or delete its objects if their kind never finishes."""
        for name, case in self.cases.items():
            if case.ends:
                for each in self.pods(name):
                    ended = {"status": {"phase": "Succeeded"}}
                    await self.user.patch("pods", name, each["metadata"]["name"], ended, subresource="status")
            else:
                for obj in case.objects:
                    await self.user.delete(plural_of(obj), name, obj["metadata"]["name"], propagation="Background")

    async def wait_until_finished(self):
        """Wait until all workloads are finished without quota, and check the outcome of each case."""

        async def look():
            found = (await self.world.store.workloads.list()).workloads
            assert not [each for each in found if each.state == "finished" and each.admission]
            return all(each.state == "finished" for each in found) and found

        found = await self.world.eventually(look)
        for name, case in self.cases.items():
            outcomes = [each.outcome for each in found if each.workload.namespace == name]
            assert ("Succeeded" if case.ends else "Deleted") in outcomes, (name, outcomes)


def is_ready(obj):
    conditions = obj["status"].get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def held(records):
    amounts = Counter()
    for record in records:
        for each in record.admission.pod_sets if record.admission else ():
            amounts.update(each.usage)
    return {resource: amounts[resource] for resource in RESOURCES}
