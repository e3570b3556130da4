"""The roles of the chart are sufficient and minimal: Sluice handles all kinds with them, and needs each permission.

One run uses exactly the rendered roles. Then each permission is removed from its role, and the sandbox's RBAC decides
all requests of that run again: a request that is refused now would have failed.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest
import yaml
from chart import NAMESPACE, Object, rendered

from admission.cli.serve.aggregation import Aggregation
from admission.cluster.client import Client
from admission.kinds import all_kinds, frameworks_known, parse_form
from admission.kinds.foreign_groups import FOREIGN
from admission.kinds.grouped import GroupedKind
from admission.sandbox.apiserver.requests import User
from admission.sandbox.controllers.autoscaler import NAME as AUTOSCALER
from admission.sandbox.controllers.autoscaler import REQUESTS
from admission.sandbox.operators import serve_kinds
from admission.sandbox.sandbox import Sandbox
from admission.store.database.migrations import migrate
from admission.store.store import Store
from tests.cli.serve_processes import NODE, Replica, gate_flags, job, serving
from tests.custom_kinds import TRAINING_RUN_FORM, definition
from tests.deploy.custom_objects import custom_object, make_child, until, update_child
from tests.queue_objects import (
    cluster_queue,
    create_objects,
    flavor,
    local_queue,
    manifest,
    provisioning_config,
    topology,
)
from webhooks.certificate_sharing import refresh_shared
from webhooks.certificates import Certificates
from webhooks.gate_reconciler import GateReconciler
from webhooks.registration import Registration, ServiceReference
from webhooks.scope import Scope

SLUICE = f"system:serviceaccount:{NAMESPACE}:sluice"
GROUPS = ("system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}", "system:authenticated")
FRAMEWORKS = frameworks_known()
RULE = {"queue": "lq", "namespaces": ["default"], "kinds": ["batch/job"], "matchLabels": {"team": "a"}}
INTEGRATIONS = {
    "frameworks": [*FRAMEWORKS],
    "kinds": [TRAINING_RUN_FORM],
    "rules": [RULE],
    "groupLabels": [*FOREIGN],
}
"""All kinds, one of a user's own, a rule for Jobs without a queue label, and groups of other systems."""
KINDS = all_kinds(frameworks=FRAMEWORKS, own=[parse_form(TRAINING_RUN_FORM)], group_labels=FOREIGN)
DEFINED = [*(kind for kind in KINDS if kind.is_custom), *KINDS.sizes.values()]
CUSTOM = [kind for kind in DEFINED if not isinstance(kind, GroupedKind)]
"""The custom kinds except grouped kinds, whose objects are only watched."""
OTHER_GATES = (
    "mutatingwebhookconfigurations",
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
)
AMOUNTS = {"cpu": 1000, "memory": "1000Gi", "nvidia.com/gpu": 1000}
QUEUES = (flavor(), cluster_queue(quotas={"default": AMOUNTS}), local_queue())
PLACED = (
    topology("hosts", "kubernetes.io/hostname"),
    manifest("ResourceFlavor", "gpu", spec={"nodeLabels": {"pool": "gpu"}, "topologyName": "hosts"}),
    cluster_queue(flavor="gpu", cpu=8),
    local_queue(),
)
PROVISIONED = (
    provisioning_config("up", "best-effort-atomic-scale-up.autoscaling.x-k8s.io"),
    manifest(
        "AdmissionCheck",
        "nodes",
        spec={
            "controllerName": "kueue.x-k8s.io/provisioning-request",
            "parameters": {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "up"},
        },
    ),
    flavor("spot"),
    cluster_queue(flavor="spot", cpu=8, admissionChecksStrategy={"admissionChecks": [{"name": "nodes"}]}),
    local_queue(),
)


def roles_with(values: Object) -> list[Object]:
    """Return the roles, bindings and accounts of the chart with these values."""
    found = rendered(values)
    return [each for each in found if each["apiVersion"].startswith("rbac.") or each["kind"] == "ServiceAccount"]


