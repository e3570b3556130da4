"""Objects with a queue label of kinds that are not queued: Event, attention report, audit, and `sluice why`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from custom_kinds import definition, jobset, until
from kind_manifests import document
from ports import free_port
from serve_processes import NODE, QUEUES, TOKEN, serving, sluice

from admission.kinds import all_kinds
from admission.sandbox.sandbox import Sandbox
from tests.queue_objects import create_objects

(JOB_SET,) = all_kinds(frameworks=("jobset.x-k8s.io/jobset",))
SENTENCE = "JobSet default/train has a queue label, but JobSets are off: it runs without quota"
API = "/apis/sluice.dev/v1"


def job_set() -> dict[str, Any]:
    found: dict[str, Any] = document("jobset")
    found["metadata"] = {"name": "train", "namespace": "default", "labels": {"sluice.dev/queue-name": "lq"}}
    return found


async def _event(sandbox: Sandbox) -> dict[str, Any]:
    while True:
        for event in sandbox.local("admin").list("events", "default"):
            if event["reason"] == "NotQueued":
                return event
        await asyncio.sleep(0.05)


@pytest.mark.costly
async def test_object_of_a_kind_that_is_off_is_told_of_everywhere(tmp_path: Path, database_url: str):
    port = free_port()
    (tmp_path / "sluice.yaml").write_text("integrations: {exclude: [jobset.x-k8s.io/jobset]}\n")
    async with Sandbox() as sandbox:
        sandbox.write_kubeconfig(tmp_path / "kubeconfig", "sluice")
        alice = sandbox.local("alice")
        await sandbox.local("admin").create("customresourcedefinitions", "", definition(JOB_SET))
        await sandbox.local("admin").create("nodes", "", NODE)
        await create_objects(database_url, QUEUES)
        # Two of which Sluice has a record are not told of: they hold quota, or wait, until JobSets are on again.
        async with serving(tmp_path, database_url) as replica:
            await replica.until("leading")
            runs, waits = (
                {**made, "metadata": {**made["metadata"], "namespace": "default"}}
                for made in map(jobset, ("runs", "waits"))
            )
            await alice.create("jobsets", "default", runs)
            # Only now the other: of two that were created in one second, the lower uid is first.
            await until(alice, "jobsets", "runs", lambda obj: not obj["spec"]["suspend"])
            await alice.create("jobsets", "default", waits)
            while "jobset-waits" not in (await replica.get(f"{API}/namespaces/default/workloads"))[1]:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        await alice.create("jobsets", "default", job_set())
        async with serving(tmp_path, database_url, f"--config={tmp_path / 'sluice.yaml'}", port=port) as replica:
            await replica.until("leading")
            event = await _event(sandbox)
            regarding = event.get("regarding") or event["involvedObject"]
            assert (event["type"], event.get("note", event.get("message"))) == ("Warning", SENTENCE)
            assert (regarding["kind"], regarding["name"]) == ("JobSet", "train")
            _, text = await replica.get(f"{API}/reports/attention")
            assert json.loads(text)["notQueued"] == {
                "count": 1,
                "items": [{"kind": "JobSet", "namespace": "default", "name": "train", "message": SENTENCE}],
            }
            # On a slow machine the leader may just then take the API server for unreachable, and refuse an audit.
            while "items" not in (audit := json.loads((await replica.get(f"{API}/audits"))[1])):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            (item,) = (each for each in audit["items"] if each["problem"] == "NotQueued")
            assert (item["object"], item["left"]) == ("JobSet default/train", "true")
            for name in ("train", "jobset/train"):
                flags = ("-n", "default", f"--server={replica.url}")
                process = await sluice("why", name, *flags, SLUICE_TOKEN=TOKEN)
                _, errors = await process.communicate()
                assert (process.returncode, errors.decode()) == (1, f"error: {SENTENCE}\n")
