"""A sandbox without controllers, its HTTP API as the administrator, and the real kubectl."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest

from admission.sandbox import Sandbox


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(controllers=False) as running:
        yield running


@pytest.fixture
async def http(sandbox: Sandbox) -> AsyncIterator[aiohttp.ClientSession]:
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cadata=sandbox.ca_pem))
    headers = {"Authorization": "Bearer admin-token"}
    async with aiohttp.ClientSession(sandbox.url, headers=headers, connector=connector) as session:
        yield session


@pytest.fixture
def kubectl(tmp_path: Path) -> Callable[..., Awaitable[str]]:
    """Return a function that runs the real kubectl as a user of a sandbox, and returns what it prints."""
    program = shutil.which("kubectl")
    if program is None:
        pytest.fail("kubectl is not in PATH; this test is about the real one", pytrace=False)

    async def run(sandbox: Sandbox, *arguments: str, user: str = "admin", codes: tuple[int, ...] = (0,)) -> str:
        sandbox.write_kubeconfig(tmp_path / user, user)
        process = await asyncio.create_subprocess_exec(
            program, "--kubeconfig", str(tmp_path / user), "--cache-dir", str(tmp_path / "cache"),
            *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        out, _ = await process.communicate()
        assert process.returncode in codes, out.decode()
        return out.decode()

    return run
