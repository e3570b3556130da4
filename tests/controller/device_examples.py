"""Manifests of dynamic resource allocation: a GPU driver with whole devices, partitions, and shared capacity."""

from __future__ import annotations

from typing import Any

from queue_objects import cluster_queue

from admission.controller.state.policy import ControllerPolicy
from admission.model.devices import DeviceClassMapping, DeviceRules, DeviceSource

Object = dict[str, Any]

DRIVER = "gpu.example.com"
GPU = "example.com/gpu"
MEMORY = "example.com/gpu-memory"
MAPPED = ControllerPolicy(devices=DeviceRules((DeviceClassMapping(GPU, ("gpu", "big-gpu")),)))


def device_class(name: str = "gpu", *expressions: str, **spec: Any) -> Object:
    selectors = [{"cel": {"expression": each}} for each in (f'device.driver == "{DRIVER}"', *expressions)]
    return {"metadata": {"name": name}, "spec": {"selectors": selectors, **spec}}


def device(name: str, memory: str = "80Gi", **attributes: Any) -> Object:
    return {
        "name": name,
        "attributes": {"type": {"string": "gpu"}, **attributes},
        "capacity": {"memory": {"value": memory}},
    }


def resource_slice(node: str, *devices: Object, driver: str = DRIVER, **spec: Any) -> Object:
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    return {
        "metadata": {"name": f"{node}-{driver}"},
        "spec": {"driver": driver, "pool": pool, "nodeName": node, "devices": [*devices], **spec},
    }


def exactly(count: int = 1, device_class: str = "gpu", **fields: Any) -> Object:
    return {"name": "gpu", "exactly": {"deviceClassName": device_class, "count": count, **fields}}


def claim(name: str, *requests: Object, namespace: str = "team-a") -> Object:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"devices": {"requests": [*requests]}},
    }


def template(name: str, *requests: Object, namespace: str = "team-a") -> Object:
    made = claim(name, *requests, namespace=namespace)
    return {**made, "kind": "ResourceClaimTemplate", "spec": {"spec": made["spec"]}}


def from_template(name: str = "gpu") -> list[Object]:
    """Return a pod's `resourceClaims` that has one made from a template."""
    return [{"name": "gpu", "resourceClaimTemplateName": name}]


def named(name: str = "shared") -> list[Object]:
    """Return a pod's `resourceClaims` with a claim of this name."""
    return [{"name": "gpu", "resourceClaimName": name}]


def queue_with(**quotas: str) -> Object:
    """Return the ClusterQueue `cq` with 100 CPUs and these quotas: `gpu`, `memory`."""
    names = {"gpu": GPU, "memory": MEMORY}
    amounts = {names[name]: amount for name, amount in quotas.items()}
    return cluster_queue(quotas={"default": {"cpu": "100", **amounts}})


def counting(name: str = "memory", *, is_capacity: bool = False) -> ControllerPolicy:
    """Return a policy by which devices of the class `gpu` count by a counter, or by a capacity."""
    of_driver = f'device.driver == "{DRIVER}"'
    source = DeviceSource(DRIVER, name, of_driver, is_capacity=is_capacity)
    return ControllerPolicy(devices=DeviceRules((DeviceClassMapping(MEMORY, ("gpu",), (source,)),)))
