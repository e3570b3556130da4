"""An outage of the gate: only queued objects are refused; `gate off` lets them in, `gate on` restores the gate."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from serve_processes import Object, gate_flags, job, serving, sluice, until_job

from admission.sandbox.apiserver.errors import ApiError
from admission.sandbox.sandbox import Sandbox


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[Sandbox]:
    async with Sandbox(controllers=False) as sandbox:
        sandbox.write_kubeconfig(tmp_path / "kubeconfig", "sluice")
        yield sandbox


@pytest.mark.costly
async def test_jobs_created_with_the_gate_off_are_suspended_when_serve_returns(sandbox: Sandbox, tmp_path: Path):
    admin = sandbox.local("admin")

    async def switch(to: str) -> None:
        process = await sluice("gate", to, f"--kubeconfig={tmp_path / 'kubeconfig'}")
        await process.communicate()
        assert process.returncode == 0

    flags = gate_flags(tmp_path)
    url = f"sqlite:///{tmp_path / 'sluice.db'}"
    async with serving(tmp_path, url, *flags) as replica:
        await replica.until_ready()
    with pytest.raises(ApiError, match=r'failed calling webhook "jobs\.new-[12]\.sluice\.dev"'):
        await sandbox.local("alice").create("jobs", "default", job("refused"))
    unlabelled = job("unlabelled")
    del unlabelled["metadata"]["labels"]
    await sandbox.local("alice").create("jobs", "default", unlabelled)
    await sandbox.local("alice").create("jobs", "kube-system", job("of-the-system"))
    await switch("off")
    await sandbox.local("alice").create("jobs", "default", job("let-in"))
    assert not is_suspended(admin.get("jobs", "default", "let-in"))
    async with serving(tmp_path, url, *flags) as replica:
        await replica.until_ready()
        await until_job(sandbox, "let-in", is_suspended)  # because it runs without quota
        await sandbox.local("alice").create("jobs", "default", job("still-off"))
        await switch("on")
        created = await sandbox.local("alice").create("jobs", "default", job("gated"))
        assert created["spec"]["suspend"] is True
        await until_job(sandbox, "still-off", is_suspended)
    assert not is_suspended(admin.get("jobs", "default", "unlabelled"))
    assert not is_suspended(admin.get("jobs", "kube-system", "of-the-system"))


def is_suspended(obj: Object) -> bool:
    return bool(obj["spec"].get("suspend"))
