"""What paths cannot say of the kinds of Kubeflow's operators: that no other roles have pods than those counted.

The training operator takes the name of a role in any case (`setTypeNameToCamelCase`, v1.9), so that `worker` makes
pods, too; which of two it takes where both are there is left to chance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from admission.kinds import fewer, paths
from admission.kinds.common import quote

if TYPE_CHECKING:
    from collections.abc import Sequence

    from admission.kinds.base import Object


def faults(field: str, roles: Sequence[str], obj: Object) -> list[tuple[str, str]]:
    """The roles below `spec.FIELD` that are none of these; and what else decides about the number of workers."""
    given = paths.at(obj, ("spec", field))
    told = f"is no role that is counted: write {' or '.join(roles)}"
    names = given if isinstance(given, dict) else ()
    found = [(f"spec.{field}[{quote(name)}]", told) for name in names if name not in roles]
    if fewer.asks(obj):
        found += [(fewer.WHERE, f"{whose}: remove either") for path, whose in _OTHERS.items() if paths.at(obj, path)]
    return found


_OTHERS: Final = {
    ("spec", "elasticPolicy", "metrics"): "the autoscaler of spec.elasticPolicy.metrics sets the number of workers",
    ("spec", "runPolicy", "schedulingPolicy", "minAvailable"): "the gang of "
    "spec.runPolicy.schedulingPolicy.minAvailable waits for a number of pods that may not be started",
}
"""By what nobody may start such an object with fewer pods."""
