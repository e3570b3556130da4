"""`sluice uninstall` while objects are being stopped: only the database has the values to restore."""

from __future__ import annotations

import asyncio
import copy
from contextlib import AsyncExitStack

import pytest
from click.testing import CliRunner
from custom_kinds import served, until
from job_examples import cluster_queue, flavor, job, local_queue, runs
from test_fewer_pods import partial
from test_fewer_pods_of_kinds import MIN_COUNT, torch
from test_way_of_a_ray_cluster import ray_cluster

from admission.cli.main import main
from admission.kinds import all_kinds

KINDS = all_kinds(frameworks=("batch/job", "kubeflow.org/pytorchjob", "ray.io/raycluster"))
GIVEN = 2
"""Admitted pods of each object, without the head of the RayCluster."""


def written():
    """Manifests of users: all but one may start with fewer than six pods. Their pods do not stop by themselves."""
    ray = ray_cluster(stop="never", gpu=6)
    ray["metadata"]["annotations"] = {MIN_COUNT: "gpu=1"}
    run = torch(workers=6, annotation="worker=1", runPolicy={"suspend": True})
    found = [partial("few", 1, pods=6), job("whole", pods=GIVEN), run, ray]
    templates = [each["spec"]["template"] for each in found[:2]]
    for template in (*templates, run["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]):
        template["metadata"]["annotations"]["sandbox.sluice.dev/stop-seconds"] = "never"
    for obj, queue in zip(found, ("few", "whole", "torch", "ray"), strict=True):
        obj["metadata"]["labels"]["sluice.dev/queue-name"] = queue
        obj["metadata"].setdefault("annotations", {})["sluice.dev/submitted-by"] = "alice"
    ray["spec"]["suspend"] = True
    return found


def plural(obj):
    return f"{obj['kind'].lower()}s"


@pytest.fixture
async def stopped(world):
    """Objects that ran, were put on hold, and have no pods left; Sluice was killed before it could restore them."""
    await world.apply(flavor())
    for name in ("few", "whole", "torch"):
        await world.apply(cluster_queue(name, cpu=str(GIVEN)), local_queue(name, name))
    await world.apply(cluster_queue("ray", cpu=str(GIVEN + 1)), local_queue("ray", "ray"))
    async with AsyncExitStack() as stack:
        for kind in KINDS:
            if kind.is_custom:
                await stack.enter_async_context(served(world.sandbox, kind))
        await world.start(kinds=KINDS)
        before = [await world.user.create(plural(obj), "team-a", obj) for obj in written()]
        for obj in before:
            kind = KINDS.get(obj["apiVersion"].rpartition("/")[0], obj["kind"])
            holds = runs if obj["kind"] == "Job" else lambda each, kind=kind: kind.observe(each).ready
            await until(world.user, plural(obj), obj["metadata"]["name"], holds)
        for obj in before:
            await world.order(obj["metadata"]["name"], held=True)
        await all_are(world, before, lambda kind, each: kind.observe(each).suspended)
        await world.end()
        for each in world.user.list("pods", "team-a"):
            await world.user.delete("pods", "team-a", each["metadata"]["name"], grace=0)
        await all_are(world, before, lambda kind, each: not kind.observe(each).active)
        yield world, before


async def all_are(world, objects, holds):
    async def look():
        found = [world.user.get(plural(each), "team-a", each["metadata"]["name"]) for each in objects]
        return all(holds(KINDS.get(each["apiVersion"].rpartition("/")[0], each["kind"]), each) for each in found)

    await world.eventually(look)


async def uninstall(world, folder, *flags, exit_code=0):
    world.sandbox.write_kubeconfig(folder / "admin", "admin")
    arguments = ("uninstall", f"--kubeconfig={folder / 'admin'}", *flags)
    done = await asyncio.to_thread(CliRunner(catch_exceptions=False).invoke, main, arguments)
    assert done.exit_code == exit_code, done.output
    return done.output.splitlines()


def spec_of(obj, *, suspended):
    """Return the submitted spec, with `suspended` as its suspend field."""
    spec = copy.deepcopy(obj["spec"])
    target = spec["runPolicy"] if obj["kind"] == "PyTorchJob" else spec
    target["suspend"] = suspended
    return spec


@pytest.mark.costly
@pytest.mark.parametrize("restore", [False, True])
async def test_uninstall_with_database_restores_stopped_objects_as_submitted(stopped, tmp_path, restore):
    world, before = stopped
    flags = ("--database-url", world.url, *(["--restore"] if restore else []))
    assert "restore as submitted what is stopped: 4 objects" in await uninstall(world, tmp_path, *flags)
    assert (await uninstall(world, tmp_path, *flags, "--yes"))[-1] == "done"
    for obj in before:
        after = world.user.get(plural(obj), "team-a", obj["metadata"]["name"])
        assert after["spec"] == spec_of(obj, suspended=not restore)
        assert "sluice.dev/submitted-by" not in (after["metadata"].get("annotations") or {})


@pytest.mark.costly
async def test_uninstall_without_database_reports_objects_that_are_not_restored(stopped, tmp_path):
    world, before = stopped
    told = "keep the fields that a start has set: 2 objects; to restore them: --database-url"
    assert told in await uninstall(world, tmp_path)
    assert (await uninstall(world, tmp_path, "--yes"))[-1] == "done"
    for obj in before:
        after = world.user.get(plural(obj), "team-a", obj["metadata"]["name"])
        assert after["spec"] != obj["spec"]


async def test_uninstall_leaves_running_partially_admitted_job_unchanged(world, tmp_path):
    await world.begin(flavor(), cluster_queue(cpu="2"), local_queue())
    few = partial("few", 1, pods=6)
    few["metadata"]["annotations"]["sluice.dev/submitted-by"] = "alice"
    await world.submit(few)
    running = await world.job("few", runs)
    await world.end()
    told = await uninstall(world, tmp_path, "--database-url", world.url, "--restore", "--yes")
    assert "restore as submitted what is stopped: 0 objects" in told
    assert world.user.get("jobs", "team-a", "few")["spec"] == running["spec"]


@pytest.mark.costly
@pytest.mark.parametrize("code", [400, 403, 500])
async def test_uninstall_cleans_up_the_others_if_the_patch_of_one_object_is_refused(world, tmp_path, code):
    await world.begin(flavor(), cluster_queue(cpu="2"), local_queue())
    for name in ("a", "b", "c"):
        waits = job(name, pods=4)
        waits["metadata"].setdefault("annotations", {})["sluice.dev/submitted-by"] = "alice"
        await world.submit(waits)
        await world.record(name, "pending")
    await world.end()
    match = {"verb": "patch", "resource": "jobs", "name": "b"}
    world.sandbox.faults.install({"rules": [{"match": match, "do": "error", "code": code}]})
    lines = await uninstall(world, tmp_path, "--restore", "--yes", exit_code=1)
    assert lines[-1] == "error: 1 object could not be cleaned up, see above; then run the command again"
    assert any(line.startswith("not cleaned up: PATCH") and "/jobs/b" in line for line in lines)
    suspended = {each["metadata"]["name"]: each["spec"]["suspend"] for each in world.user.list("jobs", "team-a")}
    assert suspended == {"a": False, "b": True, "c": False}
    world.sandbox.faults.remove()
    assert (await uninstall(world, tmp_path, "--restore", "--yes"))[-1] == "done"
    assert not world.user.get("jobs", "team-a", "b")["spec"]["suspend"]
