"""The gate without `sluice serve`, as a Deployment of its own runs it: `sluice webhook`."""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime, timedelta

import aiohttp
import pytest
from gate_callers import Caller, alone
from ports import free_port
from serve_processes import sluice

from webhooks.certificates import Certificates


async def test_it_says_what_is_wrong_with_the_kinds_in_its_file(tmp_path):
    (tmp_path / "sluice.yaml").write_text("integrations: {frameworks: [jobset]}\n")
    process = await sluice("webhook", "--username=sluice", f"--config={tmp_path / 'sluice.yaml'}")
    _, errors = await process.communicate()
    assert process.returncode == 1
    assert f"error: integrations in {tmp_path / 'sluice.yaml'}: " in errors.decode()
    assert '"jobset" is no kind that Sluice knows' in errors.decode()


async def test_it_waits_for_its_certificate_and_follows_it(tmp_path):
    now = datetime.now(UTC)
    folder, port = tmp_path / "certificates", free_port()
    caller = Caller(port, folder)
    async with alone(folder, port) as process:
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


async def test_it_tells_of_a_certificate_that_has_expired(tmp_path):
    """The API server refuses Jobs then, and no connection gets as far as a request, which might be logged."""
    port = free_port()
    old = datetime.now(UTC) - timedelta(days=365)
    Certificates(tmp_path, ["127.0.0.1"], now=lambda: old).renew()
    metric = "sluice_webhook_certificate_end_timestamp_seconds"
    async with alone(tmp_path, port) as process:
        said = (await until_said(process, b"has expired")).decode()
        assert f"({old + timedelta(days=90):%Y-%m-%d %H:%M:%S} UTC)" in said
        status, text = await unchecked(port, "/readyz")
        assert (status, text.splitlines()[1].partition(" (")[0]) == (
            503,
            "[-]certificate failed: the certificate of the webhook has expired",
        )
        assert (await unchecked(port, "/livez"))[0] == 200
        Certificates(tmp_path, ["127.0.0.1"], now=lambda: datetime.now(UTC)).renew()
        while (await unchecked(port, "/readyz"))[0] != 200:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        _, text = await unchecked(port, "/metrics")
        (ends,) = (float(line.split()[1]) for line in text.splitlines() if line.startswith(f"{metric} "))
        assert ends == pytest.approx((datetime.now(UTC) + timedelta(days=90)).timestamp(), abs=3600)


async def unchecked(port: int, path: str) -> tuple[int, str]:
    """As probes ask, which look at no certificate."""
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"https://127.0.0.1:{port}{path}", ssl=False) as answer,
    ):
        return answer.status, await answer.text()


async def test_asked_to_end_it_answers_until_the_cluster_knows(tmp_path):
    """New connections, too: nodes send Jobs there until they know that the pod is going."""
    Certificates(tmp_path, ["127.0.0.1"], now=lambda: datetime.now(UTC)).renew()
    port = free_port()
    caller = Caller(port, tmp_path)
    async with alone(tmp_path, port) as process:
        assert await caller.until_answered() is not None
        assert not await caller.closes()
        process.terminate()
        assert b"answers for another 5 s" in await until_said(process, b"shutting down")
        answers = 0
        while (response := await caller.review()) is not None:
            assert response["allowed"] is True
            answers += 1
            if answers == 1:
                assert await caller.closes(), "who keeps a connection must look for another one"
            await asyncio.sleep(0.05)  # each answer is a new connection
        assert answers > 1
        assert await process.wait() == 0


async def until_said(process, text: bytes) -> bytes:
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
async def test_it_says_what_it_cannot_do(arguments, sentence):
    process = await sluice("webhook", *arguments)
    _, errors = await process.communicate()
    assert process.returncode != 0
    assert sentence in errors.decode()
    assert "Traceback" not in errors.decode()
