"""World of a game: a sandbox, `sluice serve` with webhooks as a process, three users with `edit` rights, an admin."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import ssl
import sys
import time
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp

from admission.sandbox.apiserver.requests import User
from admission.sandbox.auth.users import AUTHENTICATED
from admission.sandbox.sandbox import Sandbox
from tests.fuzz.findings import Finding
from tests.fuzz.kinds_served import SETTINGS, kinds_served
from tests.ports import free_port
from tests.sandbox_errors import recorded

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

Object = dict[str, Any]

_ROOT = Path(__file__).parents[2]
SPEED = 10.0
"""Speed of the sandbox's clock relative to real time."""
CALM = "carol"
"""Uninvolved user, whose Jobs have to start whatever the others do."""
NAMESPACES = {"alice": "team-a", "bob": "team-b", CALM: "calm"}
BOUNDLESS = "boundless"
"""Name of a LocalQueue of each user and of its ClusterQueue, whose quota is practically unlimited."""
MERGE = "application/merge-patch+json"
_API = "/apis/sluice.dev/v1"
_TOKEN = "the-admins"
_PATIENCE = 90.0
"""Real seconds within which a new process has to be ready."""
_TROUBLE = re.compile(r" (ERROR|CRITICAL) |^Traceback|^\w*Error: ", re.MULTILINE)


class World:
    """Cluster and Sluice process that the players act on. Times are seconds of `time.monotonic`."""

    def __init__(self, sandbox: Sandbox, folder: Path, database_url: str) -> None:
        self.sandbox = sandbox
        self.local = sandbox.local("admin")
        self.log = folder / "serve.log"
        self.down_until = 0.0
        """Until this time failed answers of the API server are no finding, because the webhook may be down."""
        self._folder = folder
        self._database_url = database_url
        self._process: asyncio.subprocess.Process | None = None
        self._api, self._webhook = free_port(), free_port()
        self._read = 0
        self._sessions: dict[str, aiohttp.ClientSession] = {}
        self._stack = AsyncExitStack()
        self._sandbox_errors = self._stack.enter_context(recorded())

    # ------------------------------------------------------------------ serve

    async def start(self) -> None:
        """Start `sluice serve` and wait until it is ready. Raises Finding."""
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "admission.cli.main", "serve"),
                f"--config={self._folder / 'sluice.yaml'}",
                f"--kubeconfig={self._folder / 'kubeconfig'}",
                f"--database-url={self._database_url}",
                f"--api-address=127.0.0.1:{self._api}",
                f"--webhook-url=https://127.0.0.1:{self._webhook}",
                f"--webhook-address=127.0.0.1:{self._webhook}",
                f"--certificate-directory={self._folder / 'certificates'}",
                # The gate's process does not import from the current folder.
                env={"PATH": os.environ["PATH"], "PYTHONPATH": str(_ROOT), "SLUICE_ADMIN_TOKEN": _TOKEN},
                stdout=log,
                stderr=log,
                process_group=0,
            )
        deadline = time.monotonic() + _PATIENCE
        answer = ""
        while time.monotonic() < deadline:
            self.check_alive()
            status, answer = await self.ask("GET", "/readyz")
            if status == 200:
                self.down_until = time.monotonic() + 0.5
                return
            await asyncio.sleep(0.05)
        raise Finding("serve is not ready again", f"after {_PATIENCE:g} s: {answer}\n{self.tail()}")

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Stop the process and wait for its end. Raises Finding if it does not end, or with an error."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        self.down_until = float("inf")
        process.send_signal(number)
        try:
            async with asyncio.timeout(_PATIENCE):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
            raise Finding("serve does not end", self.tail()) from None
        finally:
            self._process = None
        if number is signal.SIGTERM and process.returncode != 0:
            raise Finding("serve dies", f"exit code {process.returncode} after SIGTERM\n{self.tail()}")

    def check_alive(self) -> None:
        """Raise Finding if the process has ended by itself or logged an error: to survive an error is a defect too.

        The same holds for the sandbox.
        """
        if self._sandbox_errors:
            raise Finding("a controller of the sandbox fails", self._sandbox_errors[0])
        text = self.log.read_text(errors="replace")[self._read :] if self.log.exists() else ""
        if self._process is not None and self._process.returncode is not None:
            raise Finding("serve dies", f"exit code {self._process.returncode}\n{self.tail()}")
        if trouble := _TROUBLE.search(text):
            raise Finding("serve stumbles", text[text.rfind("\n", 0, trouble.start()) + 1 :][:8000])
        self._read += text.rfind("\n") + 1

    def tail(self, lines: int = 15) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:]) if self.log.exists() else ""

    async def tasks(self) -> str:
        """Return serve's dump of its tasks (SIGUSR1)."""
        if self._process is None:
            return "serve does not run"
        written = self.log.stat().st_size
        self._process.send_signal(signal.SIGUSR1)
        deadline = time.monotonic() + _PATIENCE
        while self.log.stat().st_size == written and time.monotonic() < deadline:  # noqa: ASYNC110  another process
            await asyncio.sleep(0.05)
        return self.log.read_bytes()[written:].decode(errors="replace")

    # ------------------------------------------------------------------ requests

    async def ask(self, method: str, path: str, body: Any = None, *, user: str = "") -> tuple[int, Any]:
        """Send a request to Sluice's API, as admin or as `user`; return status (0: no answer) and document."""
        token = self.sandbox.token(user) if user else _TOKEN
        content = MERGE if method == "PATCH" else "application/json"
        headers = {"Authorization": f"Bearer {token}", "Content-Type": content}
        data = None if body is None else json.dumps(body)
        try:
            async with self._session("api").request(
                method, f"http://127.0.0.1:{self._api}{path}", data=data, headers=headers
            ) as response:
                text = await response.text()
        except (aiohttp.ClientError, TimeoutError) as error:
            return 0, repr(error)
        with suppress(ValueError):
            return response.status, json.loads(text)
        return response.status, text

    async def queues(self, method: str, kind: str, name: str = "", body: Any = None, *, namespace: str = "") -> Any:
        """Send an admin's request about queue objects or workloads; None: an error status. Raises Finding."""
        where = f"/namespaces/{namespace}" if namespace else ""
        path = f"{_API}{where}/{kind}" + (f"/{name}" if name else "")
        status, document = await self.ask(method, path, body)
        self.check_answer(f"{method} {path}", status, document)
        if status in (400, 401, 403, 415, 422):
            raise AssertionError(f"{method} {path}: {document}")
        return document if status < 300 else None

    async def request(
        self, user: str, method: str, path: str, body: Any = None, *, content: str = "application/json"
    ) -> tuple[int, Any]:
        """Send a user's request to the API server; return status and document. Raises Finding for 500 and above."""
        sent_at = time.monotonic()
        data = None if body is None else json.dumps(body)
        headers = {"Authorization": f"Bearer {self.sandbox.token(user)}", "Content-Type": content}
        async with self._session(user).request(method, self.sandbox.url + path, data=data, headers=headers) as response:
            document = await response.json(content_type=None)
        if sent_at >= self.down_until:
            self.check_answer(f"{method} {path}", response.status, document)
        return response.status, document

    def check_answer(self, what: str, status: int, document: Any) -> None:
        """Raise Finding for an answer of 500 or above, or none."""
        if status >= 500 or status == 0:
            answer = document.get("message", document) if isinstance(document, dict) else document
            raise Finding("an answer of 500 or more", f"{what}: {status} {str(answer)[:600]}\n{self.tail(8)}")

    def _session(self, name: str) -> aiohttp.ClientSession:
        if name not in self._sessions:
            context = ssl.create_default_context(cadata=self.sandbox.ca_pem)
            connector = aiohttp.TCPConnector(ssl=context)
            self._sessions[name] = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=20))
        return self._sessions[name]

    async def close(self) -> None:
        for session in self._sessions.values():
            await session.close()
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        await self._stack.aclose()


