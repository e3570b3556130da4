"""Faults of the kinds of Kubeflow's training operator and MPI operator, beyond what `Form` describes.

The training operator accepts the name of a role in any case (`setTypeNameToCamelCase`, v1.9), so that `worker` creates
pods, too. If both spellings are present, which one it uses is not determined.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from admission.kinds import paths
from admission.kinds.base import MIN_COUNT_PATH
from admission.kinds.common import quote
from admission.kinds.partial_admission import has_min_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from admission.kinds.base import Object


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
