"""The real kubectl against a sandbox whose API server finds Sluice by an APIService, all over TLS."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import pytest_asyncio
from ports import free_port

from admission.api.application import listening
from admission.api.resources.explaining_engine import NoController
from admission.api.resources.leader_view import NoLeader
from admission.api.resources.start_estimates import no_estimates
from admission.cli.configuration.settings import load_settings
from admission.cli.serve.aggregation import api_address, api_app, tls_endpoint
from admission.cli.serve.certificates import OwnCertificates
from admission.cluster.client import Client
from admission.sandbox.sandbox import Sandbox
from admission.store.store import Store
from tests.sqlite_store import sqlite_store

QUEUES = """
apiVersion: sluice.dev/v1
kind: ResourceFlavor
metadata: {name: default}
---
apiVersion: sluice.dev/v1
kind: Cohort
metadata: {name: research}
---
apiVersion: sluice.dev/v1
kind: ClusterQueue
metadata: {name: vision, labels: {team: a}}
spec:
  cohortName: research
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu]
    flavors:
    - {name: default, resources: [{name: cpu, nominalQuota: "4"}]}
---
apiVersion: sluice.dev/v1
kind: LocalQueue
metadata: {name: main, namespace: default}
spec: {clusterQueue: vision}
"""


@dataclass(frozen=True)
class Output:
    """Exit code, output and errors of a command."""

    code: int
    out: str
    err: str


@dataclass
class Kubectl:
    """kubectl, as one of the users of the cluster."""

    program: str
    folder: Path
    sandbox: Sandbox
    environment: dict[str, str] = field(default_factory=dict)

    async def __call__(self, *arguments: str, stdin: str = "", user: str = "admin", **environment: str) -> Output:
        """Run kubectl, and wait for its end."""
        process = await self.start(*arguments, user=user, **environment)
        out, err = await process.communicate(stdin.encode())
        assert process.returncode is not None
        return Output(process.returncode, out.decode(), err.decode())

    async def ok(self, *arguments: str, stdin: str = "", user: str = "admin", **environment: str) -> str:
        """Output of kubectl, which must succeed and print nothing on standard error."""
        said = await self(*arguments, stdin=stdin, user=user, **environment)
        assert (said.code, said.err) == (0, ""), said
        return said.out

    async def start(self, *arguments: str, user: str = "admin", **environment: str) -> asyncio.subprocess.Process:
        kubeconfig = self.folder / f"{user}.kubeconfig"
        if not kubeconfig.exists():
            self.sandbox.write_kubeconfig(kubeconfig, user)
        return await asyncio.create_subprocess_exec(
            self.program,
            *arguments,
            cwd=self.folder,
            env={
                "PATH": "/usr/bin:/bin",
                "HOME": str(self.folder),
                "KUBECONFIG": str(kubeconfig),
                "KUBECACHEDIR": str(self.folder / "cache"),
                **environment,
            },
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )


@pytest.fixture(scope="session")
def program() -> str:
    found = shutil.which("kubectl")
    if found is None:
        pytest.fail("kubectl is not in PATH; these tests are about the real one", pytrace=False)
    return found


@pytest.fixture
def database_kind() -> str:
    return "sqlite"


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[Store]:
    """Store with the real time, since kubectl computes ages with it."""
    async with Store.open(database_url) as opened:
        yield opened


@pytest.fixture
async def kubectl(program: str, store: Store, tmp_path: Path) -> AsyncIterator[Kubectl]:
    async with cluster(program, store, tmp_path) as run:
        yield run


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def shared_kubectl(
    program: str, sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Kubectl]:
    """Kubectl for all tests of a module that write nothing; their loop_scope must be "module", too."""
    folder = tmp_path_factory.mktemp("kubectl")
    async with sqlite_store(sqlite_template, folder) as store, cluster(program, store, folder) as run:
        yield run


@asynccontextmanager
async def cluster(program: str, store: Store, tmp_path: Path) -> AsyncIterator[Kubectl]:
    """Run the sandbox and the API on `store` for the duration of the block."""
    async with AsyncExitStack() as stack:
        sandbox = await stack.enter_async_context(Sandbox(controllers=False))
        sandbox.write_kubeconfig(tmp_path / "sluice.kubeconfig", "sluice")
        client = await stack.enter_async_context(Client.from_kubeconfig(str(tmp_path / "sluice.kubeconfig")))
        flags = {
            "apiservice_url": f"https://localhost:{free_port()}",
            "certificate_directory": tmp_path / "certificates",
        }
        settings = load_settings(flags)
        certificates = OwnCertificates(settings, client)
        await certificates.refresh()
        endpoint = await tls_endpoint(settings, client, certificates)
        assert endpoint is not None
        app = api_app(settings, store, client, NoController(), NoLeader(), endpoint, {}, no_estimates)
        host, port = api_address(settings)
        await stack.enter_async_context(listening(app, host, port, ssl_context=endpoint.context))
        await endpoint.register()
        run = Kubectl(program, tmp_path, sandbox)
        (tmp_path / "queues.yaml").write_text(QUEUES)
        await run.ok("wait", "--for=condition=Available", "apiservice/v1.sluice.dev", "--timeout=120s")
        yield run
