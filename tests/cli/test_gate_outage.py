"""Without a gate only what is queued is refused; one command lets it in, one brings the gate back."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from ports import free_port
from serve_processes import job, serving, sluice

from admission.sandbox.apiserver.errors import ApiError
from admission.sandbox.sandbox import Sandbox

if TYPE_CHECKING:
    from pathlib import Path


async def test_after_an_outage_and_the_emergency_switch_all_is_put_right(tmp_path: Path):
    async with Sandbox(controllers=False) as sandbox:
        sandbox.write_kubeconfig(tmp_path / "kubeconfig", "sluice")
        await _goes_through_it(sandbox, tmp_path)


async def _goes_through_it(sandbox: Sandbox, tmp_path: Path) -> None:
    admin = sandbox.local("admin")

    async def switch(to: str) -> None:
        process = await sluice("gate", to, f"--kubeconfig={tmp_path / 'kubeconfig'}")
        await process.communicate()
        assert process.returncode == 0

    def suspended(name: str, namespace: str = "default") -> bool:
        return bool(admin.get("jobs", namespace, name)["spec"].get("suspend"))

    port = free_port()
    flags = (
        f"--webhook-url=https://127.0.0.1:{port}",
        f"--webhook-address=127.0.0.1:{port}",
        f"--certificate-directory={tmp_path / 'certificates'}",
    )
    url = f"sqlite:///{tmp_path / 'sluice.db'}"
    async with serving(tmp_path, url, *flags) as replica:
        await replica.until_ready()
    with pytest.raises(ApiError, match=r'failed calling webhook "jobs\.mutate\.sluice\.dev"'):
        await sandbox.local("alice").create("jobs", "default", job("refused"))
    unlabelled = job("unlabelled")
    del unlabelled["metadata"]["labels"]
    await sandbox.local("alice").create("jobs", "default", unlabelled)
    await sandbox.local("alice").create("jobs", "kube-system", job("of-the-system"))
    await switch("off")
    await sandbox.local("alice").create("jobs", "default", job("let-in"))
    assert not suspended("let-in")
    async with serving(tmp_path, url, *flags) as replica:
        await replica.until_ready()
        while not suspended("let-in"):  # it runs without quota  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        await sandbox.local("alice").create("jobs", "default", job("still-off"))
        await switch("on")
        created = await sandbox.local("alice").create("jobs", "default", job("gated"))
        assert created["spec"]["suspend"] is True
        while not suspended("still-off"):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    assert not suspended("unlabelled")
    assert not suspended("of-the-system", "kube-system")
