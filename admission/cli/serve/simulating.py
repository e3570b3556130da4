"""Child processes of `sluice serve` that simulate: they read the database and write nothing.

Each reads lines of JSON from its standard input, first the configuration, and writes lines of JSON. Separate processes,
and thus separate interpreters, so that simulations do not delay decisions.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter
    from asyncio.subprocess import Process

    from admission.cli.configuration.settings import Settings


class Simulating(NamedTuple):
    """A running process."""

    process: Process
    requests: StreamWriter
    answers: StreamReader

    async def ask(self, request: Any) -> None:
        """Write a line."""
        self.requests.write(orjson.dumps(request) + b"\n")
        await self.requests.drain()

    async def end(self) -> None:
        """End the process: it has no state that could be lost."""
        with suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()


async def simulating(module: str, settings: Settings, *, limit: int) -> Simulating:
    """Start the process of a module, and write its configuration. `limit`: maximum bytes of a line that it writes.

    The configuration, in which the password of the database may be, is not among its arguments, which `ps` would show,
    and its environment is without the settings.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-m",
        module,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={name: value for name, value in os.environ.items() if not name.startswith("SLUICE_")},
        start_new_session=True,  # Ctrl-C is handled by `serve`, which then ends this process
        limit=limit,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    policies = {"fair_sharing", "admission_fair_sharing", "resources"}
    policy = settings.model_dump(mode="json", include=policies, by_alias=True)
    configuration = {"databaseUrl": settings.database_url, "policy": policy}
    process.stdin.write(orjson.dumps(configuration) + b"\n")
    return Simulating(process, process.stdin, process.stdout)
