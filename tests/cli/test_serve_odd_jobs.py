"""Jobs with odd values in many fields, against `sluice serve`: none stops another team's Job."""

from __future__ import annotations

import asyncio
import copy
import json
import signal
from typing import Any

import pytest
from ports import free_port
from serve_processes import NODE, job, serving

from admission.sandbox.apiserver.errors import ApiError
from admission.sandbox.sandbox import Sandbox
from tests.queue_objects import cluster_queue, create_objects, flavor, local_queue

Object = dict[str, Any]

ENDLESS = dict.fromkeys(("cpu", "memory", "example.com/gpu"), "9223372036854775807")
QUEUES = (
    flavor(),
    cluster_queue(),
    cluster_queue("others"),
    cluster_queue("endless", quotas={"default": ENDLESS}),
    local_queue(target="others"),
    local_queue(namespace="odd"),
    local_queue("endless", "odd", "endless"),
)

LONG = "x" * 100_000
ODD_TEXT = "nul \x00 bell \x07 escape \x1b[31m line\nline   right \u202e left \U0001f3f3\u200d\U0001f308 " + LONG
WIDE = "".join(chr(0x20000 + number * 7919 % 40_000) for number in range(5_000))
"""Text with four bytes a character, which databases hardly compress."""
QUANTITIES = (
    "1e30",
    "0.0000001n",
    "9223372036854775807",
    "9223372036854775808",
    "9000000000000000",
    "1e-30",
    "0",
    "1Ei",
)


def pods(spec: Object) -> Object:
    """Merge patch of a Job that sets fields of the pod spec."""
    return {"spec": {"template": {"spec": spec}}}


def container(**fields: Any) -> Object:
    return pods({"containers": [{"name": "main", "image": "pause", **fields}]})


ODDITIES: dict[str, Object] = {
    "parallelism": {"spec": {"parallelism": 2**31 - 1, "completions": 2**31 - 1}},
    "none": {"spec": {"parallelism": 0, "completions": 0}},
    "no-requests": container(resources={}),
    "null-requests": container(resources={"requests": {}, "limits": {}}),
    "negative": container(resources={"requests": {"cpu": "-1"}}),
    "more-than-limit": container(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}),
    "no-such-resource": container(resources={"requests": {"example.com/" + "r" * 60: "1"}}),
    "init": pods({"initContainers": [{"name": f"i{n}", "image": "p", "resources": {"requests": {"cpu": "1e18"}}}
                                     for n in range(20)]}),
    "sidecars": pods({"initContainers": [{"name": f"i{n}", "image": "p", "restartPolicy": "Always",
                                          "resources": {"requests": {"cpu": "9e15"}}} for n in range(20)]}),
    "pod-level": pods({"resources": {"requests": {"cpu": "1e17"}, "limits": {"cpu": "1e18", "memory": "1e30"}}}),
    "overhead": pods({"overhead": {"cpu": "1e18", "memory": "1"}}),
    "runtime-class": pods({"runtimeClassName": "nope"}),
    "priority-class": pods({"priorityClassName": "nope"}),
    "claims": pods({"resourceClaims": [{"name": "x", "resourceClaimName": "y"}]}),
    "environment": container(env=[{"name": f"V{n}", "value": "v" * 100} for n in range(3000)]),
    "selector": pods({"nodeSelector": {f"k{n}": "v" for n in range(500)}}),
    "tolerations": pods({"tolerations": [{"operator": "Exists"}, {"key": "a", "value": "", "tolerationSeconds": 2**62,
                                                                 "effect": "NoExecute"}]}),
    "affinity": pods({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["9" * 20]}]},
                              {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]}}}}),
    "deadline": {"spec": {"activeDeadlineSeconds": 2**62, "ttlSecondsAfterFinished": 2**31 - 1}},
    "backoff": {"spec": {"backoffLimit": 2**31 - 1}},
    "owner": {"metadata": {"ownerReferences": [{"apiVersion": "a/b", "kind": "K" * 200, "name": "n" * 200,
                                                "uid": "not-a-uid", "controller": True}]}},
    "core-owner": {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Job", "name": "n", "uid": "u"}]}},
    "finalizer": {"metadata": {"finalizers": ["example.com/" + "f" * 60]}},
    "annotations": {"metadata": {"annotations": {"note": ODD_TEXT, "example.com/ünï".encode().hex(): ODD_TEXT}}},
    "hold": {"metadata": {"annotations": {"sluice.dev/hold": ODD_TEXT}}},
    "least": {"metadata": {"annotations": {"sluice.dev/job-min-parallelism": ODD_TEXT}}},
    "least-digits": {"metadata": {"annotations": {"sluice.dev/job-min-parallelism": "9" * 5000}}},
    "follow": {"metadata": {"annotations": {"sluice.dev/job-completions-equal-parallelism": ODD_TEXT}}},
    "submitter": {"metadata": {"annotations": {"sluice.dev/submitted-by": ODD_TEXT}}},
    "group": {"spec": {"template": {"metadata": {"annotations": {"kueue.x-k8s.io/podset-group-name": ODD_TEXT}}}}},
    "template-text": {"spec": {"template": {"metadata": {"annotations": {"note": ODD_TEXT}}}}},
    "seconds": {"metadata": {"labels": {"sluice.dev/max-exec-time-seconds": "9" * 60}}},
    "seconds-most": {"metadata": {"labels": {"sluice.dev/max-exec-time-seconds": "999999999"}}},
    "queue-name": {"metadata": {"labels": {"sluice.dev/queue-name": "Not_A-Name"}}},
    "class": {"metadata": {"labels": {"sluice.dev/priority-class": "no_such"}}},
    "indexed": {"spec": {"completionMode": "Indexed", "parallelism": 2, "completions": 10**5}},
    "endless": {"metadata": {"labels": {"sluice.dev/queue-name": "endless"}}, "spec": {"parallelism": 2000,
                "completions": 2000, **container(resources={"requests": {"cpu": "9e15", "memory": "9e18"}})["spec"]}},
    **{f"quantity-{n}": container(resources={"requests": {"cpu": text}, "limits": {"cpu": text}})
       for n, text in enumerate(QUANTITIES)},
    **{f"endless-{n}": {"metadata": {"labels": {"sluice.dev/queue-name": "endless"}},
                        **container(resources={"requests": {"cpu": text, "memory": text}})}
       for n, text in enumerate(QUANTITIES)},
    "n" * 63: {},
    "a." * 100 + "b": {"metadata": {"annotations": {"sluice.dev/submitted-by": WIDE}}},
}  # fmt: skip
"""Fields that are merged into a valid Job, by the name of the Job."""