def role_of(roles: list[Object], name: str) -> Object:
    (role,) = (each for each in roles if each["metadata"]["name"] == name and "rules" in each)
    return role


ROLES = roles_with(
    {
        "replicas": 2,
        "database": {"type": "postgresql", "postgresql": {"secretName": "sluice-database"}},
        "config": {"integrations": INTEGRATIONS},
        "rbac": {"userRoles": False, "topology": False, "provisioning": False},
    }
)


class Right(NamedTuple):
    """A permission of a role: one verb on one resource, or on one object of it."""

    kind: str
    role: str
    namespace: str
    group: str
    resource: str
    verb: str
    name: str

    def __str__(self) -> str:
        subject = f"{self.resource}.{self.group}" if self.group else self.resource
        return " ".join(filter(None, (self.role, self.verb, subject, self.name)))

    def taken_from(self, role: Object) -> Object:
        """Return the role without this permission, with one rule for each of the others."""
        kept = [right for right in rights_of(role) if right != self]
        rules = [
            {"apiGroups": [each.group], "resources": [each.resource], "verbs": [each.verb]}
            | ({"resourceNames": [each.name]} if each.name else {})
            for each in kept
        ]
        return role | {"rules": rules}


def rights_of(role: Object) -> list[Right]:
    metadata = role["metadata"]
    return [
        Right(role["kind"], metadata["name"], metadata.get("namespace", ""), group, resource, verb, name)
        for rule in role.get("rules", ())
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", ("",))
    ]


RIGHTS = [
    right
    for role in ROLES
    for right in rights_of(role)
    # AppWrappers of two API groups are played; each uses permissions that the other does not need.
    if (right.verb, right.resource, right.group)
    not in (("patch", "appwrappers/status", "workload.codeflare.dev"), ("get", "appwrappers", "mcad.ibm.com"))
    # It is deleted if Kueue's labels are not accepted any more, which is not played.
    and (right.verb, right.name) != ("delete", "kueue.x-k8s.io.told.sluice.dev")
    # They are changed only by another version of Sluice, or after a user has changed them, which are not played.
    and not (right.verb == "patch" and right.name.endswith(".scale.sluice.dev"))
]


@pytest.mark.costly
@pytest.mark.postgres
async def test_each_permission_is_needed_by_a_request_of_the_run(
    make_database_url: Callable[[str], Awaitable[str]], tmp_path: Path
):
    database_url = await make_database_url("postgresql")
    async with Sandbox(speed=60) as sandbox:
        user = await _install(sandbox, tmp_path, ROLES)
        await _run(sandbox, tmp_path, database_url)
        found = await _needing(sandbox, user, RIGHTS)
    unneeded = [str(right) for right, requests in found.items() if not requests]
    assert unneeded == [], "nobody needs them: take them out of deploy/rbac/sluice.yaml, or the chart"


class Installed(NamedTuple):
    """A sandbox with the chart's roles for one configuration, and what a Sluice that has these roles only is given."""

    sandbox: Sandbox
    folder: Path
    database_url: str
    roles: list[Object]
    user: User

    @asynccontextmanager
    async def sluice(self) -> AsyncIterator[Replica]:
        async with serving(self.folder, self.database_url, f"--config={self.folder / 'sluice.yaml'}") as replica:
            await replica.until("leading")
            yield replica

    async def unneeded(self, *roles: str, but: Callable[[Right], bool] = lambda right: False) -> list[str]:
        rights = [right for role in roles for right in rights_of(role_of(self.roles, role)) if not but(right)]
        found = await _needing(self.sandbox, self.user, rights)
        assert found
        return [str(right) for right, requests in found.items() if not requests]


@asynccontextmanager
async def installed(folder: Path, *documents: Object, config: Object | None = None, **rbac: bool) -> AsyncIterator[Any]:
    """Yield an `Installed`, and the client of its administrator."""
    roles = roles_with({"config": config or {}, "rbac": {"userRoles": False} | rbac})
    (folder / "sluice.yaml").write_text(yaml.safe_dump(config or {}))
    database_url = f"sqlite:///{folder / 'sluice.db'}"
    await migrate(database_url)
    await create_objects(database_url, *documents)
    async with Sandbox(speed=60) as sandbox:
        user = await _install(sandbox, folder, roles)
        yield Installed(sandbox, folder, database_url, roles, user), sandbox.local("admin")


