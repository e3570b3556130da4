"""`sluice serve` and the address of its webhooks: where they listen, and what it says if nothing answers there."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest
from ports import free_port
from serve_processes import TOKEN, job, serving, sluice

from admission.cli.configuration.settings import Settings
from admission.cli.serve.webhook_service import webhook_listening
from admission.sandbox.sandbox import Sandbox

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[Sandbox]:
    async with Sandbox(speed=60) as sandbox:
        sandbox.write_kubeconfig(tmp_path / "kubeconfig", "sluice")
        yield sandbox


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"webhook_url": "https://127.0.0.1:19781"}, ("127.0.0.1", 19781)),
        ({"webhook_url": "https://localhost:19781"}, ("localhost", 19781)),
        ({"webhook_url": "https://[::1]:19781"}, ("::1", 19781)),
        ({"webhook_url": "https://192.0.2.7:19781"}, ("0.0.0.0", 19781)),
        ({"webhook_url": "https://sluice.example.com"}, ("0.0.0.0", 9443)),
        ({"webhook_url": "https://127.0.0.1:19781", "webhook_address": ":9000"}, ("0.0.0.0", 9000)),
        ({}, ("0.0.0.0", 9443)),
    ],
)
def test_webhooks_listen_where_the_url_leads(given, expected):
    assert webhook_listening(Settings.model_validate(given)) == expected


async def test_url_alone_gates_jobs(sandbox, tmp_path):
    flags = (f"--webhook-url=https://127.0.0.1:{free_port()}", f"--certificate-directory={tmp_path / 'certificates'}")
    async with serving(tmp_path, f"sqlite:///{tmp_path / 'sluice.db'}", *flags) as replica:
        await replica.until_ready()
        created = await sandbox.local("alice").create("jobs", "default", job("first"))
    assert created["spec"]["suspend"] is True


async def test_webhooks_that_do_not_answer_where_they_are_registered_are_reported(sandbox, tmp_path):
    """In log, probe, report and audit, without making the replica unready."""
    url = f"https://127.0.0.1:{free_port()}"
    port = free_port()
    flags = (
        f"--webhook-url={url}",
        f"--webhook-address=127.0.0.1:{free_port()}",
        f"--certificate-directory={tmp_path / 'certificates'}",
    )
    async with serving(tmp_path, f"sqlite:///{tmp_path / 'sluice.db'}", *flags, port=port) as replica:
        await replica.until_ready()
        while "[!]webhook-address: " not in (await replica.get("/readyz?verbose"))[1]:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        assert (await replica.get("/readyz"))[0] == 200
        _, report = await replica.get("/apis/sluice.dev/v1/reports/attention")
        fault = json.loads(report)["webhookFault"]
        assert f"registered at {url}/mutate" in fault
        assert "nothing answers there" in fault
        assert fault in replica.log.decode()
        audit = await sluice("audit", SLUICE_SERVER=f"http://127.0.0.1:{port}", SLUICE_TOKEN=TOKEN)
        output, _ = await audit.communicate()
        assert audit.returncode == 1
        assert fault in output.decode()


async def test_certificate_of_something_else_is_named(sandbox, tmp_path):
    async with Sandbox() as other:
        flags = (
            f"--webhook-url={other.url}",
            f"--webhook-address=127.0.0.1:{free_port()}",
            f"--certificate-directory={tmp_path / 'certificates'}",
        )
        async with serving(tmp_path, f"sqlite:///{tmp_path / 'sluice.db'}", *flags) as replica:
            await replica.until_ready()
            text = ""
            while "[!]webhook-address: " not in text:
                await asyncio.sleep(0.05)
                text = (await replica.get("/readyz?verbose"))[1]
    assert "the certificate there does not fit" in text
