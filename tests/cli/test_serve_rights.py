"""`deploy/rbac/sluice.yaml` is what Sluice needs: with it Jobs go their whole way, without any part of it they do not.

That each right is needed is not tried one by one: of each it is shown that a request of the scenario was allowed by it
alone, so that without it that request is refused.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
import yaml
from ports import free_port
from serve_processes import NODE, QUEUES, Replica, job, serving

from admission.cli.serve.aggregation import Aggregation
from admission.cluster.client import Client
from admission.kinds import all_kinds
from admission.model.manifests import parse_documents, parse_manifest
from admission.sandbox.sandbox import Sandbox
from admission.store.audit_log import Author
from admission.store.store import Store
from webhooks.certificates import Certificates
from webhooks.policies import Scope
from webhooks.registration import Registration, ServiceReference
from webhooks.sharing import refresh_shared
from webhooks.standing import Standing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from admission.sandbox.auth.rbac import Attributes

RBAC = Path(__file__).parents[2] / "deploy" / "rbac" / "sluice.yaml"
SLUICE = "system:serviceaccount:sluice-system:sluice"
GATES = (
    "mutatingwebhookconfigurations",
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
)
TOKEN_OF_SLUICE = "/api/v1/namespaces/sluice-system/serviceaccounts/sluice/token"


@pytest.fixture
def database_kind() -> str:
    return "postgresql"  # several replicas: with Lease and Secret


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[Sandbox]:
    """A cluster in which `sluice` has the rights that are published, and its token is in `kubeconfig`."""
    async with Sandbox(speed=60) as opened:
        admin = opened.local("admin")
        await admin.create("namespaces", "", {"metadata": {"name": "sluice-system"}})
        for document in yaml.safe_load_all(RBAC.read_text()):
            metadata = document["metadata"]
            await admin.create(f"{document['kind'].lower()}s", metadata.get("namespace", ""), document)
        opened.write_kubeconfig(tmp_path / "admin.kubeconfig")
        async with Client.from_kubeconfig(str(tmp_path / "admin.kubeconfig")) as client:
            issued = await client.create(TOKEN_OF_SLUICE, {"spec": {"expirationSeconds": 10**6}})
        kubeconfig = opened.kubeconfig()
        kubeconfig["users"][0]["user"]["token"] = issued["status"]["token"]
        (tmp_path / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
        await admin.create("nodes", "", NODE)
        yield opened


async def run(local: Any, name: str, phase: str) -> None:
    """Wait until a pod of the Job is in that phase."""
    watcher = local.watch("pods")
    async for batch in watcher:
        for _, _, pod, _ in batch:
            owner = pod["metadata"]["labels"].get("batch.kubernetes.io/job-name")
            if owner == name and pod.get("status", {}).get("phase") == phase:
                watcher.close()
                return


async def event(local: Any, reason: str) -> None:
    watcher = local.watch("events")
    async for batch in watcher:
        if any(obj["reason"] == reason for _, _, obj, _ in batch):
            watcher.close()


@pytest.mark.postgres
async def test_sluice_needs_no_more_than_it_asks_for(sandbox: Sandbox, database_url: str, tmp_path: Path):
    webhook = free_port()
    flags = (
        f"--webhook-url=https://127.0.0.1:{webhook}",
        f"--webhook-address=127.0.0.1:{webhook}",
        f"--certificate-directory={tmp_path / 'certificates'}",
        "--certificate-secret=sluice-system/sluice-webhook-certificates",
        "--lease=sluice-system/sluice",
    )
    async with Store.open(database_url) as store:
        for document in parse_documents(QUEUES, source="QUEUES"):
            await store.queues.create(parse_manifest(document.body), author=Author("test"))
    admin = sandbox.local("admin")
    async with serving(tmp_path, database_url, *flags) as replica:
        await replica.until("leading")
        await admin.create("jobs", "default", job("short", seconds=1))
        await admin.create("jobs", "default", job("long", seconds=3600))
        await run(admin, "short", "Succeeded")
        await run(admin, "long", "Running")
        await admin.delete("jobs", "default", "long", propagation="Background")
        await event(admin, "Admitted")
        await _users_are_known(sandbox, replica)
    assert "orbidden" not in replica.log.decode()
    assert "cannot" not in replica.log.decode()
    async with Client.from_kubeconfig(str(tmp_path / "kubeconfig")) as client:
        await _write_and_mend_gates(client, admin)
        await Aggregation("sluice-system", "sluice-api", 443).ensure(client, b"one CA")
        await Aggregation("sluice-system", "sluice-api", 443).ensure(client, b"another CA")
        old = Certificates(tmp_path / "old", ["localhost"], now=lambda: datetime.now(UTC) + timedelta(days=3650))
        await refresh_shared(client, old, namespace="sluice-system", name="sluice-webhook-certificates")
    asked = [asked for (user, asked), reason in sandbox.authorizer.decisions.items() if user == SLUICE and reason]
    assert list(_needless(asked)) == []


def _needless(asked: list[Attributes]) -> Iterator[tuple[str, ...]]:
    """Rights of Sluice's own roles without which all would have been allowed as well."""
    atoms = [
        (document["metadata"]["name"], group, resource, verb, name)
        for document in yaml.safe_load_all(RBAC.read_text())
        for rule in document.get("rules", ())
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", ("",))
    ]
    needed = {atom for one in asked for atom in _allowing(atoms, one) if len(list(_allowing(atoms, one))) == 1}
    # What a kind needs is shown by the tests of that kind; a Job is read alone after a conflict.
    yield from (atom for atom in atoms if atom not in needed and atom[1:4] != ("batch", "jobs", "get"))


