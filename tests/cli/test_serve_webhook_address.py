"""`sluice serve` and the address of its webhooks: where they listen, and what it says if nothing answers there."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from ports import free_port
from serve_processes import TOKEN, job, serving, sluice

from admission.cli.configuration.settings import Settings
from admission.cli.serve.webhook_service import CONFIRM, PERIOD, RECHECK, SERVICE_DELAY, WebhookCheck, webhook_listening
from admission.kinds import all_kinds
from admission.sandbox.sandbox import Sandbox
from admission.serving.listener import open_sockets
from admission.serving.tls import ReloadingContext
from webhooks.certificates import Certificates
from webhooks.review import Reviewer
from webhooks.server import answering


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"webhook_url": "https://127.0.0.1:19781"}, ("127.0.0.1", 19781)),
        ({"webhook_url": "https://localhost:19781"}, ("localhost", 19781)),
        ({"webhook_url": "https://[::1]:19781"}, ("::1", 19781)),
        ({"webhook_url": "https://127.0.0.2:19781"}, ("127.0.0.2", 19781)),
        ({"webhook_url": "https://192.0.2.7:19781"}, ("0.0.0.0", 19781)),
        ({"webhook_url": "https://[2001:db8::7]:19781"}, ("::", 19781)),
        ({"webhook_url": "https://sluice.example.com"}, ("0.0.0.0", 9443)),
        ({"webhook_url": "https://127.0.0.1:19781", "webhook_address": ":9000"}, ("0.0.0.0", 9000)),
        ({}, ("127.0.0.1", 9443)),
        ({"webhook_address": ":9443"}, ("0.0.0.0", 9443)),
    ],
)
def test_webhooks_listen_where_the_url_leads(monkeypatch, given, expected):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert webhook_listening(Settings.model_validate(given)) == expected


def test_webhooks_in_a_pod_listen_for_their_service(monkeypatch):
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "192.0.2.1")
    assert webhook_listening(Settings.model_validate({})) == ("0.0.0.0", 9443)


class Rounds:
    """Stands for time: a check that sleeps waits for the next call of `until_asleep`."""

    def __init__(self) -> None:
        self._asleep: asyncio.Queue[float] = asyncio.Queue()
        self._awake: asyncio.Queue[None] = asyncio.Queue()
        self._is_asleep = False

    async def sleep(self, seconds: float) -> None:
        self._asleep.put_nowait(seconds)
        await self._awake.get()

    async def until_asleep(self) -> float:
        """Wake the check if it sleeps; return for how long it sleeps next (s)."""
        if self._is_asleep:
            self._awake.put_nowait(None)
        self._is_asleep = True
        return await self._asleep.get()


@pytest.fixture
async def check() -> AsyncIterator[Callable[[dict[str, Any]], tuple[WebhookCheck, Rounds]]]:
    """Function that starts the check of webhooks which are registered with a clientConfig."""
    async with asyncio.TaskGroup() as tasks:
        running = []

        def start(config: dict[str, Any]) -> tuple[WebhookCheck, Rounds]:
            async def registered() -> dict[str, Any]:
                return config

            found, rounds = WebhookCheck(registered), Rounds()
            running.append(tasks.create_task(found.run(sleep=rounds.sleep)))
            return found, rounds

        yield start
        for each in running:
            each.cancel()


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    found = Certificates(tmp_path / "hook", ["127.0.0.1", "hook.sluice.svc"], now=lambda: datetime.now(UTC))
    found.renew()
    return found


@asynccontextmanager
async def answering_at(port: int, folder: Path) -> AsyncIterator[None]:
    """Serve the webhooks on this port of 127.0.0.1."""
    context = ReloadingContext(folder / "hook" / "tls.crt", folder / "hook" / "tls.key")
    sockets = await open_sockets("127.0.0.1", port)
    async with answering(Reviewer(all_kinds(), own_usernames=["sluice"]), sockets, ssl_context=context):
        yield


async def test_fault_is_gone_soon_after_the_address_answers(check, certificates, tmp_path, caplog):
    caplog.set_level("INFO")
    port, bundle = free_port(), b64encode(certificates.ca_bundle).decode()
    found, rounds = check({"url": f"https://127.0.0.1:{port}/mutate", "caBundle": bundle})
    assert await rounds.until_asleep() == CONFIRM
    assert found.fault == "", "it may be a restart of the gate"
    assert await rounds.until_asleep() == RECHECK
    assert f"at https://127.0.0.1:{port}/mutate, but nothing answers there (Connection refused)" in found.fault
    assert "check webhookUrl and webhookAddress" in found.fault
    async with answering_at(port, tmp_path):
        assert await rounds.until_asleep() == PERIOD
        assert found.fault == ""
    assert "answer at their registered address again" in caplog.text


async def test_service_of_the_webhooks_is_checked_when_this_pod_may_be_ready(
    check, certificates, tmp_path, monkeypatch
):
    """The name of the Service is resolved as in a pod."""
    port, bundle = free_port(), b64encode(certificates.ca_bundle).decode()
    loop = asyncio.get_running_loop()
    own = loop.getaddrinfo

    async def getaddrinfo(host: str, *more: Any, **options: Any) -> Any:
        return await own("127.0.0.1" if host == "hook.sluice.svc" else host, *more, **options)

    monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo)
    service = {"namespace": "sluice", "name": "hook", "port": port, "path": "/mutate"}
    found, rounds = check({"service": service, "caBundle": bundle})
    assert await rounds.until_asleep() == SERVICE_DELAY
    assert await rounds.until_asleep() == CONFIRM
    assert await rounds.until_asleep() == RECHECK
    assert f"registered at https://hook.sluice.svc:{port}/mutate, but nothing answers there" in found.fault
    assert "check the Service sluice/hook and network policies" in found.fault
    async with answering_at(port, tmp_path):
        assert await rounds.until_asleep() == PERIOD
        assert found.fault == ""


async def test_service_that_cannot_be_resolved_here_is_no_fault(check, certificates, caplog):
    caplog.set_level("INFO")
    bundle = b64encode(certificates.ca_bundle).decode()
    found, rounds = check({"service": {"namespace": "sluice", "name": "hook"}, "caBundle": bundle})
    for expected in (SERVICE_DELAY, PERIOD, PERIOD):
        assert await rounds.until_asleep() == expected
        assert found.fault == ""
    assert caplog.text.count("cannot be checked from here: the name is not resolved") == 1


@pytest.mark.long
async def test_url_alone_gates_jobs(sandbox, tmp_path):
    flags = (f"--webhook-url=https://127.0.0.1:{free_port()}", f"--certificate-directory={tmp_path / 'certificates'}")
    async with serving(tmp_path, f"sqlite:///{tmp_path / 'sluice.db'}", *flags) as replica:
        await replica.until_ready()
        created = await sandbox.local("alice").create("jobs", "default", job("first"))
    assert created["spec"]["suspend"] is True


@pytest.mark.costly
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


@pytest.mark.long
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
