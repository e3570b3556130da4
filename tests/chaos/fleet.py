"""Several `sluice serve`, each started again when it ends, as a kubelet would; and what can be done to them."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import aiohttp

from admission.cli.demo.children import alongside, free_port
from tests.chaos.service import service
from tests.chaos.stepped import set_offset
from tests.forking import Forked

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from pathlib import Path

LEASE_SECONDS = 4.0
LEASE = (
    "--lease=default/sluice",
    f"--lease-duration={LEASE_SECONDS:g}",
    "--renew-deadline=3",
    "--retry-period=0.5",
)
_RESTART = 1.0
_PATIENCE = 90.0
"""Real seconds in which somebody has to lead, or a replica to do what it was told."""
_TAIL = 25


class Stuck(Exception):
    """What should have happened long ago has not."""


@dataclass
class Replica:
    """One of them, through all its lives."""

    name: str
    folder: Path
    url: str
    process: Forked | None = None
    doomed: bool = False
    """Its next end is ours."""

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.log"

    @property
    def clock(self) -> Path:
        return self.folder / f"{self.name}.clock"

    def send(self, number: signal.Signals) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.send_signal(number)

    async def kill(self) -> None:
        """Return when it is dead."""
        process = self.process
        if process is not None and process.returncode is None:
            self.doomed = True
            process.kill()
            await process.wait()

    def tail(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()
        # One line for each admission would leave no room for what the storm has done.
        return "\n".join([line for line in lines if "controller.work_log" not in line][-_TAIL:])


@dataclass
class Fleet:
    """Of one replica, or of several that elect their leader."""

    replicas: Sequence[Replica]
    session: aiohttp.ClientSession
    deaths: list[str] = field(default_factory=list)
    """Of those that ended by themselves, which none ever should, not even when it starts."""

    async def get(self, replica: Replica, path: str) -> tuple[int, str]:
        """Status and body; 0 while nobody answers."""
        with suppress(aiohttp.ClientError, TimeoutError):
            async with self.session.get(replica.url + path) as response:
                return response.status, await response.text()
        return 0, ""

    async def patch(self, replica: Replica, path: str, body: dict[str, Any]) -> int:
        """A merge patch; 0 if there was no answer."""
        headers = {"Content-Type": "application/merge-patch+json"}
        with suppress(aiohttp.ClientError, TimeoutError):
            async with self.session.patch(replica.url + path, json=body, headers=headers) as response:
                return response.status
        return 0

    async def leads(self, replica: Replica) -> bool:
        """Whether it says so itself."""
        return '"role": "leading' in (await self.get(replica, "/debug/statistics"))[1]

    async def is_followed(self, leader: Replica) -> bool:
        """Whether somebody else is ready to take over."""
        others = [replica for replica in self.replicas if replica is not leader]
        return 200 in [(await self.get(replica, "/readyz"))[0] for replica in others]

    async def told(self) -> str:
        """What each says of itself, for whoever has to find out."""
        lines = []
        for replica in self.replicas:
            for path in ("/readyz?verbose", "/debug/statistics"):
                status, body = await self.get(replica, path)
                lines.append(f"{replica.name} {path}: {status} {body}")
        return "\n".join(lines)

    async def leader(self, *, but: Replica | None = None) -> Replica:
        """Whoever leads, as soon as somebody does. Raises Stuck."""
        try:
            async with asyncio.timeout(_PATIENCE):
                while True:
                    for replica in self.replicas:
                        if replica is not but and await self.leads(replica):
                            return replica
                    await asyncio.sleep(0.05)
        except TimeoutError as error:
            logs = "\n".join(f"{replica.name}:\n{replica.tail()}" for replica in self.replicas)
            raise Stuck(f"nobody leads after {_PATIENCE:g} s\n{logs}") from error

    async def until_one_leads(self) -> None:
        """Return once exactly one says that it leads. Raises Stuck."""
        try:
            async with asyncio.timeout(_PATIENCE):
                while [await self.leads(replica) for replica in self.replicas].count(True) != 1:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
        except TimeoutError as error:
            raise Stuck(f"not one leads, but none or several:\n{await self.told()}") from error


@asynccontextmanager
async def running_fleet(
    folder: Path, kubeconfig: Path, database_url: str, *, count: int, settings: Mapping[str, Any] | None = None
) -> AsyncIterator[Fleet]:
    """`count` replicas on one database, webhooks included; one alone has no Lease. All are asked to end at the end."""
    configuration = folder / "sluice.yaml"
    configuration.write_text(json.dumps(dict(settings or {})))  # which is YAML, too
    token = secrets.token_urlsafe(16)
    replicas = [Replica(f"replica-{number}", folder, f"http://127.0.0.1:{free_port()}") for number in range(count)]
    arguments = [
        f"--config={configuration}",
        f"--kubeconfig={kubeconfig}",
        f"--database-url={database_url}",
        "--log-level=debug",
        "--certificate-secret=default/webhook",
        *(LEASE if count > 1 else ()),
    ]
    ports = [free_port() for _ in replicas]
    timeout = aiohttp.ClientTimeout(total=3)
    async with (
        service(ports) as address,
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}, timeout=timeout) as session,
    ):
        fleet = Fleet(replicas, session)
        async with AsyncExitStack() as stack:
            for replica, port in zip(replicas, ports, strict=True):
                set_offset(replica.clock, 0.0)
                own = (
                    f"--webhook-url=https://127.0.0.1:{address}",
                    f"--webhook-address=127.0.0.1:{port}",
                    f"--certificate-directory={folder / replica.name}",
                )
                await stack.enter_async_context(alongside(_keep(fleet, replica, [*arguments, *own], token)))
            yield fleet


async def _keep(fleet: Fleet, replica: Replica, arguments: Sequence[str], token: str) -> None:
    address = replica.url.removeprefix("http://")
    while True:
        process = await Forked.start(
            *("serve", f"--api-address={address}", *arguments),
            environment={"PATH": os.environ["PATH"], "SLUICE_ADMIN_TOKEN": token},
            log=replica.log,
            clock=replica.clock,
        )
        replica.process = process
        try:
            code = await process.wait()
        finally:
            await _end(replica)
        if not replica.doomed:
            fleet.deaths.append(f"{replica.name} ended with exit code {code}:\n{replica.tail()}")
            await asyncio.sleep(_RESTART)
        replica.doomed = False


async def _end(replica: Replica) -> None:
    """Orderly, or else by force, if it still runs."""
    process = replica.process
    if process is None or process.returncode is not None:
        return
    replica.send(signal.SIGCONT)
    replica.send(signal.SIGTERM)
    try:
        async with asyncio.timeout(10):
            await process.wait()
    except TimeoutError:
        replica.send(signal.SIGKILL)
        await process.wait()