def _allowing(atoms: list[tuple[str, ...]], asked: Attributes) -> Iterator[tuple[str, ...]]:
    for atom in atoms:
        role, group, resource, verb, name = atom
        namespace = {"sluice-controller": "", "sluice-database": "kube-system"}.get(role, "sluice-system")
        if (
            (group, resource, verb) == (asked.group, asked.resource, asked.verb)
            and name in ("", asked.name)
            and namespace in ("", asked.namespace)
        ):
            yield atom


async def _write_and_mend_gates(client: Client, admin: Any) -> None:
    """Each gate is written, mended after somebody has changed it, and removed for another one."""
    await admin.create("validatingwebhookconfigurations", "", {"metadata": {"name": "sluice"}, "webhooks": []})
    kinds = all_kinds(kueue_labels=True, excluded_namespaces=("kube-system",))
    endpoint = ServiceReference("sluice-system", "sluice-webhook")
    for mode, managed in (("policies", ()), ("webhooks", None), ("webhooks", None)):
        scope = Scope((SLUICE,), ("kube-system",), managed)
        registration = Registration(kinds, endpoint, scope)
        standing = Standing(client, mode, kinds, scope, partial(registration.configuration, b"CA"))
        await standing.ensure()
        for plural in GATES:
            for obj in admin.list(plural):
                await admin.patch(plural, "", obj["metadata"]["name"], {"metadata": {"labels": None}})
        await standing.ensure()
        await standing.clear()


@pytest.mark.postgres
async def test_nor_for_either_gate_and_for_managed_namespaces(sandbox: Sandbox, database_url: str, tmp_path: Path):
    """Each gate is written, and removes the other; what no gate has seen is taken in."""
    webhook = free_port()
    flags = (
        f"--webhook-url=https://127.0.0.1:{webhook}",
        f"--webhook-address=127.0.0.1:{webhook}",
        f"--certificate-directory={tmp_path / 'certificates'}",
        "--manage-jobs-without-queue-name",
    )
    admin = sandbox.local("admin")
    unlabelled = job("from-before", seconds=3600)
    del unlabelled["metadata"]["labels"]
    await admin.create("jobs", "default", unlabelled)
    logs = []
    for mode, there, removed in (
        ("webhooks", "mutatingwebhookconfigurations", None),
        ("policies", "mutatingadmissionpolicybindings", "mutatingwebhookconfigurations"),
        ("webhooks", "mutatingwebhookconfigurations", "mutatingadmissionpolicybindings"),
    ):
        async with serving(tmp_path, database_url, *flags, f"--admission={mode}") as replica:
            await until(admin, there, exists=True)
            if removed is not None:
                await until(admin, removed, exists=False)
            await queued(admin, "from-before")
        logs.append(replica.log.decode())
    assert [log for log in logs if "orbidden" in log or "cannot" in log] == []


async def until(local: Any, plural: str, *, exists: bool) -> None:
    """Wait until there are, or are not, any objects of a resource."""
    watcher = local.watch(plural)
    batches = aiter(watcher)
    while bool(local.list(plural)) is not exists:
        await anext(batches)
    watcher.close()


async def queued(local: Any, name: str) -> None:
    """Wait until a Job has the label of the default LocalQueue."""
    watcher = local.watch("jobs")
    async for batch in watcher:
        for _, _, obj, _ in batch:
            labels = obj["metadata"].get("labels", {})
            if obj["metadata"]["name"] == name and labels.get("sluice.dev/queue-name") == "default":
                watcher.close()


async def _users_are_known(sandbox: Sandbox, replica: Replica) -> None:
    """By TokenReview and SubjectAccessReview, for which there must be rights, too."""
    async with aiohttp.ClientSession(replica.url) as session:
        for user, status in (("admin", 200), ("alice", 403)):
            headers = {"Authorization": f"Bearer {sandbox.token(user)}"}
            async with session.get("/apis/sluice.dev/v1/cohorts", headers=headers) as answer:
                assert answer.status == status
