"""`deploy/rbac/sluice.yaml` is enough for either gate and managed namespaces. Single rights: `tests/deploy`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from serve_processes import gate_flags, job, sandbox_with_rights, serving

from admission.sandbox.sandbox import Sandbox

SLUICE = "system:serviceaccount:sluice-system:sluice"


@pytest.fixture
def database_kind() -> str:
    return "postgresql"  # several replicas: with Lease and Secret


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[Sandbox]:
    """A cluster in which `sluice` has the published rights, and its token is in `kubeconfig`."""
    async with sandbox_with_rights(tmp_path) as opened:
        yield opened


@pytest.mark.costly
@pytest.mark.postgres
async def test_published_rbac_is_enough_for_either_gate_and_managed_namespaces(
    sandbox: Sandbox, database_url: str, tmp_path: Path
):
    """Each gate is registered and removes the other; a Job created before any gate is queued."""
    (tmp_path / "sluice.yaml").write_text("integrations: {frameworks: [batch/job]}\n")
    flags = (
        f"--config={tmp_path / 'sluice.yaml'}",
        *gate_flags(tmp_path),
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
