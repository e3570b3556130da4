"""Process with the toy kind in all lists; uses it by API, command line and client, and prints the results as JSON.

Started with the URL of an empty database. The lists are the only places where a kind is named.
"""

from __future__ import annotations

import asyncio
import functools
import json
import sys

# The three lines that a kind takes. They come before the other imports, as if they were in those files.
import admission.model.kind_names
import admission.model.queues
from tests.api.toy_kind.model import NAMES, Allowance

admission.model.kind_names.KINDS += (NAMES,)
admission.model.queues.QUEUE_OBJECTS += (Allowance,)
admission.model.queues.MODELS[Allowance.kind] = Allowance  # which that file derives from its list
from admission.api.kinds import all_kinds  # noqa: E402
from tests.api.toy_kind.descriptor import ALLOWANCE  # noqa: E402

all_kinds.KINDS = {**all_kinds.KINDS, Allowance.kind: ALLOWANCE}

import aiohttp  # noqa: E402
from click.testing import CliRunner  # noqa: E402

from admission.api.application import create_app, listening  # noqa: E402
from admission.cli.main import main  # noqa: E402
from admission.client import Sluice  # noqa: E402
from admission.store.store import Store  # noqa: E402

TOKEN = "a-token"
PREFIX = "/apis/sluice.dev/v1"
MANIFESTS = """
{apiVersion: sluice.dev/v1, kind: Allowance, metadata: {name: gpus}, spec: {clusterQueue: team-a, gpuHours: 100}}
---
{apiVersion: sluice.dev/v1, kind: Allowance, metadata: {name: more}, spec: {clusterQueue: team-b, gpuHours: 7}}
---
{apiVersion: sluice.dev/v1, kind: ClusterQueue, metadata: {name: team-a}}
"""


class Session:
    def __init__(self, url: str, http: aiohttp.ClientSession) -> None:
        self._url = url
        self._http = http
        self._environment = {"SLUICE_SERVER": url, "SLUICE_ADMIN_TOKEN": TOKEN}

    async def api(self, path: str, method: str = "GET", **options: object) -> dict[str, object]:
        async with self._http.request(method, f"{self._url}{path}", **options) as response:  # type: ignore[arg-type]
            return {"status": response.status, "body": await response.json()}

    async def command(self, *arguments: str, stdin: str = "", **environment: str) -> dict[str, object]:
        runner = CliRunner(env=self._environment | environment)
        done = await asyncio.to_thread(runner.invoke, main, arguments, input=stdin)
        return {"exit_code": done.exit_code, "stdout": done.stdout, "stderr": done.stderr}

    async def complete(self, words: str) -> str:
        environment = {
            "_SLUICE_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(words.count(" ")),
        }
        runner = CliRunner(env=self._environment | environment)
        invoke = functools.partial(runner.invoke, main, prog_name="sluice", complete_var="_SLUICE_COMPLETE")
        return (await asyncio.to_thread(invoke)).stdout


async def collect_results(session: Session, url: str) -> dict[str, object]:
    found: dict[str, object] = {
        "applied": await session.command("apply", "-f", "-", stdin=MANIFESTS),
        "table": await session.command("get", "alw"),
        "yaml": await session.command("get", "allowance", "gpus", "-o", "json"),
        "selected": await session.api(f"{PREFIX}/allowances?fieldSelector=spec.clusterQueue%3Dteam-b"),
        "refused": await session.api(f"{PREFIX}/clusterqueues/team-a", "DELETE"),
        "invalid": await session.command("apply", "-f", "-", stdin=MANIFESTS.replace("100", "-1")),
        "discovery": await session.api(PREFIX),
        "openapi": await session.api("/openapi/v3/apis/sluice.dev/v1"),
        "history": await session.api(f"{PREFIX}/allowances/gpus/history"),
        "completed": await session.complete("sluice get allow"),
    }
    async with Sluice(url, token=TOKEN) as sluice:
        found["client"] = [allowance.spec.gpu_hours async for allowance in sluice.collection(Allowance).list()]
        version = found["selected"]["body"]["metadata"]["resourceVersion"]  # type: ignore[index]
    changed = MANIFESTS.replace("100", "90")
    watch = f"{url}{PREFIX}/allowances?watch=true&resourceVersion={version}"
    async with session._http.get(watch) as events:
        await session.command("apply", "-f", "-", stdin=changed)
        found["watched"] = json.loads(await events.content.readline())
    return found


async def run(database_url: str) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with Store.open(database_url) as store:
        app = create_app(store, token=TOKEN, checks={"database": store.health})
        async with listening(app, "127.0.0.1", 0) as url, aiohttp.ClientSession(headers=headers) as http:
            print(json.dumps(await collect_results(Session(url, http), url)))


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1]))
