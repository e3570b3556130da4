"""Manifests of the declared kinds, with the expected pod sets and requests, computed by hand."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import yaml

Object = dict[str, Any]

FOLDER = Path(__file__).parent / "kinds" / "manifests"
MI, GI = 2**20, 2**30
GPU = "nvidia.com/gpu"
RESOURCES = ("cpu", "memory", GPU, "pods")

GOLDEN = {
    "jobset": [
        ("driver", 1, {"cpu": 1000, "memory": GI}),
        ("workers", 8, {"cpu": 2000, "memory": 4 * GI, GPU: 1}),
    ],
    "tfjob": [
        ("chief", 1, {"cpu": 1000, "memory": GI}),
        ("ps", 2, {"cpu": 2000, "memory": GI}),
        ("worker", 3, {"cpu": 3000, "memory": GI}),
    ],
    "xgboostjob": [("master", 1, {"cpu": 1000, "memory": GI}), ("worker", 2, {"cpu": 2000, "memory": GI})],
    "paddlejob": [("master", 1, {"cpu": 1000, "memory": GI}), ("worker", 2, {"cpu": 2000, "memory": GI})],
    "jaxjob": [("worker", 1, {"cpu": 1000, "memory": GI})],
    "pytorchjob-v1": [
        ("master", 1, {"cpu": 1000, "memory": GI}),
        ("worker", 3, {"cpu": 2000, "memory": 2 * GI, GPU: 1}),
    ],
    "mpijob-v1": [
        ("launcher", 1, {"cpu": 1000, "memory": 512 * MI, "ephemeral-storage": 5 * GI}),
        ("worker", 2, {"cpu": 2000}),
    ],
    "mpijob-v2beta1": [
        ("launcher", 1, {"cpu": 1000, "memory": 256 * MI}),
        ("worker", 2, {"cpu": 1000, "memory": GI}),
    ],
    "raycluster": [
        ("head", 1, {"cpu": 1500, "memory": 2560 * MI}),
        ("gpu", 4, {"cpu": 4000, "memory": 8 * GI, GPU: 1}),
        ("cpu", 1, {"cpu": 1000, "memory": GI}),
    ],
    "raycluster-native-gang": [
        ("head", 1, {"cpu": 1000, "memory": 2 * GI}),
        ("small", 3, {"cpu": 1000, "memory": GI}),
    ],
    "rayjob": [
        ("head", 1, {"cpu": 1000, "memory": 2 * GI}),
        ("workers", 2, {"cpu": 1000, "memory": GI}),
        ("submitter", 1, {"cpu": 500, "memory": 200 * MI}),
    ],
    "rayservice": [
        ("head", 1, {"cpu": 1000, "memory": 2 * GI}),
        ("workers", 1, {"cpu": 1000, "memory": GI}),
    ],
    "appwrapper-v1beta2": [("component-0-0", 2, {"cpu": 1000, "memory": GI})],
    "appwrapper-pytorchjob": [
        ("component-0-0", 1, {"cpu": 1000, "memory": GI}),
        ("component-0-1", 3, {"cpu": 2000, "memory": 2 * GI, GPU: 1}),
    ],
    "mcad-appwrapper-v1beta1": [("item-0", 2, {"cpu": 1000, "memory": GI})],
    "mcad-torchx-ddp": [(f"item-{number}", 1, {"cpu": 15900, "memory": 64_512_000_000, GPU: 4}) for number in range(2)],
    "argo-workflow": [("workflow", 4, {"cpu": 1000, "memory": GI})],
    "sparkapplication": [
        ("driver", 1, {"cpu": 1000, "memory": (512 + 384) * MI}),
        ("executor", 2, {"cpu": 1000, "memory": (512 + 384) * MI}),
    ],
}
"""File name to (pod set, number of pods, requests of one pod: milli-CPU, bytes, GPUs)."""


def document(name: str) -> Object:
    """Return the first document of a manifest, as a user submits it."""
    found: Object = next(yaml.load_all((FOLDER / f"{name}.yaml").read_text(), yaml.CSafeLoader))
    return found


def total(name: str) -> dict[str, int]:
    """Return the sum of the requests of a manifest's pods."""
    amounts: Counter[str] = Counter()
    for _, count, requests in GOLDEN[name]:
        amounts.update({resource: count * amount for resource, amount in {**requests, "pods": 1}.items()})
    return {resource: amounts[resource] for resource in RESOURCES}
