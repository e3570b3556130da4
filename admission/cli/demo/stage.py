"""Start of a sandbox and of Sluice as child processes, with the commands that a user would run."""

from __future__ import annotations

import asyncio
import secrets
import ssl
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import yaml

from admission.cli.demo.children import ChildProcess, end, free_port, guarded, sluice
from admission.cli.errors import DemoError
from admission.cluster.client import Client
from admission.model.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping
    from pathlib import Path

SLUICE_USER: Final = "sluice"
"""User name of Sluice in the sandbox, by which its requests are distinguished from those of the demo."""
_WRITES: Final = ("POST", "PUT", "PATCH", "DELETE")
_STARTING: Final = 60.0
"""Seconds that the sandbox has to answer its first request."""
_POLL: Final = 0.05
"""Seconds between checks whether a process is ready."""


@dataclass(frozen=True, slots=True)
class DemoCluster:
    """A running `sluice sandbox`; `kubeconfig` is that of an administrator."""

    kubeconfig: Path
    sluice_kubeconfig: Path
    child: ChildProcess

    @property
    def token(self) -> str:
        """The administrator's token: that of the user who submits the Jobs."""
        return str(yaml.safe_load(self.kubeconfig.read_text())["users"][0]["user"]["token"])


@dataclass(frozen=True, slots=True)
class DemoSluice:
    """A running `sluice serve`, with the address and credentials of its API."""

    server: str
    token: str
    ca: Path
    child: ChildProcess

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment variables with which other `sluice` commands reach it."""
        return {"SLUICE_SERVER": self.server, "SLUICE_ADMIN_TOKEN": self.token, "SLUICE_CA": str(self.ca)}

    async def statistics(self) -> dict[str, Any]:
        """Return its statistics since its start. Raises DemoError if it does not answer."""
        headers = {"Authorization": f"Bearer {self.token}"}
        try:
            async with (
                aiohttp.ClientSession(headers=headers, timeout=aiohttp.ClientTimeout(total=10)) as session,
                session.get(
                    f"{self.server}/debug/statistics",
                    raise_for_status=True,
                    ssl=ssl.create_default_context(cafile=str(self.ca)),
                ) as response,
            ):
                answer: dict[str, Any] = await response.json()
                return answer
        except (aiohttp.ClientError, TimeoutError) as error:
            raise DemoError(f"Sluice at {self.server} did not return its statistics: {error!r}") from error


@asynccontextmanager
async def running_sandbox(
    directory: Path, *, speed: float, controllers: bool = True, kinds: Iterable[str] = ()
) -> AsyncIterator[DemoCluster]:
    """Run a sandbox without nodes for the duration of the block.

    `kinds` are the custom resources that it serves, each with a simulated operator. Raises ChildDied if the process
    exits before the end of the block.
    """
    async with running_sandboxes([directory], speed=speed, controllers=controllers, kinds=kinds) as clusters:
        yield clusters[0]


@asynccontextmanager
async def running_sandboxes(
    directories: Iterable[Path], *, speed: float, controllers: bool = True, kinds: Iterable[str] = ()
) -> AsyncIterator[list[DemoCluster]]:
    """Run a sandbox in each directory as `running_sandbox` does; they start and end at the same time."""
    options = ["--speed", f"{speed:g}", "--nodes", "0"]
    for kind in kinds:
        options += ["--kind", kind]
    if not controllers:
        options.append("--no-controllers")
    async with AsyncExitStack() as stack:
        clusters = []
        for directory in directories:
            folder, log = directory / "sandbox", directory / "sandbox.log"
            running = sluice("the sandbox", "sandbox", "--directory", str(folder), *options, log=log, environment={})
            child = await stack.enter_async_context(running)
            clusters.append(DemoCluster(folder / "kubeconfig", folder / "sluice.kubeconfig", child))
        async with AsyncExitStack() as guards:
            for cluster in clusters:
                await guards.enter_async_context(guarded(cluster.child))
            for cluster in clusters:
                await _until_answering(cluster.sluice_kubeconfig)
            yield clusters
        await asyncio.gather(*(end(cluster.child.process) for cluster in clusters))


@asynccontextmanager
async def running_sluice(
    directory: Path,
    kubeconfig: Path,
    *,
    settings: Mapping[str, Any] | None = None,
    credentials: Path | None = None,
) -> AsyncIterator[DemoSluice]:
    """Run `sluice serve` for a cluster, with a SQLite database in `directory`, for the duration of the block.

    It may not be ready yet, and the block is not cancelled if it exits (see `guarded`). A second run with the same
    directory uses the same database. `credentials`: directory of the kubeconfigs of further clusters.
    """
    api, webhook, token = free_port(), free_port(), secrets.token_urlsafe(24)
    configuration = directory / "sluice.yaml"
    configuration.write_text(yaml.safe_dump(dict(settings or {})))
    arguments = (
        *("serve", "--config", str(configuration), "--kubeconfig", str(kubeconfig)),
        *(() if credentials is None else ("--cluster-credentials", str(credentials))),
        *("--database-url", f"sqlite:///{directory / 'sluice.db'}"),
        *("--apiservice-url", f"https://localhost:{api}"),
        *("--webhook-address", f"127.0.0.1:{webhook}", "--webhook-url", f"https://127.0.0.1:{webhook}"),
        *("--certificate-directory", str(directory / "certificates")),
    )
    environment = {"SLUICE_ADMIN_TOKEN": token}
    async with sluice("Sluice", *arguments, log=directory / "serve.log", environment=environment) as child:
        ca = directory / "certificates" / "ca.crt"
        await _until_written(ca, child)
        yield DemoSluice(f"https://127.0.0.1:{api}", token, ca, child)


async def apply(directory: Path, serving: DemoSluice, documents: list[dict[str, Any]]) -> None:
    """Run `sluice apply`, which waits until Sluice is ready. Raises DemoError, with its output, if it fails."""
    manifests = directory / "queues.yaml"
    manifests.write_text(yaml.safe_dump_all(documents, sort_keys=False))
    log, environment = directory / "apply.log", serving.environment
    async with sluice("sluice apply", "apply", "-f", str(manifests), log=log, environment=environment) as child:
        if await child.process.wait():
            raise DemoError(f"the queues could not be set up:\n{child.tail()}")


async def sluice_writes(client: Client) -> Counter[tuple[str, str]]:
    """Return the number of Sluice's writes to the sandbox so far, by HTTP method and resource, as the sandbox counts.

    Without Leases, which are renewed whether or not there are Jobs.
    """
    counted = await client.get("/sandbox/requests")
    writes = Counter[tuple[str, str]]()
    for request in counted["requests"]:
        if request["user"] == SLUICE_USER and request["method"] in _WRITES and request["resource"] != "leases":
            writes[request["method"], request["resource"]] += request["count"]
    return writes


async def _until_written(file: Path, child: ChildProcess) -> None:
    """Wait until `child` has written `file`, or has exited without, which the caller detects elsewhere."""
    while child.process.returncode is None:
        if await asyncio.to_thread(file.exists):
            return
        await asyncio.sleep(_POLL)


async def _until_answering(kubeconfig: Path) -> None:
    """Wait until the API server of `kubeconfig` answers; the file may not exist yet. Raises DemoError on timeout."""
    deadline = asyncio.get_running_loop().time() + _STARTING
    while True:
        try:
            async with Client.from_kubeconfig(str(kubeconfig)) as client:
                await client.get("/api/v1/namespaces", params={"limit": "1"})
                return
        except ClusterError as error:
            if asyncio.get_running_loop().time() >= deadline:
                raise DemoError(f"the sandbox did not answer within {_STARTING:g} s: {error}") from error
        await asyncio.sleep(_POLL)
