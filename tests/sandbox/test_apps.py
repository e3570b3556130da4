"""Deployments, ReplicaSets, StatefulSets and CronJobs in the sandbox, through kubectl and the API."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from admission.sandbox import Sandbox
from admission.sandbox.apiserver.errors import ApiError
from admission.sandbox.local import LocalClient

Object = dict[str, Any]

SPEED = 50
KEPT = ("pods", "deployments", "replicasets", "statefulsets", "controllerrevisions")


@asynccontextmanager
async def cluster() -> AsyncIterator[tuple[Sandbox, LocalClient]]:
    """Run a sandbox with one simulated node; yield it with its administrator's client."""
    async with Sandbox(speed=SPEED) as sandbox:
        admin = sandbox.local("admin")
        room = {"cpu": "64", "memory": "64Gi", "pods": "110"}
        metadata = {"name": "node", "annotations": {"kwok.x-k8s.io/node": "fake"}}
        await admin.create("nodes", "", {"metadata": metadata, "status": {"allocatable": room, "capacity": room}})
        yield sandbox, admin


async def until(admin: LocalClient, holds: Callable[[], bool]) -> None:
    """Wait until `holds` returns True, checked at each change of a pod or its controllers."""
    with closing(admin.watch(*KEPT)) as watcher:
        async for _ in watcher:
            if holds():
                return


def workload(name: str, *, image: str = "v1", pod: Object | None = None, **spec: Any) -> Object:
    labels, containers = {"app": name}, [{"name": "c", "image": image}]
    template = {"metadata": {"labels": labels}, "spec": {"containers": containers, **(pod or {})}}
    return {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": labels}, "template": template, **spec}}


def status_of(admin: LocalClient, plural: str, name: str) -> Object:
    found = admin.get(plural, "default", name)
    assert found is not None
    status: Object = found.get("status") or {}
    return status


def names(admin: LocalClient, plural: str) -> list[str]:
    return [each["metadata"]["name"] for each in admin.list(plural, "default")]


def images(admin: LocalClient) -> list[str]:
    return [pod["spec"]["containers"][0]["image"] for pod in admin.list("pods", "default")]


def new_image(image: str) -> Object:
    return {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}}


@pytest.mark.costly
async def test_kubectl_creates_scales_rolls_back_and_deletes_a_deployment(
    kubectl: Callable[..., Awaitable[str]],
) -> None:
    rollout_status = ("rollout", "status", "deployment/web", "--timeout=60s")
    async with cluster() as (sandbox, admin):
        await kubectl(sandbox, "create", "deployment", "web", "--image=v1", "--replicas=2")
        assert "successfully rolled out" in await kubectl(sandbox, *rollout_status)
        await kubectl(sandbox, "scale", "deployment/web", "--replicas=3")
        await kubectl(sandbox, "set", "image", "deployment/web", "v1=v2")
        assert "successfully rolled out" in await kubectl(sandbox, *rollout_status)
        assert len(names(admin, "replicasets")) == 2
        assert "Scaled up replica set" in await kubectl(sandbox, "describe", "deployment/web")
        await kubectl(sandbox, "rollout", "undo", "deployment/web")
        await kubectl(sandbox, *rollout_status)
        history = await kubectl(sandbox, "rollout", "history", "deployment/web")
        await until(admin, lambda: images(admin) == ["v1"] * 3)
        table = (await kubectl(sandbox, "get", "deployment/web")).splitlines()
        await kubectl(sandbox, "delete", "deployment/web", "--timeout=60s")
        await until(admin, lambda: not names(admin, "pods"))

    assert [line.split()[0] for line in history.splitlines()[2:] if line] == ["2", "3"]
    assert table[0].split() == ["NAME", "READY", "UP-TO-DATE", "AVAILABLE", "AGE"]
    assert table[1].split()[:4] == ["web", "3/3", "3", "3"]


@pytest.mark.costly
async def test_kubectl_updates_statefulset_from_highest_ordinal_and_undoes_the_rollout(
    kubectl: Callable[..., Awaitable[str]], tmp_path: Path
) -> None:
    whole = {"apiVersion": "apps/v1", "kind": "StatefulSet", **workload("db", serviceName="db", replicas=2)}
    (tmp_path / "set.json").write_text(json.dumps(whole))
    rollout_status = ("rollout", "status", "statefulset/db", "--timeout=60s")
    async with cluster() as (sandbox, admin):
        await kubectl(sandbox, "apply", "-f", str(tmp_path / "set.json"))
        await kubectl(sandbox, *rollout_status)
        order: list[str] = []
        with closing(admin.watch("pods")) as watcher:
            await kubectl(sandbox, "set", "image", "statefulset/db", "c=v2")
            async for batch in watcher:
                order += [pod["metadata"]["name"] for _, change, pod, _ in batch if change == "DELETED"]
                if len(order) == 2:
                    break
        assert "roll out complete: 2 new pods" in await kubectl(sandbox, *rollout_status)
        assert images(admin) == ["v2", "v2"]
        await kubectl(sandbox, "rollout", "undo", "statefulset/db")
        await until(admin, lambda: images(admin) == ["v1", "v1"])
        await kubectl(sandbox, "scale", "statefulset/db", "--replicas=1")
        await until(admin, lambda: names(admin, "pods") == ["db-0"])

    assert order == ["db-1", "db-0"]


