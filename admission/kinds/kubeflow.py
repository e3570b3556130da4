"""Pod sets and faults of the kinds of Kubeflow's training operator and MPI operator, beyond what `Form` describes.

The training operator (v1.9, `pkg/config/config.go`) adds an init container to the workers of a PyTorchJob that has a
master, which wait for it, and one to the launcher of an MPIJob `v1`. The MPI operator, to which `v2beta1` belongs, adds
none.

The training operator accepts the name of a role in any case (`setTypeNameToCamelCase`, v1.9), so that `worker` creates
pods, too. If both spellings are present, which one it uses is not determined.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from admission.kinds import paths
from admission.kinds.base import MIN_COUNT_PATH
from admission.kinds.common import quote
from admission.kinds.partial_admission import has_min_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from admission.kinds.base import Object
    from admission.kinds.places import Place

_WAIT_FOR_MASTER: Final[dict[str, Any]] = {
    "name": "init-pytorch",
    "resources": {"requests": {"cpu": "50m", "memory": "10Mi"}, "limits": {"cpu": "100m", "memory": "20Mi"}},
}
_AMOUNTS: Final = {"cpu": "100m", "memory": "512Mi", "ephemeral-storage": "5Gi"}
_DELIVERY: Final[dict[str, Any]] = {"name": "kubectl-delivery", "resources": {"requests": _AMOUNTS, "limits": _AMOUNTS}}


def added(obj: Object, place: Place) -> Place:
    """Return a pod set of a PyTorchJob or MPIJob with the container that the training operator adds to its pods."""
    if obj.get("kind") == "PyTorchJob":
        has_master = bool(paths.at(obj, ("spec", "pytorchReplicaSpecs", "Master")))
        return place.with_container(_WAIT_FOR_MASTER, before=True) if place.name == "worker" and has_master else place
    is_v1 = str(obj.get("apiVersion")).endswith("/v1")
    return place.with_container(_DELIVERY, before=True) if place.name == "launcher" and is_v1 else place


def faults(field: str, roles: Sequence[str], obj: Object) -> list[tuple[str, str]]:
    """Return faults: roles below `spec.FIELD` that are not in `roles`, and fields that exclude partial admission."""
    replica_specs = paths.at(obj, ("spec", field))
    fault = f"is no role that is counted: write {' or '.join(roles)}"
    names = replica_specs if isinstance(replica_specs, dict) else ()
    found = [(f"spec.{field}[{quote(name)}]", fault) for name in names if name not in roles]
    if has_min_count(obj):
        found += [
            (MIN_COUNT_PATH, f"{reason}: remove either") for path, reason in _OTHERS.items() if paths.at(obj, path)
        ]
    return found


_OTHERS: Final = {
    ("spec", "elasticPolicy", "metrics"): "the autoscaler of spec.elasticPolicy.metrics sets the number of workers",
    ("spec", "runPolicy", "schedulingPolicy", "minAvailable"): "the gang of "
    "spec.runPolicy.schedulingPolicy.minAvailable waits for a number of pods that may not be started",
}
"""Fields that exclude a start with fewer pods, and why."""
