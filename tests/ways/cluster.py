"""Test cluster for all kinds: a sandbox with simulated operators, `sluice serve`, and an observer of quota."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from admission.cli.demo.live_pods import LivePods
from admission.kinds import all_kinds, frameworks_known
from admission.kinds.foreign_groups import FOREIGN
from admission.kinds.form_parser import parse_form
from admission.sandbox.background import background
from admission.sandbox.controllers.leaderworkersets import LeaderWorkerSetController
from admission.sandbox.controllers.volcano import VolcanoController
from admission.sandbox.operators import definition, operator
from admission.sandbox.sandbox import Sandbox
from tests.custom_kinds import TRAINING_RUN_FORM
from tests.fuzz.world import World
from tests.trainer import Trainer, runtimes, trainjobs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

Object = dict[str, Any]

USER = "alice"
SPEED = 5.0
"""Speed of the sandbox's clock relative to real time.

Where Sluice reacts within a pause of a controller, such as the ten seconds after which a Job replaces a deleted pod,
the pause must not become shorter than Sluice takes on a busy machine.
"""
MERGE, JSON_PATCH = "application/merge-patch+json", "application/json-patch+json"
SETTINGS: Object = {
    "integrations": {
        "frameworks": list(frameworks_known()),
        "kinds": [TRAINING_RUN_FORM],
        "groupLabels": [
            "gang.scheduling.koordinator.sh/name",
            "scheduling.x-k8s.io/pod-group",
            "scheduling.k8s.io/group-name",
            "yunikorn.apache.org/app-id",
        ],
    }
}
MANAGED = {"ways": "managed"}
"""Label of managed namespaces."""


@dataclass(frozen=True)
class Setup:
    """How objects are gated and how their queue is determined."""

    policies: bool = False
    """Whether admission policies gate the kinds that they can gate; otherwise webhooks gate all kinds."""
    queue_by: str = ""
    """Source of an object's queue: "managed", its managed namespace; "rules", a rule; "", its queue label."""

    @property
    def name(self) -> str:
        """Name in docs/kinds/tests.md."""
        by = {"managed": "managed namespaces", "rules": "rules"}.get(self.queue_by)
        return ("policies" if self.policies else "webhooks") + (f", {by}" if by else "")

    @property
    def settings(self) -> Object:
        """Configuration of `sluice serve`."""
        found = {**SETTINGS, "admission": "policies" if self.policies else "webhooks"}
        if self.queue_by == "managed":
            found |= {"manageJobsWithoutQueueName": True, "managedJobsNamespaceSelector": {"matchLabels": MANAGED}}
        if self.queue_by == "rules":
            found |= {"integrations": {**SETTINGS["integrations"], "rules": [{"queue": "default"}]}}
        return found


KINDS = all_kinds(frameworks=frameworks_known(), own=[parse_form(TRAINING_RUN_FORM)], group_labels=FOREIGN)
_SIZES = {
    ("scheduling.x-k8s.io", "PodGroup"): "v1alpha1",
    ("scheduling.volcano.sh", "PodGroup"): "v1beta1",
    ("scheduling.k8s.io", "PodGroup"): "v1beta1",
    ("scheduling.k8s.io", "CompositePodGroup"): "v1alpha3",
}
_ONE_VERSION = {("workload.codeflare.dev", "AppWrapper"): "v1beta2"}


class Answer(NamedTuple):
    """Response of the API server."""

    status: int
    body: Object
    warnings: tuple[str, ...]


