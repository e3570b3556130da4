"""`sluice logs --follow`: unfinished lines, and the end of a user's access meanwhile."""

from __future__ import annotations

import asyncio
import io
import sys
from typing import Any

import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer
from serve_processes import NODE, job
from serve_processes import sluice as sluice_process

from admission.cli.output.pod_logs import ClusterPods, LogOptions, PodLogs
from admission.cluster.client import Client
from admission.sandbox.sandbox import Sandbox


@pytest.mark.parametrize(
    ("resource", "verb", "code", "expected"),
    [
        ("jobs", "get", 401, "the credentials are missing, wrong or expired: log in again or renew the token"),
        ("pods", "list", 401, "the credentials are missing, wrong or expired: log in again or renew the token"),
        ("pods", "list", 403, "an injected fault"),
    ],
)
async def test_following_logs_ends_with_a_message_when_the_user_loses_access(tmp_path, resource, verb, code, expected):
    async with Sandbox() as sandbox:
        sandbox.write_kubeconfig(tmp_path / "admin", "admin")
        local = sandbox.local("admin")
        await local.create("nodes", "", {**NODE})
        await local.create("jobs", "default", job("long", seconds=1000))
        running = await sluice_process("logs", "job/long", "--follow", KUBECONFIG=str(tmp_path / "admin"))
        assert running.stdout is not None
        assert b"simulating a run" in await running.stdout.readline()
        match = {"verb": verb, "resource": resource, "user": "admin"}
        rule: dict[str, Any] = {"match": match, "do": "error", "code": code}
        sandbox.faults.install({"seed": 1, "rules": [rule]})
        _, err = await running.communicate()
        assert (running.returncode, err.count(b"\n")) == (1, 1), err.decode()
        assert err.startswith(b"error: ")
        assert err.decode().endswith(f"{expected}\n")


class Output(io.StringIO):
    """Standard output, with an event that is set by each write."""

    def __init__(self) -> None:
        super().__init__()
        self.written = asyncio.Event()

    def write(self, text: str) -> int:
        self.written.set()
        return super().write(text)


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        (["a"], "10 % \u2713\r20 %\nlast\n"),
        (["a", "b"], "[a] 10 % \u2713\r20 %\n[a] last\n[b] 10 % \u2713\r20 %\n[b] last\n"),
    ],
)
async def test_progress_bar_is_shown_before_its_line_ends(tmp_path, monkeypatch, pods, expected):
    output = Output()

    async def answer(request: web.Request) -> web.StreamResponse:
        if not request.path.endswith("/log"):
            spec = {"containers": [{"name": "main"}]}
            items = [
                {"metadata": {"name": name, "uid": name}, "spec": spec, "status": {"phase": "Running"}} for name in pods
            ]
            return web.json_response({"metadata": {}, "items": items})
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write("10 % \u2713".encode()[:-1])  # the rest of the character comes later
        if len(pods) == 1:
            await output.written.wait()
        await response.write("\u2713".encode()[-1:] + b"\r20 %\nlast")
        return response

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    async with TestServer(app) as server:
        content = {
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": str(server.make_url("/"))}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
        }
        (tmp_path / "kubeconfig").write_text(yaml.safe_dump(content))
        async with Client.from_kubeconfig(str(tmp_path / "kubeconfig")) as client:
            monkeypatch.setattr(sys, "stdout", output)
            assert await PodLogs(ClusterPods(client, "default", {}), LogOptions()).show() == len(pods)
    assert output.getvalue() == expected