def suspended(name: str) -> Object:
    created = job(name)
    created["spec"]["suspend"] = True
    return created


def _is_running(pod: Object) -> bool:
    return bool(pod["status"].get("phase") == "Running")


async def _deleted(watcher: Any) -> None:
    async for batch in watcher:
        if any(change == "DELETED" for _, change, _, _ in batch):
            return


@pytest.mark.costly
async def test_each_permission_for_topology_is_needed_to_place_a_job(tmp_path: Path):
    async with installed(tmp_path, *PLACED) as (chart, admin):
        metadata = NODE["metadata"] | {"labels": {"pool": "gpu", "kubernetes.io/hostname": "node"}}
        await admin.patch("nodes", "", "node", {"metadata": metadata})
        async with chart.sluice():
            await admin.create("jobs", "default", suspended("placed"))
            await until(admin, "pods", _is_running)
        # Pods that are queued are listed and watched, too, with permissions of their own.
        assert await chart.unneeded("sluice-topology", but=lambda right: right.resource == "pods") == []


@pytest.mark.costly
async def test_each_permission_for_provisioning_is_needed_to_start_a_job(tmp_path: Path):
    async with installed(tmp_path, *PROVISIONED) as (chart, admin), serve_kinds(chart.sandbox, [AUTOSCALER]):
        async with chart.sluice():
            created = await admin.create("jobs", "default", suspended("up"))
            await until(admin, "pods", _is_running)
            with closing(admin.watch(REQUESTS)) as watcher:
                await admin.delete("jobs", "default", "up", uid=created["metadata"]["uid"], propagation="Orphan")
                await _deleted(watcher)
        # A PodTemplate is read if one of a former request has its name.
        assert await chart.unneeded("sluice-provisioning", but=lambda right: right.verb == "get") == []


@pytest.mark.costly
async def test_each_permission_to_cancel_is_needed_to_cancel_what_is_queued(tmp_path: Path):
    config = {"integrations": {"frameworks": ["batch/job", "jobset.x-k8s.io/jobset"], "kinds": [TRAINING_RUN_FORM]}}
    kinds = [kind for kind in CUSTOM if kind.group in ("jobset.x-k8s.io", "example.com")]
    async with installed(tmp_path, *QUEUES, config=config, cancel=True) as (chart, admin):
        await admin.create("jobs", "default", suspended("train"))
        for kind in kinds:
            await admin.create(_resource(kind), "default", custom_object(kind))
        async with chart.sluice() as replica:
            await until(admin, "jobs", lambda obj: not obj["spec"]["suspend"])
            for kind in kinds:
                await until(admin, _resource(kind), lambda obj, kind=kind: not kind.observe(obj).suspended)
            headers = {"Authorization": f"Bearer {chart.sandbox.token('admin')}"}
            async with aiohttp.ClientSession(replica.url, headers=headers) as session:
                for name in ("train", *(kind.plural for kind in kinds)):
                    path = f"/apis/sluice.dev/v1/namespaces/default/workloads/{name}/cancel"
                    async with session.post(path, json={}) as answer:
                        assert answer.status == 200, await answer.text()
        needed = ("create", "delete")  # `workloads/cancel` and Jobs, and the other kinds
        assert await chart.unneeded("sluice-cancel", "sluice-kinds", but=lambda right: right.verb not in needed) == []