async def test_pod_evicted_by_kubectl_drain_is_recreated_by_its_replicaset(
    kubectl: Callable[..., Awaitable[str]],
) -> None:
    async with cluster() as (sandbox, admin):
        await admin.create("replicasets", "default", workload("web"))
        await until(admin, lambda: status_of(admin, "replicasets", "web").get("readyReplicas") == 1)
        first = names(admin, "pods")[0]
        printed = await kubectl(sandbox, "drain", "node", "--timeout=60s")
        await until(admin, lambda: first not in names(admin, "pods") and len(names(admin, "pods")) == 1)

    assert f"pod/{first} evicted" in printed


@pytest.mark.costly
async def test_kubectl_creates_cronjob_and_job_from_it(kubectl: Callable[..., Awaitable[str]]) -> None:
    command = ("--image=v1", "--schedule=* * * * *", "--", "sleep", "1")
    async with cluster() as (sandbox, admin):
        await kubectl(sandbox, "create", "cronjob", "often", *command)
        await kubectl(sandbox, "create", "job", "now", "--from=cronjob/often")
        await kubectl(sandbox, "wait", "--for=condition=Complete", "job/now", "--timeout=60s")
        with closing(admin.watch("cronjobs")) as watcher:
            async for _ in watcher:
                if "lastSuccessfulTime" in status_of(admin, "cronjobs", "often"):
                    break
        table = (await kubectl(sandbox, "get", "cronjobs")).splitlines()
        await kubectl(sandbox, "delete", "cronjob/often", "--timeout=60s")

    assert table[0].split() == ["NAME", "SCHEDULE", "TIMEZONE", "SUSPEND", "ACTIVE", "LAST", "SCHEDULE", "AGE"]
    assert table[1].split()[:8] == ["often", *"*****", "<none>", "False"]


async def test_gated_statefulset_creates_only_first_pod_unless_pod_management_is_parallel() -> None:
    gate = {"schedulingGates": [{"name": "example.com/gate"}]}
    async with cluster() as (_, admin):
        await admin.create("statefulsets", "default", workload("ordered", pod=gate, replicas=3))
        parallel = workload("parallel", pod=gate, replicas=3, podManagementPolicy="Parallel")
        await admin.create("statefulsets", "default", parallel)
        await until(admin, lambda: status_of(admin, "statefulsets", "parallel").get("replicas") == 3)
        await until(admin, lambda: status_of(admin, "statefulsets", "ordered").get("replicas") == 1)

        assert names(admin, "pods") == ["ordered-0", "parallel-0", "parallel-1", "parallel-2"]
        waits = {
            (each["type"], each["status"], each["reason"])
            for pod in admin.list("pods", "default")
            for each in pod["status"]["conditions"]
        }
        assert waits == {("PodScheduled", "False", "SchedulingGated")}
        with pytest.raises(ApiError, match="pod ordered-0 has non-empty"):
            await admin.bind("default", "ordered-0", "node")


async def test_statefulset_pod_below_partition_keeps_old_template_after_recreation() -> None:
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}
    async with cluster() as (_, admin):

        def uid() -> str:
            pod = admin.get("pods", "default", "db-0")
            return pod["metadata"]["uid"] if pod is not None else ""

        def are_ready(count: int) -> bool:
            return status_of(admin, "statefulsets", "db").get("readyReplicas") == count

        await admin.create("statefulsets", "default", workload("db", replicas=2, updateStrategy=rolling))
        await until(admin, lambda: are_ready(2))
        first = uid()
        await admin.patch("statefulsets", "default", "db", new_image("v2"))
        await until(admin, lambda: images(admin) == ["v1", "v2"] and are_ready(2))
        await admin.patch("statefulsets", "default", "db", {"spec": {"replicas": 3}})
        await until(admin, lambda: images(admin) == ["v1", "v2", "v2"] and are_ready(3))
        left_alone = uid()
        await admin.delete("pods", "default", "db-0")
        await until(admin, lambda: uid() not in ("", first) and are_ready(3))

        assert left_alone == first
        assert images(admin) == ["v1", "v2", "v2"]


async def test_statefulset_adopts_orphans_of_earlier_statefulset_of_the_same_name() -> None:
    async with cluster() as (_, admin):

        def is_ready() -> bool:
            return status_of(admin, "statefulsets", "db").get("readyReplicas") == 1

        await admin.create("statefulsets", "default", workload("db", replicas=1))
        await until(admin, is_ready)
        await admin.delete("statefulsets", "default", "db", propagation="Orphan")
        await until(admin, lambda: names(admin, "statefulsets") == [])
        created = await admin.create("statefulsets", "default", workload("db", replicas=1))
        await until(admin, is_ready)
        left = [*admin.list("pods", "default"), *admin.list("controllerrevisions", "default")]

    assert [each["metadata"]["ownerReferences"][0]["uid"] for each in left] == [created["metadata"]["uid"]] * 2


