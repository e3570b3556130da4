"""The gate without `sluice serve`, as a Deployment of its own runs it: `sluice webhook`."""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime, timedelta

import aiohttp
import pytest
from gate_callers import Caller, standalone_gate
from ports import free_port
from serve_processes import sluice

from webhooks.certificates import Certificates


async def test_webhook_command_reports_an_invalid_kind_in_its_configuration(tmp_path):
    (tmp_path / "sluice.yaml").write_text("integrations: {frameworks: [jobset]}\n")
    process = await sluice("webhook", "--username=sluice", f"--config={tmp_path / 'sluice.yaml'}")
    _, errors = await process.communicate()
    assert process.returncode == 1
    assert f"error: integrations.frameworks[0] in {tmp_path / 'sluice.yaml'}: " in errors.decode()
    assert '"jobset" is no kind that Sluice knows; did you mean jobset.x-k8s.io/jobset?' in errors.decode()


@pytest.mark.costly
async def test_gate_waits_for_its_certificate_and_reloads_it_after_renewal(tmp_path):
    now = datetime.now(UTC)
    folder, port = tmp_path / "certificates", free_port()
    caller = Caller(port, folder)
    async with standalone_gate(folder, port) as process:
        assert process.stderr is not None
        assert b"cannot serve the webhooks yet" in await process.stderr.readline()
        Certificates(folder, ["127.0.0.1"], now=lambda: now).renew()
        response = await caller.until_answered("nobody-knows-which-there-are")
        assert (response["allowed"], "warnings" in response) == (True, False)
        shown = await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port))
        Certificates(folder, ["localhost", "127.0.0.1"], now=lambda: now).renew()
        while await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port)) == shown:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        assert (await caller.review())["allowed"] is True


@pytest.mark.costly
async def test_expired_certificate_is_logged_and_fails_readiness(tmp_path):
    """With an expired certificate the API server refuses Jobs, and sends no request that could be logged."""
    port = free_port()
    old = datetime.now(UTC) - timedelta(days=365)
    Certificates(tmp_path, ["127.0.0.1"], now=lambda: old).renew()
    metric = "sluice_webhook_certificate_end_timestamp_seconds"
    async with standalone_gate(tmp_path, port) as process:
        said = (await until_logged(process, b"has expired")).decode()
        assert f"({old + timedelta(days=90):%Y-%m-%d %H:%M:%S} UTC)" in said
        status, text = await get_unverified(port, "/readyz")
        assert (status, text.splitlines()[1].partition(" (")[0]) == (
            503,
            "[-]certificate failed: the certificate of the webhook has expired",
        )
        assert (await get_unverified(port, "/livez"))[0] == 200
        Certificates(tmp_path, ["127.0.0.1"], now=lambda: datetime.now(UTC)).renew()
        while (await get_unverified(port, "/readyz"))[0] != 200:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        _, text = await get_unverified(port, "/metrics")
        (ends,) = (float(line.split()[1]) for line in text.splitlines() if line.startswith(f"{metric} "))
        assert ends == pytest.approx((datetime.now(UTC) + timedelta(days=90)).timestamp(), abs=3600)


async def get_unverified(port: int, path: str) -> tuple[int, str]:
    """GET without verification of the certificate, as probes do."""
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"https://127.0.0.1:{port}{path}", ssl=False) as answer,
    ):
        return answer.status, await answer.text()


@pytest.mark.costly
async def test_terminated_gate_keeps_answering_for_a_grace_period(tmp_path):
    """New connections are answered, too: nodes send requests until they know that the pod is terminating."""
    Certificates(tmp_path, ["127.0.0.1"], now=lambda: datetime.now(UTC)).renew()
    port = free_port()
    caller = Caller(port, tmp_path)
    async with standalone_gate(tmp_path, port) as process:
        assert await caller.until_answered() is not None
        assert not await caller.closes()
        process.terminate()
        assert b"answers for another 5 s" in await until_logged(process, b"shutting down")
        answers = 0
        while (response := await caller.review()) is not None:
            assert response["allowed"] is True
            answers += 1
            if answers == 1:
                assert await caller.closes(), "who keeps a connection must look for another one"
            await asyncio.sleep(0.05)  # each answer is a new connection
        assert answers > 1
        assert await process.wait() == 0


async def until_logged(process, text: bytes) -> bytes:
    while text not in (line := await process.stderr.readline()):
        assert line, "it ended"
    return line


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--username=x", "--webhook-address=nowhere"], '--webhook-address: "nowhere" is not an address'),
        (["--username=x", "--webhook-address=192.0.2.1:9443"], "choose another --webhook-address"),
        ([], "Missing option '--username'"),
    ],
)
async def test_invalid_webhook_arguments_are_reported(arguments, sentence):
    process = await sluice("webhook", *arguments)
    _, errors = await process.communicate()
    assert process.returncode != 0
    assert sentence in errors.decode()
    assert "Traceback" not in errors.decode()