@pytest.mark.costly
async def test_each_permission_for_devices_is_needed_to_count_claims(tmp_path: Path):
    config = {"resources": {"deviceClassMappings": [{"name": "nvidia.com/gpu", "deviceClassNames": ["gpu"]}]}}
    async with installed(tmp_path, *QUEUES, config=config) as (chart, admin):
        requests = [{"name": "gpu", "exactly": {"deviceClassName": "gpu", "count": 3}}]
        template = {"metadata": {"name": "gpus"}, "spec": {"spec": {"devices": {"requests": requests}}}}
        await admin.create("resourceclaimtemplates", "default", template)
        async with chart.sluice() as replica:
            asking = suspended("asking")
            asking["spec"]["template"]["spec"]["resourceClaims"] = [{"name": "g", "resourceClaimTemplateName": "gpus"}]
            await admin.create("jobs", "default", asking)
            await until(admin, "jobs", lambda obj: not obj["spec"].get("suspend"))
            assert "orbidden" not in replica.log.decode()
        async with Store.open(chart.database_url) as store:
            record = await store.workloads.get("default", "asking")
        assert record is not None
        assert record.admission is not None
        assert record.admission.pod_sets[0].usage["nvidia.com/gpu"] == 3
        assert await chart.unneeded("sluice-devices") == []


