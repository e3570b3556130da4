"""`sluice logs --follow` beside a sandbox, without a server: the end of a user's access meanwhile."""

from __future__ import annotations

from typing import Any

import pytest
from serve_processes import NODE, job
from serve_processes import sluice as sluice_process

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
