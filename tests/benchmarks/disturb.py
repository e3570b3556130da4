"""`python -m tests.benchmarks.disturb URL CA`: clients that make the API parse documents of the maximum size."""

from __future__ import annotations

import asyncio
import os
import ssl
import sys

import aiohttp

_CLIENTS = 4


async def main(url: str, authority: str) -> None:
    """Send documents from several clients, each one after the other, until the process is ended."""
    labels = "".join(f"    label-{number}: value\n" for number in range(140_000))
    document = f"apiVersion: sluice.dev/v1\nkind: Cohort\nmetadata:\n  name: large\n  labels:\n{labels}".encode()
    context = ssl.create_default_context(cafile=authority)
    token = os.environ["SLUICE_ADMIN_TOKEN"]
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/yaml"}

    async def disturb() -> None:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context), headers=headers) as session:
            while True:
                async with session.post(f"{url}/apis/sluice.dev/v1/cohorts", data=document) as response:
                    await response.read()

    async with asyncio.TaskGroup() as group:
        for _ in range(_CLIENTS):
            group.create_task(disturb())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