@pytest.mark.costly
async def test_each_permission_for_failure_recovery_is_needed_to_end_a_pod(tmp_path: Path):
    recovery = {"forcefulTerminationGracePeriod": "0s"}
    # Pods that are queued may be deleted anyway.
    config = {"failureRecovery": recovery, "integrations": {"frameworks": ["batch/job"]}}
    async with installed(tmp_path, config=config, topology=False) as (chart, admin):
        annotations = {"sluice.dev/safe-to-forcefully-delete": "true", "sandbox.sluice.dev/stop-seconds": "never"}
        spec = job("any")["spec"]["template"]["spec"] | {"terminationGracePeriodSeconds": 1}
        await admin.create("pods", "default", {"metadata": {"name": "lost", "annotations": annotations}, "spec": spec})
        await until(admin, "pods", _is_running)
        taints = [{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]
        await admin.patch("nodes", "", NODE["metadata"]["name"], {"spec": {"taints": taints}})
        await admin.delete("pods", "default", "lost")
        with closing(admin.watch("pods")) as watcher:
            async with chart.sluice():
                await _deleted(watcher)
        assert await chart.unneeded("sluice-failure-recovery") == []


@pytest.mark.costly
async def test_each_permission_for_usage_metrics_is_needed_to_read_them(tmp_path: Path):
    # Pods that are queued are watched anyway.
    config = {"usageMetrics": {"metricsApi": True}, "integrations": {"frameworks": ["batch/job"]}}
    async with installed(tmp_path, config=config, topology=False) as (chart, _):
        async with chart.sluice() as replica:
            while not any("metrics.k8s.io" in str(one) for _, one in chart.sandbox.authorizer.decisions):
                await replica.get("/healthz")
        assert await chart.unneeded("sluice-usage-metrics") == []


async def _needing(sandbox: Sandbox, user: User, rights: list[Right]) -> dict[Right, list[str]]:
    """Return for each permission the requests that were allowed, and are refused without it."""
    asked = [one for (name, one), reason in sandbox.authorizer.decisions.items() if name == SLUICE and reason]
    admin = sandbox.local("admin")
    found = {}
    for right in rights:
        plural = f"{right.kind.lower()}s"
        role = admin.get(plural, right.namespace, right.role)
        assert role is not None
        await admin.update(plural, right.namespace, right.taken_from(role))
        found[right] = [str(one) for one in asked if sandbox.authorizer.reason(user, one) is None]
        await admin.patch(plural, right.namespace, right.role, {"rules": role["rules"]})
    return found


async def _install(sandbox: Sandbox, folder: Path, roles: list[Object]) -> User:
    """Create the chart's roles, and write a kubeconfig for the user that has them to `folder`; return the user."""
    admin = sandbox.local("admin")
    await admin.create("namespaces", "", {"metadata": {"name": NAMESPACE}})
    for document in roles:
        namespace = document["metadata"].get("namespace", "")
        await admin.create(f"{document['kind'].lower()}s", namespace, copy.deepcopy(document))
    await admin.create("nodes", "", copy.deepcopy(NODE))
    await admin.create("priorityclasses", "", {"metadata": {"name": "high"}, "value": 1000})  # a PyTorchJob names it
    for kind in DEFINED:
        await admin.create("customresourcedefinitions", "", definition(kind))
    user = User(SLUICE, "1", GROUPS)
    kubeconfig = sandbox.kubeconfig()
    kubeconfig["users"][0]["user"]["token"] = sandbox.add_user(user)
    (folder / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
    return user


async def _play_pods(admin: Any) -> None:
    """Play pods: one starts, one is ungated while no policy prevents it, two form a group, one loses its label."""
    containers = [{"name": "main", "image": "pause"}]
    for name, queue in (("good", "lq"), ("bad", "none")):
        labels = {"sluice.dev/queue-name": queue}
        metadata = {"name": name, "labels": labels}
        await admin.create("pods", "default", {"metadata": metadata, "spec": {"containers": containers}})
    await _drop_policy(admin)
    with closing(admin.watch("pods")) as changes:
        await admin.patch("pods", "default", "bad", {"spec": {"schedulingGates": None}})
        async for batch in changes:
            if any(what == "DELETED" and obj["metadata"]["name"] == "bad" for _, what, obj, _ in batch):
                break
    await until(admin, "pods", partial(_is_ungated, "good"))
    for name in ("one", "other"):
        metadata = {
            "name": name,
            "labels": {"sluice.dev/queue-name": "lq", "sluice.dev/pod-group-name": "group"},
            "annotations": {"sluice.dev/pod-group-total-count": "2"},
        }
        await admin.create("pods", "default", {"metadata": metadata, "spec": {"containers": containers}})
    for name in ("one", "other"):
        await until(admin, "pods", partial(_is_ungated, name))
    await _drop_policy(admin)
    await admin.patch("pods", "default", "good", {"metadata": {"labels": {"sluice.dev/managed": None}}})
    await until(admin, "pods", lambda obj: obj["metadata"].get("labels", {}).get("sluice.dev/managed") == "true")


async def _drop_policy(admin: Any) -> None:
    """Delete the policy binding that keeps pods gated and labelled; Sluice restores it periodically."""
    name = "pods.gated.sluice.dev"
    if admin.get("validatingadmissionpolicybindings", "", name) is not None:
        await admin.delete("validatingadmissionpolicybindings", "", name)


def _is_ungated(name: str, obj: Object) -> bool:
    return bool(obj["metadata"]["name"] == name and not obj["spec"].get("schedulingGates"))


async def _run(sandbox: Sandbox, folder: Path, database_url: str) -> None:
    """Make Sluice send all its kinds of requests to a cluster, mostly through `sluice serve`."""
    (folder / "sluice.yaml").write_text(yaml.safe_dump({"integrations": INTEGRATIONS}))
    flags = (
        f"--config={folder / 'sluice.yaml'}",
        *gate_flags(folder),
        f"--certificate-secret={NAMESPACE}/sluice-webhook-certificates",
        f"--lease={NAMESPACE}/sluice",
    )
    await create_objects(database_url, *QUEUES)
    admin = sandbox.local("admin")
    # One conflict for each kind, after which Sluice has to read the object again.
    resources = [("batch", "jobs"), *((kind.group, kind.plural) for kind in CUSTOM)]
    rules = [_conflict(group, plural) for group, plural in resources]
    sandbox.faults.install({"rules": rules})
    async with serving(folder, database_url, *flags) as replica:
        await replica.until("leading")
        await admin.create("jobs", "default", job("short", seconds=1))
        await admin.create("jobs", "default", job("long", seconds=3600))
        ruled = job("ruled", seconds=3600)
        ruled["metadata"]["labels"] = {"team": "a"}
        assert (await admin.create("jobs", "default", ruled))["spec"]["suspend"] is True
        for kind in CUSTOM:
            created = await admin.create(_resource(kind), "default", custom_object(kind))
            await make_child(admin, kind, created, CUSTOM)
        for kind in CUSTOM:
            if kind.rendered_by:
                await update_child(admin, kind)
        for kind in CUSTOM:
            await until(admin, _resource(kind), lambda obj, kind=kind: not kind.observe(obj).suspended)
        await _play_appwrapper_items(admin)
        await until(admin, "jobs", lambda obj: obj["metadata"]["name"] == "ruled" and not obj["spec"]["suspend"])
        await _play_pods(admin)
        await until(admin, "jobs", lambda obj: obj.get("status", {}).get("succeeded") == 1)
        await until(admin, "pods", lambda obj: obj["status"].get("phase") == "Running")
        await admin.delete("jobs", "default", "long", propagation="Background")
        await until(admin, "events", lambda obj: obj["reason"] == "Admitted")
        await _check_user_access(sandbox, replica)
    sandbox.faults.remove()
    assert "orbidden" not in replica.log.decode()
    async with Client.from_kubeconfig(str(folder / "kubeconfig")) as client:
        await _write_and_repair_gates(client, admin)
        await Aggregation(NAMESPACE, "sluice-api", 443).ensure(client, b"one CA")
        await Aggregation(NAMESPACE, "sluice-api", 443).ensure(client, b"another CA")
        old = Certificates(folder / "old", ["localhost"], now=lambda: datetime.now(UTC) + timedelta(days=3650))
        await refresh_shared(client, old, namespace=NAMESPACE, name="sluice-webhook-certificates")


def _resource(kind: Any) -> str:
    """Return plural and group, because AppWrappers exist in two groups."""
    return f"{kind.plural}.{kind.group}"


async def _play_appwrapper_items(admin: Any) -> None:
    """Wait until the items of an MCAD AppWrapper are created, put it on hold, and wait until they are deleted."""
    plural = "appwrappers.mcad.ibm.com"
    await until(admin, plural, lambda obj: (obj.get("status") or {}).get("isdispatched") is True)
    await admin.patch(plural, "default", "appwrappers", {"metadata": {"labels": {"sluice.dev/hold": "true"}}})
    await until(admin, plural, lambda obj: obj["status"]["isdispatched"] is False)


def _conflict(group: str, plural: str) -> Object:
    match = {"verb": "patch", "group": group, "resource": plural, "user": SLUICE}
    return {"match": match, "probability": 1, "limit": 1, "do": "error", "code": 409}


async def _check_user_access(sandbox: Sandbox, replica: Replica) -> None:
    """Check that users are authenticated and authorized by TokenReview and SubjectAccessReview."""
    async with aiohttp.ClientSession(replica.url) as session:
        for user, status in (("admin", 200), ("alice", 403)):
            headers = {"Authorization": f"Bearer {sandbox.token(user)}"}
            async with session.get("/apis/sluice.dev/v1/cohorts", headers=headers) as answer:
                assert answer.status == status


async def _write_and_repair_gates(client: Client, admin: Any) -> None:
    """Write each gate, repair it after a change, and remove it in favour of another gate or with its kinds."""
    await admin.create("validatingwebhookconfigurations", "", {"metadata": {"name": "sluice"}, "webhooks": []})
    endpoint = ServiceReference(NAMESPACE, "sluice-webhook")
    jobs, both = ("batch/job",), ("batch/job", "jobset.x-k8s.io/jobset")
    rounds = (("policies", (), both), ("webhooks", None, (*both, "pod")), ("webhooks", None, jobs))
    for mode, managed, frameworks in rounds:
        kinds = all_kinds(excluded_namespaces=("kube-system",), frameworks=frameworks)
        scope = Scope((SLUICE,), ("kube-system",), managed)
        registration = Registration(kinds, endpoint, scope)
        reconciler = GateReconciler(client, mode, kinds, scope, partial(registration.configuration, b"CA"))
        await reconciler.ensure()
        for plural in OTHER_GATES:
            for obj in admin.list(plural):
                await admin.patch(plural, "", obj["metadata"]["name"], {"metadata": {"labels": None}})
        await reconciler.ensure()
        await reconciler.remove_obsolete()
