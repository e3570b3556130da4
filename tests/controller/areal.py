"""Imitation of AReaL's KubernetesScheduler: a Service and a StatefulSet per role, one role after the other.

Its requests, and the pod states that it treats as failures, are those of AReaL's pull request 1316.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from kubernetes_asyncio.client import ApiClient, ApiException, AppsV1Api, CoreV1Api

Object = dict[str, Any]
FAILURES = {"CrashLoopBackOff", "ImagePullBackOff", "ErrImagePull", "CreateContainerConfigError"}


class WorkerFailed(Exception):
    """A failure that ends an experiment of AReaL."""


class Areal:
    """One trial of an experiment, which waits for each role before it creates the next."""

    def __init__(self, api: ApiClient, namespace: str, experiment: str, trial: str = "t0") -> None:
        self._core, self._apps = CoreV1Api(api), AppsV1Api(api)
        self._namespace, self._experiment, self._trial = namespace, experiment, trial
        self.node_selector: dict[str, str] = {}
        """Value of AREAL_K8S_NODE_SELECTOR."""
        self.looks = 0
        """Number of polls of pods by `get_workers`."""

    def name(self, role: str) -> str:
        return f"areal-{self._experiment}-{self._trial}-{role}"

    async def create_workers(self, role: str, replicas: int, cpu: str = "1") -> None:
        """Apply Service and StatefulSet of a role: GET, then PATCH or POST."""
        service, statefulset = self._manifests(role, replicas, cpu)
        core, apps = self._core, self._apps
        await self._apply(
            core.read_namespaced_service, core.patch_namespaced_service, core.create_namespaced_service, service
        )
        await self._apply(
            apps.read_namespaced_stateful_set,
            apps.patch_namespaced_stateful_set,
            apps.create_namespaced_stateful_set,
            statefulset,
        )

    async def _apply(self, read: Any, patch: Any, create: Callable[..., Awaitable[Any]], body: Object) -> None:
        name = body["metadata"]["name"]
        try:
            await read(name=name, namespace=self._namespace)
            await patch(name=name, namespace=self._namespace, body=body)
        except ApiException as error:
            if error.status != 404:
                raise
            await create(namespace=self._namespace, body=body)

    async def get_workers(self, role: str, replicas: int) -> None:
        """Wait until all workers of a role are ready. Raises WorkerFailed if AReaL would treat it as failed."""
        while True:
            self.looks += 1
            pods = await self.check_health(role)
            if sum(bool(pod.status.container_statuses) for pod in pods) == replicas:
                return
            await asyncio.sleep(0.2)

    async def check_health(self, role: str) -> list[Any]:
        """Return the pods of a role, after the checks of AReaL. Raises WorkerFailed if one has failed."""
        selector = ",".join(f"{key}={value}" for key, value in self._labels(role).items())
        pods = (await self._core.list_namespaced_pod(self._namespace, label_selector=selector)).items
        for pod in pods:
            for status in pod.status.container_statuses or []:
                state = status.state
                if state.waiting is not None and state.waiting.reason in FAILURES:
                    raise WorkerFailed(f"{pod.metadata.name}: {state.waiting.reason}")
                if state.terminated is not None and state.terminated.exit_code != 0:
                    raise WorkerFailed(f"{pod.metadata.name} exited")
            if pod.status.phase == "Failed":
                raise WorkerFailed(f"{pod.metadata.name}: phase=Failed")
        return list(pods)

    async def delete_workers(self, *roles: str) -> None:
        for role in roles:
            await self._apps.delete_namespaced_stateful_set(self.name(role), self._namespace)
            await self._core.delete_namespaced_service(self.name(role), self._namespace)

    def _labels(self, role: str) -> dict[str, str]:
        return {
            "app.kubernetes.io/name": "areal",
            "app.kubernetes.io/managed-by": "areal-scheduler",
            "app.kubernetes.io/instance": self.name(role),
            "areal.openpsi.io/experiment": self._experiment,
            "areal.openpsi.io/trial": self._trial,
            "areal.openpsi.io/role": role,
        }

    def _manifests(self, role: str, replicas: int, cpu: str) -> tuple[Object, Object]:
        name, labels = self.name(role), self._labels(role)
        container = {
            "name": "worker",
            "image": "ghcr.io/inclusionai/areal-runtime:latest",
            "command": ["bash", "-lc", "exec python -m areal.infra.rpc.rpc_server --host 0.0.0.0 --port 8000"],
            "env": [{"name": "AREAL_ROLE", "value": role}],
            "ports": [{"name": "rpc", "containerPort": 8000}],
            "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}, "limits": {"cpu": cpu, "memory": "1Gi"}},
        }
        pods = {
            "serviceAccountName": "default",
            "terminationGracePeriodSeconds": 60,
            "restartPolicy": "Always",
            "containers": [container],
            **({"nodeSelector": self.node_selector} if self.node_selector else {}),
        }
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "labels": labels},
            "spec": {"clusterIP": "None", "selector": labels, "ports": [{"name": "rpc", "port": 8000}]},
        }
        statefulset = {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "serviceName": name,
                "podManagementPolicy": "Parallel",
                "replicas": replicas,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pods},
            },
        }
        return service, statefulset