async def test_unlabelled_replicaset_pod_is_orphaned_replaced_and_adopted_when_relabelled() -> None:
    async with cluster() as (_, admin):
        await admin.create("replicasets", "default", workload("web", replicas=2))
        await until(admin, lambda: status_of(admin, "replicasets", "web").get("readyReplicas") == 2)
        stray = names(admin, "pods")[0]
        await admin.patch("pods", "default", stray, {"metadata": {"labels": {"app": "mine"}}})
        await until(admin, lambda: len(names(admin, "pods")) == 3)
        let_go = admin.get("pods", "default", stray)
        assert let_go is not None
        assert not let_go["metadata"].get("ownerReferences")
        await admin.patch("pods", "default", stray, {"metadata": {"labels": {"app": "web"}}})
        await until(admin, lambda: len(names(admin, "pods")) == 2)
        await until(admin, lambda: status_of(admin, "replicasets", "web").get("readyReplicas") == 2)
        owners = [pod["metadata"]["ownerReferences"][0]["name"] for pod in admin.list("pods", "default")]

    assert owners == ["web", "web"]


async def test_recreate_strategy_creates_new_pods_after_old_pods_are_gone() -> None:
    async with cluster() as (_, admin):
        await admin.create("deployments", "default", workload("web", replicas=2, strategy={"type": "Recreate"}))
        await until(admin, lambda: status_of(admin, "deployments", "web").get("readyReplicas") == 2)
        mixed: list[set[str]] = []
        with closing(admin.watch("pods")) as watcher:
            await admin.patch("deployments", "default", "web", new_image("v2"))
            async for _ in watcher:
                mixed.append(set(images(admin)))
                if mixed[-1] == {"v2"}:
                    break

    assert {"v1", "v2"} not in mixed


async def test_rolling_update_respects_max_surge_and_max_unavailable() -> None:
    limits = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}}
    async with cluster() as (_, admin):
        await admin.create("deployments", "default", workload("web", replicas=4, strategy=limits))
        await until(admin, lambda: status_of(admin, "deployments", "web").get("readyReplicas") == 4)
        seen: dict[str, Object] = {}
        asked: list[int] = []
        available: list[int] = []
        with closing(admin.watch("replicasets")) as watcher:
            await admin.patch("deployments", "default", "web", new_image("v2"))
            async for batch in watcher:
                for _, _, each, _ in batch:
                    seen[each["metadata"]["name"]] = each
                    asked.append(sum(other["spec"]["replicas"] for other in seen.values()))
                    available.append(sum(other["status"].get("availableReplicas", 0) for other in seen.values()))
                if sorted(each["status"].get("availableReplicas", 0) for each in seen.values()) == [0, 4]:
                    break

    assert max(asked) == 5
    assert min(available) >= 3


async def test_paused_deployment_scales_but_does_not_roll_out() -> None:
    async with cluster() as (_, admin):
        await admin.create("deployments", "default", workload("web", replicas=1))
        await until(admin, lambda: status_of(admin, "deployments", "web").get("readyReplicas") == 1)
        await admin.patch("deployments", "default", "web", {"spec": {"paused": True}})
        await admin.patch("deployments", "default", "web", new_image("v2"))
        await admin.patch("deployments", "default", "web", {"spec": {"replicas": 2}})
        await until(admin, lambda: status_of(admin, "deployments", "web").get("readyReplicas") == 2)
        paused = images(admin)
        await admin.patch("deployments", "default", "web", {"spec": {"paused": False}})
        await until(admin, lambda: images(admin) == ["v2", "v2"])

    assert paused == ["v1", "v1"]


async def test_stalled_deployment_reports_progress_deadline_exceeded() -> None:
    gate = {"schedulingGates": [{"name": "example.com/gate"}]}
    async with cluster() as (_, admin):
        await admin.create("deployments", "default", workload("web", pod=gate, progressDeadlineSeconds=30))

        def reasons() -> list[str]:
            return [each["reason"] for each in status_of(admin, "deployments", "web").get("conditions", ())]

        await until(admin, lambda: "ProgressDeadlineExceeded" in reasons())

        assert "MinimumReplicasUnavailable" in reasons()


async def test_tolerations_of_gated_pod_may_be_added_but_not_removed() -> None:
    gate = {"schedulingGates": [{"name": "example.com/gate"}], "containers": [{"name": "c", "image": "v1"}]}
    own = {"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}
    async with cluster() as (_, admin):
        await admin.create("pods", "default", {"metadata": {"name": "p"}, "spec": {**gate, "tolerations": [own]}})
        pod = admin.get("pods", "default", "p")
        assert pod is not None
        given = pod["spec"]["tolerations"]
        added = [*given, {"key": "spot", "operator": "Exists"}]
        await admin.patch("pods", "default", "p", {"spec": {"tolerations": added}})
        with pytest.raises(ApiError) as refused:
            await admin.patch("pods", "default", "p", {"spec": {"tolerations": added[1:]}})

    text = "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"
    assert str(refused.value) == f'Pod "p" is invalid: {text}'
