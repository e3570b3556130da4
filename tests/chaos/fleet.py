"""Several `sluice serve` processes, each restarted when it ends, as a kubelet would do."""

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
"""Real seconds within which one replica has to lead."""
_WRITTEN = 60.0
"""Real seconds within which a replica has to execute a write."""
_TAIL = 25


class Stuck(Exception):
    """An expected event did not happen within its time limit."""


@dataclass
class Replica:
    """One replica, across all restarts of its process."""

    name: str
    folder: Path
    url: str
    process: Forked | None = None
    expected_exit: bool = False
    """The test ends the process next; its end is not unexpected."""

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
        """Kill the process and wait for its end."""
        process = self.process
        if process is not None and process.returncode is None:
            self.expected_exit = True
            process.kill()
            await process.wait()

    def tail(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()
        # Without the lines about single admissions, which would displace those about the faults.
        return "\n".join([line for line in lines if "controller.work_log" not in line][-_TAIL:])


@dataclass
class Fleet:
    """One replica, or several that elect their leader."""

    replicas: Sequence[Replica]
    session: aiohttp.ClientSession
    unexpected_exits: list[str] = field(default_factory=list)
    """Descriptions of processes that ended by themselves, which must never happen, not even at a start."""

    async def get(self, replica: Replica, path: str) -> tuple[int, str]:
        """Return status and body of a GET; status 0: no answer."""
        with suppress(aiohttp.ClientError, TimeoutError):
            async with self.session.get(replica.url + path) as response:
                return response.status, await response.text()
        return 0, ""

    async def written(self, method: str, path: str, body: Mapping[str, Any] | None) -> None:
        """Write an object through the API, repeated until a replica does it. Raises Stuck if one refuses it."""
        try:
            async with asyncio.timeout(_WRITTEN):
                while not await self._was_written(method, path, body):  # noqa: ASYNC110
                    await asyncio.sleep(0.2)  # until a replica is up
        except TimeoutError as error:
            raise Stuck(f"no replica does {method} {path} within {_WRITTEN:g} s") from error

    async def _was_written(self, method: str, path: str, body: Mapping[str, Any] | None) -> bool:
        done = {"POST": 409, "DELETE": 404}  # by an earlier attempt, of which the answer was lost
        media = "application/merge-patch+json" if method == "PATCH" else "application/json"
        for replica in self.replicas:
            with suppress(aiohttp.ClientError, TimeoutError):
                data = None if body is None else json.dumps(dict(body))
                async with self.session.request(
                    method, replica.url + path, data=data, headers={"Content-Type": media}
                ) as response:
                    if response.status < 300 or response.status == done.get(method):
                        return True
                    if 400 <= response.status < 500 and response.status not in (409, 429):
                        raise Stuck(f"{replica.name} refuses {method} {path}: {await response.text()}")
        return False

    async def leads(self, replica: Replica) -> bool:
        """Return whether the replica reports itself as leading."""
        return '"role": "leading' in (await self.get(replica, "/debug/statistics"))[1]

    async def is_followed(self, leader: Replica) -> bool:
        """Return whether another replica is ready to take over."""
        others = [replica for replica in self.replicas if replica is not leader]
        return 200 in [(await self.get(replica, "/readyz"))[0] for replica in others]

    async def diagnostics(self) -> str:
        """Return readiness and statistics of all replicas, for failure messages."""
        lines = []
        for replica in self.replicas:
            for path in ("/readyz?verbose", "/debug/statistics"):
                status, body = await self.get(replica, path)
                lines.append(f"{replica.name} {path}: {status} {body}")
        return "\n".join(lines)

    async def leader(self, *, but: Replica | None = None) -> Replica:
        """Wait until a replica other than `but` leads, and return it. Raises Stuck."""
        try:
            async with asyncio.timeout(_PATIENCE):
                while True:
                    for replica in self.replicas:
                        if replica is not but and await self.leads(replica):
                            return replica
                    await asyncio.sleep(0.05)
        except TimeoutError as error:
            logs = "\n".join(f"{replica.name}:\n{replica.tail()}" for replica in self.replicas)
            raise Stuck(f"no replica leads after {_PATIENCE:g} s\n{logs}") from error

    async def until_one_leads(self) -> None:
        """Wait until exactly one replica reports itself as leading. Raises Stuck."""
        try:
            async with asyncio.timeout(_PATIENCE):
                while [await self.leads(replica) for replica in self.replicas].count(True) != 1:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
        except TimeoutError as error:
            raise Stuck(f"no replica leads, or several do:\n{await self.diagnostics()}") from error


@asynccontextmanager
async def running_fleet(
    folder: Path,
    kubeconfig: Path,
    database_url: str,
    *,
    count: int,
    settings: Mapping[str, Any] | None = None,
    options: Sequence[str] = (),
) -> AsyncIterator[Fleet]:
    """Run `count` replicas with webhooks on one database during the block; a single one has no Lease.

    At the end they get SIGTERM. `options`: further ones of `sluice serve`.
    """
    configuration = folder / "sluice.yaml"
    configuration.write_text(json.dumps(dict(settings or {})))  # JSON is YAML
    token = secrets.token_urlsafe(16)
    replicas = [Replica(f"replica-{number}", folder, f"http://127.0.0.1:{free_port()}") for number in range(count)]
    arguments = [
        f"--config={configuration}",
        f"--kubeconfig={kubeconfig}",
        f"--database-url={database_url}",
        "--log-level=debug",
        "--certificate-secret=default/webhook",
        *(LEASE if count > 1 else ()),
        *options,
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
                await stack.enter_async_context(alongside(_keep_running(fleet, replica, [*arguments, *own], token)))
            yield fleet


async def _keep_running(fleet: Fleet, replica: Replica, arguments: Sequence[str], token: str) -> None:
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
        if not replica.expected_exit:
            fleet.unexpected_exits.append(f"{replica.name} ended with exit code {code}:\n{replica.tail()}")
            await asyncio.sleep(_RESTART)
        replica.expected_exit = False


async def _end(replica: Replica) -> None:
    """End the process with SIGTERM, after ten seconds with SIGKILL, if it still runs."""
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