LIMITS: list[tuple[str, str, Object]] = [
    ("limitranges", "odd", {"metadata": {"name": "l"},
                            "spec": {"limits": [{"type": "Container", "max": {"cpu": "1m"}}]}}),
    ("priorityclasses", "", {"metadata": {"name": "nope"}, "value": -(2**31), "globalDefault": False}),
    ("runtimeclasses", "", {"metadata": {"name": "nope"}, "handler": "x",
                            "overhead": {"podFixed": {"cpu": "1e18", "memory": "1Ei"}}}),
]  # fmt: skip
"""Objects that are created while the odd Jobs wait, and deleted later."""


def merged(target: Object, patch: Object) -> Object:
    result = copy.deepcopy(target)
    for key, value in patch.items():
        nested = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], value) if nested else value
    return result


def odd_job(name: str) -> Object:
    given = job(name)
    given["metadata"] |= {"namespace": "odd", "labels": {"sluice.dev/queue-name": "lq"}}
    return merged(given, ODDITIES[name])


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def database_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def _prepare(sandbox: Sandbox, url: str) -> None:
    admin = sandbox.local("admin")
    await admin.create("nodes", "", NODE)
    await admin.create("namespaces", "", {"metadata": {"name": "odd"}})
    await create_objects(url, *QUEUES)


async def _complete_other_job(sandbox: Sandbox, name: str) -> None:
    """Create a Job of another team, and wait until it is complete."""
    bob = sandbox.local("bob")
    await bob.create("jobs", "default", job(name, seconds=1))
    watcher = bob.watch("jobs")
    async for batch in watcher:
        for _, _, obj, _ in batch:
            ended = any(c["type"] == "Complete" for c in obj.get("status", {}).get("conditions", ()))
            if obj["metadata"]["name"] == name and ended:
                watcher.close()


async def _submit_all(sandbox: Sandbox) -> set[str]:
    """Create every odd Job; returns the names of those that the API server accepted."""
    alice, taken = sandbox.local("alice"), set()
    for name in ODDITIES:
        try:
            await alice.create("jobs", "odd", odd_job(name))
        except ApiError:
            continue
        taken.add(name)
    return taken


@pytest.mark.costly
async def test_odd_jobs_do_not_stop_jobs_of_other_teams_even_after_a_kill(sandbox, tmp_path, database_url):
    """No webhook rejects the odd Jobs; after SIGKILL, `serve` loads them from the database again."""
    await _prepare(sandbox, database_url)
    port = free_port()
    async with serving(tmp_path, database_url, port=port) as replica:
        await replica.until_ready()
        taken = await _submit_all(sandbox)
        assert len(taken) > 30
        await _complete_other_job(sandbox, "first")
        for plural, namespace, body in LIMITS:
            await sandbox.local("admin").create(plural, namespace, body)
        await _complete_other_job(sandbox, "second")
        replica.send(signal.SIGKILL)
        await replica.process.wait()
        assert b"Traceback" not in replica.log, replica.log.decode()
    async with serving(tmp_path, database_url, port=port) as replica:
        await replica.until_ready()
        for plural, namespace, body in LIMITS:
            await sandbox.local("admin").delete(plural, namespace, body["metadata"]["name"])
        await _complete_other_job(sandbox, "third")
        paths = ("workloads", "clusterqueues", "namespaces/odd/workloads", "namespaces/odd/localqueues")
        for path in paths:
            status, body = await replica.get(f"/apis/sluice.dev/v1/{path}")
            assert status == 200, body
        await _until_each_has_a_reason(replica, taken)
        statistics = json.loads((await replica.get("/debug/statistics"))[1])
        assert statistics["faults"] == 0, replica.log.decode()
        assert b"Traceback" not in replica.log, replica.log.decode()


async def _until_each_has_a_reason(replica: Any, taken: set[str]) -> None:
    while True:
        items = json.loads((await replica.get("/apis/sluice.dev/v1/namespaces/odd/workloads"))[1])["items"]
        conditions = [item["status"]["conditions"] for item in items if item["status"]["state"] == "pending"]
        told = all(c["reason"] != "PendingEvaluation" and c["message"] for (c, *_) in conditions)
        if told and len(items) >= len(taken) - len({"queue-name"}):
            break
        await asyncio.sleep(0.1)
    for condition, *_ in conditions:
        assert condition["message"].isprintable()
        assert len(condition["message"]) <= 1000