@asynccontextmanager
async def a_world(folder: Path, database_url: str) -> AsyncIterator[World]:
    """Run a world during the block: nodes, namespaces, users and Sluice, without queues."""
    async with Sandbox(speed=SPEED) as sandbox, kinds_served(sandbox):
        sandbox.add_user(User(CALM, "7", (AUTHENTICATED,)))
        (folder / "sluice.yaml").write_text(json.dumps(SETTINGS))
        sandbox.write_kubeconfig(folder / "kubeconfig", "sluice")
        world = World(sandbox, folder, database_url)
        for pool in ("main", "spare"):
            await world.local.create("nodes", "", _node(pool))
        for user, namespace in NAMESPACES.items():
            await world.local.create("namespaces", "", {"metadata": {"name": namespace}})
            for role in ("edit", "edit-kinds"):
                await world.local.create("rolebindings", namespace, _binding(user, role))
        try:
            await world.start()
            yield world
        finally:
            await world.close()


def _node(pool: str) -> Object:
    amounts = {"cpu": "1000", "memory": "1000Gi", "pods": "10000", "nvidia.com/gpu": "1000"}
    return {
        "metadata": {
            "name": f"node-{pool}",
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {"sluice.test/pool": pool, "disk": "ssd"},
        },
        "status": {"allocatable": amounts, "capacity": amounts},
    }


def _binding(user: str, role: str) -> Object:
    return {
        "metadata": {"name": f"{user}-{role}"},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
    }
