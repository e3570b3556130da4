"""Pod sets and faults of SparkApplication: it has no pod templates, but sizes from which Spark computes requests.

Sources: Spark 3.5, `BasicDriverFeatureStep` and `BasicExecutorFeatureStep`: memory and overhead, cores.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from admission.kinds import paths
from admission.kinds.common import quote
from admission.kinds.places import Place, as_template
from admission.model.errors import Misconfigured

if TYPE_CHECKING:
    from admission.kinds.base import Object

_MEMORY: Final = re.compile(r"(\d{1,18})([kmgtp]?)b?", re.IGNORECASE)
_UNITS: Final = {"": 2**20, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40, "p": 2**50}
"""Bytes by unit, as Java writes sizes; without a unit, mebibytes."""
_LEAST_OVERHEAD: Final = 384 * 2**20
"""Minimum memory overhead, in bytes."""
_FACTORS: Final = {"Python": 0.4, "R": 0.4}
_FACTOR: Final = 0.1
"""Memory overhead as a fraction of the heap: by application type (`_FACTORS`), else `_FACTOR`."""
_ROLES: Final = ("driver", "executor")
_SIZES: Final = re.compile(
    r"spark\.(dynamicAllocation\.enabled|memory\.offHeap\.(enabled|size)|kubernetes\.memoryOverheadFactor"
    r"|(driver|executor)\.(instances|cores|memory|memoryOverhead(Factor)?|pyspark\.memory|resource\..+)"
    r"|kubernetes\.((driver|executor)\.)?(request\.cores|node\.selector\..+|podTemplateFile|label\.sluice\.dev/.+))"
)
"""Keys of `sparkConf` that change the number, size, nodes or labels of pods where no field overrides them."""
_OF_TEMPLATES: Final = ("initContainers", "nodeSelector", "tolerations", "affinity", "overhead", "runtimeClassName")
"""Fields of a role's pod template that affect quota, and that are not read."""


def places(obj: Object) -> list[Place]:
    """Return driver and executors. Raises Misconfigured for sizes and counts that cannot be parsed."""
    spec = obj["spec"]
    instances = ("spec", "executor", "instances")
    executors = paths.count(obj, instances, 1)
    return [
        Place("driver", "spec.driver", _template(spec, "driver"), 1, ("spec", "driver"), flat=True, takes_gates=False),
        Place(
            "executor", "spec.executor", _template(spec, "executor"), executors, ("spec", "executor"), flat=True,
            takes_gates=False, count_fields=(instances,), reducible=instances,
        ),
    ]  # fmt: skip


def faults(obj: Object) -> list[tuple[str, str]]:
    """Return fields whose pods cannot be counted, or that prevent the injection."""
    spec, found = obj["spec"], list[tuple[str, str]]()
    if spec.get("mode") not in (None, "", "cluster"):
        found.append(("spec.mode", "must be cluster: in another one the driver is no pod of its own"))
    if (spec.get("dynamicAllocation") or {}).get("enabled") is True:
        found.append(
            ("spec.dynamicAllocation.enabled", "executors that come and go cannot be queued; set their number")
        )
    found += [
        (
            f"spec.sparkConf[{quote(key)}]",
            "quota is not counted by this: use the fields of spec.driver and spec.executor",
        )
        for key, value in (spec.get("sparkConf") or {}).items()
        if _SIZES.fullmatch(key) and value != "false"
    ]
    if spec.get("nodeSelector"):
        fault = "excludes those of driver and executor, which a start writes: write it into both of them instead"
        found.append(("spec.nodeSelector", fault))
    for role in _ROLES:
        pod = paths.at(spec, (role, "template", "spec")) or {}
        ignored = [field for field in _OF_TEMPLATES if pod.get(field)]
        ignored += ["containers"] if len(pod.get("containers") or ()) > 1 else []
        found += [
            (f"spec.{role}.template.spec.{field}", f"quota is not counted by this: use the fields of spec.{role}")
            for field in ignored
        ]
    return found


def _template(spec: Object, role: str) -> Object:
    """Return the template of a role's pod as Spark will create it, as far as quota depends on it."""
    part = spec.get(role) or {}
    requests: dict[str, Any] = {
        "cpu": str(part.get("coreRequest") or part.get("cores") or 1),
        "memory": str(_memory(spec, part, f"spec.{role}")),
    }
    gpu = part.get("gpu") or {}
    if gpu.get("name"):
        requests[gpu["name"]] = str(gpu.get("quantity", 1))
    template = as_template(part)
    containers = [{"name": role, "resources": {"requests": requests}}, *(part.get("sidecars") or ())]
    pod = {**template.get("spec", {}), "containers": containers}
    for field in ("initContainers", "affinity", "priorityClassName"):
        if part.get(field):
            pod[field] = part[field]
    return {**template, "spec": pod}


def _memory(spec: Object, part: Object, path: str) -> int:
    """Return bytes: the memory of the process, and the overhead outside of its heap."""
    heap = _bytes(part.get("memory", "1g"), f"{path}.memory")
    if part.get("memoryOverhead"):
        return heap + _bytes(part["memoryOverhead"], f"{path}.memoryOverhead")
    try:
        factor = float(spec.get("memoryOverheadFactor") or _FACTORS.get(str(spec.get("type")), _FACTOR))
    except (TypeError, ValueError) as error:
        raise Misconfigured("spec.memoryOverheadFactor: must be a number such as 0.1") from error
    return heap + max(int(heap * factor), _LEAST_OVERHEAD)


def _bytes(text: Any, path: str) -> int:
    match = _MEMORY.fullmatch(str(text))
    if match is None:
        raise Misconfigured(f'{path}: "{quote(str(text))}" is no size such as 512m or 4g')
    return int(match[1]) * _UNITS[match[2].lower()]