class Cluster:
    """The running cluster with Sluice."""

    def __init__(self, world: World, setup: Setup) -> None:
        self.world = world
        self.setup = setup
        self.local = world.local
        self._limits: dict[str, dict[str, int]] = {}
        self.observer = LivePods(self._limits, {"cpu": 10**9})

    async def watch(self) -> None:
        """Sum up the requests of ungated pods at each version of each pod, until cancelled."""
        with closing(self.local.watch("pods")) as changes:
            async for batch in changes:
                for _, change, obj, _ in batch:
                    metadata = obj["metadata"]
                    there = change != "DELETED" and not obj["spec"].get("schedulingGates")
                    key = f"{metadata['namespace']}/{metadata['name']}"
                    self.observer.pod(key, obj if there else None, 0.0)

    async def queue(self, namespace: str, cpus: int, *, open_: bool) -> None:
        """Create a namespace with a queue of `cpus` CPUs; unless `open_` the queue is on Hold: no pod may run there."""
        self._limits[namespace] = {"cpu": cpus * 1000 if open_ else 0}
        self.observer.alive[namespace] = {"cpu": 0}
        self.observer.on_nodes[namespace] = {"cpu": 0}
        labels = MANAGED if self.setup.queue_by == "managed" else {}
        await self.local.create("namespaces", "", {"metadata": {"name": namespace, "labels": labels}})
        quotas = [{"name": "cpu", "nominalQuota": cpus}, {"name": "memory", "nominalQuota": 2**60}]
        flavors = [{"name": "default", "resources": quotas}]
        spec = {
            "namespaceSelector": {},
            "stopPolicy": "None" if open_ else "Hold",
            "resourceGroups": [{"coveredResources": ["cpu", "memory"], "flavors": flavors}],
        }
        for kind, plural, name, body in (
            ("ClusterQueue", "clusterqueues", namespace, spec),
            ("LocalQueue", "localqueues", "lq", {"clusterQueue": namespace}),
            ("LocalQueue", "localqueues", "default", {"clusterQueue": namespace}),
        ):
            metadata = {"name": name} | ({"namespace": namespace} if kind == "LocalQueue" else {})
            obj = {"apiVersion": "sluice.dev/v1", "kind": kind, "metadata": metadata, "spec": body}
            where = namespace if kind == "LocalQueue" else ""
            path = f"/apis/sluice.dev/v1{f'/namespaces/{where}' if where else ''}/{plural}"
            while (answer := await self.world.ask("POST", path, obj))[0] in (0, 503):  # noqa: ASYNC110  a busy database
                await asyncio.sleep(1.0)
            assert answer[0] in (201, 409), answer

    async def ask(self, method: str, path: str, body: Any = None, *, content: str = "application/json") -> Answer:
        """Send a request of the user to the API server."""
        session = self.world._session(USER)
        headers = {"Authorization": f"Bearer {self.world.sandbox.token(USER)}", "Content-Type": content}
        data = None if body is None else json.dumps(body)
        async with session.request(method, self.world.sandbox.url + path, data=data, headers=headers) as response:
            document = await response.json(content_type=None)
            self.world.check_answer(f"{method} {path}", response.status, document)
            return Answer(response.status, document, tuple(response.headers.getall("Warning", ())))

    async def workloads(self, namespace: str) -> list[Object]:
        """Return the workloads of a namespace that Sluice's API lists."""
        found = await self.world.queues("GET", "workloads", namespace=namespace)
        items: list[Object] = found["items"]
        return items

    def pods(self, namespace: str) -> list[Object]:
        """Return the pods of a namespace that have not finished."""
        ended = ("Succeeded", "Failed")
        return [each for each in self.local.list("pods", namespace) if each.get("status", {}).get("phase") not in ended]


@asynccontextmanager
async def running_cluster(folder: Path, database_url: str, setup: Setup) -> AsyncIterator[Cluster]:
    """Run the cluster during the block; all kinds are served, have an operator, and are queued."""
    (folder / "sluice.yaml").write_text(json.dumps(setup.settings))
    logging.getLogger("admission.sandbox").setLevel(logging.ERROR)  # operators warn of rejected children
    async with Sandbox(speed=SPEED) as sandbox:
        sandbox.write_kubeconfig(folder / "kubeconfig", "sluice")
        await _prepare(sandbox.local("admin"))
        world = World(sandbox, folder, database_url)
        cluster = Cluster(world, setup)
        async with background(
            watch=cluster.watch(), **{name: each.run() for name, each in _operators(sandbox).items()}
        ):
            try:
                await world.start()
                flavor = {"apiVersion": "sluice.dev/v1", "kind": "ResourceFlavor", "metadata": {"name": "default"}}
                await world.queues("POST", "resourceflavors", "", {**flavor, "spec": {}})
                yield cluster
                world.check_alive()
            finally:
                await world.stop()
                await world.close()


def _operators(sandbox: Sandbox) -> dict[str, Any]:
    manager, clock = sandbox.local("system:serviceaccount:operators:operator"), sandbox.clock
    running: dict[str, Any] = {
        f"{each.group}/{each.kind}": operator(manager, clock, each, end_pods=each.kind != "Workflow")
        for each in KINDS
        if hasattr(each, "form") and each.group != "mcad.ibm.com" and each.kind != "TrainJob"
    }
    running |= {"trainer": Trainer(manager, clock), "volcano": VolcanoController(manager, clock)}
    return running | {"sets": LeaderWorkerSetController(manager, clock)}


async def _prepare(admin: Any) -> None:
    for each in KINDS:
        if each.is_custom and each.kind != "TrainJob":
            version = _ONE_VERSION.get((each.group, each.kind))
            await admin.create("customresourcedefinitions", "", definition(each, version))
    for each in (trainjobs("2.2"), runtimes()):
        await admin.create("customresourcedefinitions", "", each)
    for key, version in _SIZES.items():
        await admin.create("customresourcedefinitions", "", definition(KINDS.sizes[key], version))
    amounts = {"cpu": "100000", "memory": "100000Gi", "ephemeral-storage": "100000Gi", "pods": "100000"}
    node = {"name": "node", "annotations": {"kwok.x-k8s.io/node": "fake"}}
    await admin.create("nodes", "", {"metadata": node, "status": {"allocatable": amounts, "capacity": amounts}})
    rules = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
    custom = sorted({each.group for each in KINDS if each.is_custom} | {group for group, _ in _SIZES})
    rules[0]["apiGroups"] = custom
    await admin.create("clusterroles", "", {"metadata": {"name": "edit-kinds"}, "rules": rules})
    for role in ("edit", "edit-kinds"):
        subjects = [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": USER}]
        reference = {"kind": "ClusterRole", "apiGroup": "rbac.authorization.k8s.io", "name": role}
        binding = {"metadata": {"name": f"{USER}-{role}"}, "subjects": subjects, "roleRef": reference}
        await admin.create("clusterrolebindings", "", binding)
