"""A kind that a user has described in the configuration, with the RBAC rules of `sluice kinds rbac`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from custom_kinds import pod, pods_of, served, until
from serve_processes import QUEUES, gate_flags, sandbox_with_rights, serving

from admission.cli.commands.kinds import kinds
from admission.kinds import all_kinds, parse_form
from admission.sandbox.sandbox import Sandbox
from tests.queue_objects import create_objects

FORM = {
    "group": "example.com",
    "kind": "TrainingRun",
    "plural": "trainingruns",
    "versions": ["v1"],
    "suspend": "spec.control.paused",
    "podSets": [{"path": "spec.roles[*]", "nameFrom": "role", "template": "template", "replicas": "count"}],
    "active": [{"path": "status.roles[*].active", "above": 0}],
    "ready": [{"condition": "Ready"}],
    "succeeded": [{"condition": "Succeeded"}],
    "failed": [{"condition": "Failed"}],
}
(KIND,) = all_kinds(frameworks=(), own=[parse_form(FORM)])


def run(name: str, *, cpu: str = "1", seconds: int = 1_000_000) -> dict[str, Any]:
    """An object without a gate, as users submit it: three pods."""
    roles = [{"role": "actor", "count": 2, "template": pod(cpu=cpu, seconds=seconds)}]
    roles += [{"role": "critic", "template": pod(cpu=cpu, seconds=seconds)}]
    return {
        "apiVersion": "example.com/v1",
        "kind": "TrainingRun",
        "metadata": {"name": name, "namespace": "default", "labels": {"sluice.dev/queue-name": "lq"}},
        "spec": {"roles": roles},
    }


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[Sandbox]:
    """A cluster in which Sluice has the published rights and those of `sluice kinds rbac`, and no others."""
    config = tmp_path / "sluice.yaml"
    config.write_text(yaml.safe_dump({"integrations": {"frameworks": ["batch/job"], "kinds": [FORM]}}))
    printed = CliRunner().invoke(kinds, ["rbac", "--config", str(config)], catch_exceptions=False).output
    async with sandbox_with_rights(tmp_path, *yaml.load_all(printed, yaml.CSafeLoader)) as opened:
        yield opened


@pytest.mark.costly
async def test_configured_kind_is_gated_started_kept_at_its_size_and_finished(
    sandbox: Sandbox, database_url: str, tmp_path: Path
):
    """The webhook gates it and records its user; it starts, keeps its size, and its quota passes to the next one."""
    flags = (f"--config={tmp_path / 'sluice.yaml'}", *gate_flags(tmp_path))
    await create_objects(database_url, QUEUES)
    alice, admin = sandbox.local("alice"), sandbox.local("admin")
    async with served(sandbox, KIND), serving(tmp_path, database_url, *flags) as replica:
        await replica.until("leading")
        first = await alice.create("trainingruns", "default", run("first"))
        assert first["spec"]["control"] == {"paused": True}
        assert first["metadata"]["annotations"] == {"sluice.dev/submitted-by": "alice"}
        ready = await until(admin, "trainingruns", "first", lambda obj: KIND.observe(obj).ready)
        second = await alice.create("trainingruns", "default", run("second", seconds=60))
        assert len(pods_of(admin, ready)) == 3
        # A user can neither start a waiting TrainingRun nor enlarge a running one.
        tried = await alice.patch("trainingruns", "default", "second", {"spec": {"control": {"paused": False}}})
        assert KIND.gate(tried) == []
        more = [{**ready["spec"]["roles"][0], "count": 4}, ready["spec"]["roles"][1]]
        larger = await alice.patch("trainingruns", "default", "first", {"spec": {"roles": more}})
        assert larger["spec"]["roles"][0]["count"] == 2
        await alice.delete("trainingruns", "default", "first", propagation="Background")
        done = await until(admin, "trainingruns", "second", lambda obj: KIND.observe(obj).finished is not None)
        assert done["metadata"]["uid"] == second["metadata"]["uid"]
    assert "orbidden" not in replica.log.decode()
